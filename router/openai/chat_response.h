// The bodies of POST /v1/chat/completions: one whole answer, or the events of a stream.
//
// A stream's events share everything but the choice and the delta: the text around them is escaped once per request, so
// that a token costs a few appends and one escape of its own text. Logprobs cover every token of the answer, reasoning
// included (choice_state.h); they come with the first event that has text of theirs, at the latest with the end.
// Tested by chat_response_test.cc, which parses every body with an independent JSON parser.
#pragma once

#include <optional>
#include <string>

#include "router/openai/answer_format.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class ChatFormat final : public AnswerFormat {
 public:
  struct Options {
    bool is_thinking = false;      // whole answers have reasoning_content, be it empty
    bool has_usage_field = false;  // the stream ends with usage, so every other event says "usage":null
    bool has_logprobs = false;
  };
  // The tokenizer outlives the format.
  ChatFormat(const AnswerIdentity& identity, const Options& options, const Tokenizer* tokenizer);

  void AppendOpening(std::string& out, int index) const override;
  void AppendDelta(std::string& out, int index, const ChoiceDelta& delta) override;
  void AppendUsage(std::string& out, const Usage& usage) const override;
  std::string WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const override;

 private:
  // tool_calls of a delta or a message, with their brackets.
  void AppendDeltaCalls(std::string& out, int index, absl::Span<const ToolCallDelta> calls) const;
  void AppendWholeCalls(std::string& out, int index, absl::Span<const ToolCallDelta> calls) const;
  // The id of a call of choice `index`, with its quotes.
  void AppendCallId(std::string& out, int index, int call) const;
  // delta: the name of its one member, with the quotes.
  void AppendText(std::string& out, int index, absl::string_view delta, absl::string_view text,
                  absl::Span<const TokenLogprob> logprobs) const;
  void AppendLogprobs(std::string& out, absl::Span<const TokenLogprob> logprobs) const;
  void AppendWholeChoice(std::string& out, int index, const WholeChoice& choice) const;

  const AnswerFrame frame_;
  const std::string id_;  // of the answer
  const Options options_;
  const Tokenizer* const tokenizer_;
};

}  // namespace tandem::router
