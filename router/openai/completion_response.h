// The bodies of POST /v1/completions: one whole answer, or the events of a stream.
//
// An echoed prompt is the first part of each of its choices' text; in a stream it is an event of its own. With
// logprobs, its tokens are the first of theirs, and the event waits for them. Where more choices are drawn than
// returned (best_of), those with the highest mean logprob are, likeliest first; of equal ones the first. Tested by
// completion_response_test.cc, which parses every body with an independent JSON parser.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "router/openai/answer_format.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

class CompletionFormat final : public AnswerFormat {
 public:
  struct Echo {
    std::string text;
    int64_t num_characters = 0;             // of text, in code points
    std::vector<TokenLogprob> tokens = {};  // where their logprobs are wanted: all but these
  };
  struct Options {
    bool has_usage_field = false;  // the stream ends with usage, so every other event says "usage":null
    bool has_logprobs = false;
    std::vector<Echo> echoes;  // of each prompt; empty = none is echoed
    int choices_per_prompt = 1;
    int num_returned = 0;  // of them; 0 = all
  };
  // The tokenizer outlives the format.
  CompletionFormat(const AnswerIdentity& identity, Options options, const Tokenizer* tokenizer);

  void AppendOpening(std::string& out, int index) const override;
  void AppendDelta(std::string& out, int index, const ChoiceDelta& delta) override;
  void AppendUsage(std::string& out, const Usage& usage) const override;
  std::string WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const override;

 private:
  // A piece of a choice: as much of its echo as it has, then as much of its own.
  struct Piece {
    const Echo* echo = nullptr;
    const PromptLogprobs* prompt_logprobs = nullptr;  // of the echo
    absl::string_view text = {};
    absl::Span<const TokenLogprob> logprobs = {};
    bool has_logprobs = false;
  };
  const Echo* EchoOf(int index) const;  // nullptr where nothing is echoed
  // {"index":...,"text":...,"logprobs":... without the members of its end. source: the choice as it was drawn.
  void AppendChoice(std::string& out, int index, int source, const Piece& piece) const;
  // Indices of the choices that are returned, in order.
  std::vector<int> Returned(absl::Span<const WholeChoice> choices) const;

  const AnswerFrame frame_;
  const Options options_;
  const Tokenizer* const tokenizer_;
  std::set<int> is_echoed_;  // choices of a stream whose echo, with logprobs, is written
};

}  // namespace tandem::router
