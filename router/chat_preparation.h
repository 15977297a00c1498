// From the bytes of a chat request to what the workers are asked: parse, check, encode, tokenise, plan.
//
// A pure function of the body and of facts that never change, so it may run on any thread: a prompt of a megabyte is
// prepared beside the shard's loop, not inside it. Tested by chat_preparation_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/checkpoint_facts.h"
#include "router/cluster.h"
#include "router/openai/chat_request.h"
#include "router/parsing/reasoning_splitter.h"
#include "router/parsing/stop_matcher.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

// What a shard knows of the model; immutable, shared by all shards.
struct ChatContext {
  const Tokenizer* tokenizer = nullptr;
  CheckpointFacts facts;
  std::string served_model_name;
  int64_t context_length = 0;  // prompt and answer together, tokens; at most the checkpoint's
};

struct PreparedChat {
  ChatRequest request;  // without its messages
  GenerateOrder order;  // all but the deadline
  StopSet stops;
  ReasoningSplitter::State start = ReasoningSplitter::State::kContent;
};

// INVALID_ARGUMENT or NOT_FOUND (the model) as OpenAI errors that name the field. A seed is drawn where the client gave
// none. max_tokens beyond the context is cut to what is left of it: the answer then says finish_reason "length".
absl::StatusOr<PreparedChat> PrepareChat(absl::string_view body, const ChatContext& context);

}  // namespace tandem::router
