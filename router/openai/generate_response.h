// The bodies of POST /generate: SGLang's native shape.
//
// Every event of a stream says its choice from the start: text, output_ids and logprobs are cumulative, so that the
// last event is the whole answer. What has been written of a choice is kept as JSON text: an event costs a copy of it,
// no second escape. One prompt with one choice is an object, anything else an array of them (index: prompt times n plus
// choice); events of an array carry their index. Tested by generate_response_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/openai/answer_format.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class GenerateFormat final : public AnswerFormat {
 public:
  struct Prompt {
    std::string id;  // meta_info.id of its choices
    int64_t num_tokens = 0;
    // Those whose logprobs are wanted; the first of them is shown without one.
    std::vector<TokenId> logprob_tokens = {};
  };
  struct Options {
    std::vector<Prompt> prompts;
    int choices_per_prompt = 1;
    bool is_list = false;  // the prompts came as a list
    bool has_logprobs = false;
    bool has_top_logprobs = false;
    bool has_logprob_texts = false;
  };
  // The tokenizer outlives the format.
  GenerateFormat(Options options, const Tokenizer* tokenizer);

  void AppendOpening(std::string& /*out*/, int /*index*/) const override {}
  void AppendDelta(std::string& out, int index, const ChoiceDelta& delta) override;
  void AppendUsage(std::string& /*out*/, const Usage& /*usage*/) const override {}  // meta_info has it
  std::string WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const override;

 private:
  // A choice as far as it has come: the insides of JSON values.
  struct Progress {
    std::string text;
    std::string output_ids;
    std::string logprobs;
    std::string top_logprobs;
    std::string prompt_logprobs;  // with the names of their members; empty until they have come
    int64_t num_tokens = 0;
    int64_t num_cached_tokens = 0;  // of the prompt
    size_t num_told_bytes = 0;      // of the last event; 0: there was none
    size_t num_bytes() const { return text.size() + output_ids.size() + logprobs.size() + top_logprobs.size(); }
  };

  // Whether an event of a stream says enough that is new. Events are cumulative: one for each token of a long answer
  // would be the square of its length in bytes.
  static bool IsEventDue(const Progress& progress);

  void Add(Progress& progress, absl::string_view text, absl::Span<const TokenId> tokens,
           absl::Span<const TokenLogprob> logprobs) const;
  void AddPrompt(Progress& progress, int index, const PromptLogprobs* logprobs) const;
  void AppendTriples(std::string& out, const std::vector<LikelyToken>& tokens) const;
  // {"text":...,"output_ids":...,"meta_info":{...}}
  void AppendChoice(std::string& out, int index, const Progress& progress, const ChoiceEnd* end, bool has_prompt) const;
  static void AppendDrafts(std::string& out, const DraftCounts& drafts);
  void AppendFinish(std::string& out, const Progress& progress, const ChoiceEnd& end) const;

  const Options options_;
  const Tokenizer* const tokenizer_;
  const bool is_array_;
  std::vector<Progress> progress_;  // of a stream, by choice
};

}  // namespace tandem::router
