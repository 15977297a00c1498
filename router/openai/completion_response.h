// The bodies of POST /v1/completions: one whole answer, or the events of a stream.
//
// An echoed prompt is the first part of each of its choices' text; in a stream it is an event of its own. Tested by
// completion_response_test.cc, which parses every body with an independent JSON parser.
#pragma once

#include <string>
#include <vector>

#include "router/openai/answer_format.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class CompletionFormat final : public AnswerFormat {
 public:
  struct Options {
    bool has_usage_field = false;  // the stream ends with usage, so every other event says "usage":null
    bool has_logprobs = false;
    std::vector<std::string> echoes;  // the text of each prompt; empty = none is echoed
    int choices_per_prompt = 1;
  };
  // The tokenizer outlives the format.
  CompletionFormat(const AnswerIdentity& identity, Options options, const Tokenizer* tokenizer);

  void AppendOpening(std::string& out, int index) const override;
  void AppendDelta(std::string& out, int index, const ChoiceDelta& delta) override;
  void AppendUsage(std::string& out, const Usage& usage) const override;
  std::string WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const override;

 private:
  absl::string_view EchoOf(int index) const;  // "" where nothing is echoed
  // {"index":...,"text":...,"logprobs":... without the members of its end.
  void AppendChoice(std::string& out, int index, absl::string_view echo, absl::string_view text,
                    absl::Span<const TokenLogprob> logprobs, bool has_logprobs) const;

  const AnswerFrame frame_;
  const Options options_;
  const Tokenizer* const tokenizer_;
};

}  // namespace tandem::router
