// What the body of a request has become: what the workers are asked, and how the answer is written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/chat/prompt_format.h"
#include "router/checkpoint_facts.h"
#include "router/cluster.h"
#include "router/constraints/answer_constraint.h"
#include "router/openai/answer_format.h"
#include "router/parsing/answer_parser.h"
#include "router/parsing/reasoning_splitter.h"
#include "router/parsing/stop_matcher.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

// What a shard knows of the model and of what may be asked of it; immutable, shared by all shards.
struct ModelContext {
  const Tokenizer* tokenizer = nullptr;
  CheckpointFacts facts;
  PromptFormat prompt_format;
  std::string model_path;  // the checkpoint's folder
  std::string served_model_name;
  int64_t context_length = 0;         // prompt and answer together, tokens; at most the checkpoint's
  bool allows_auto_truncate = false;  // of prompts that leave no room for an answer (prompt_truncation.h)
  int64_t choices_max = 128;          // of one request: n times the number of its prompts
};

struct PreparedRequest {
  std::string model;
  std::string id;  // that the client chose; "" = the router's
  // Of each prompt, where the client chose them; else they are made of the request's.
  std::vector<std::string> prompt_ids;
  bool is_stream = false;
  bool includes_usage = false;
  bool allows_comments = true;                         // AnswerWriter::Form
  bool wants_tokens = false;                           // ChoiceState::Params
  absl::Duration time_max = absl::InfiniteDuration();  // beside the setting's
  std::vector<GenerateOrder> orders;  // one for each prompt, all but the deadline; of equally many choices
  // What every answer is held to, until constraint_compilation.h has made the orders' constraint of it.
  std::optional<AnswerConstraint> constraint;
  std::shared_ptr<const StopSet> stops;
  ReasoningSplitter::State start = ReasoningSplitter::State::kContent;
  AnswerRules rules;
  bool separates_reasoning = true;  // ChoiceState::Params
  bool streams_reasoning = true;
  const char* prompt_field = "messages";  // that a prompt which is too long is laid at
  std::function<std::unique_ptr<AnswerFormat>(const AnswerIdentity&)> make_format;
};

}  // namespace tandem::router
