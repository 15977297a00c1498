// Splits a model's answer at the first `</think>` into reasoning and content.
//
// Where the answer starts is a fact of the rendered prompt, not of a flag: where the last mark of thinking in its
// markup is `<think>`, the answer starts with reasoning, also where the prompt goes on with the front of an answer;
// else with content, also after tool results. Content is never searched: a later `</think>` is text. Held back is at
// most the longest suffix that may become the marker (7 bytes). Tested by reasoning_splitter_test.cc: all splits give
// what the whole gives.
#pragma once

#include "absl/strings/string_view.h"
#include "router/parsing/answer_delta.h"
#include "router/parsing/stop_matcher.h"
#include "router/tokenizer/marked_text.h"

namespace tandem::router {

class ReasoningSplitter {
 public:
  enum class State { kReasoning, kContent };

  // Reads the prompt's last mark of thinking. A client's text is no mark.
  static State StateAfterPrompt(const MarkedText& prompt);

  explicit ReasoningSplitter(State start);

  // Appends what `text` makes certain to the reasoning and the content of *delta.
  void Append(absl::string_view text, AnswerDelta* delta);

  // The stream has ended: a part of a marker that is held back belongs to the reasoning.
  void Finish(AnswerDelta* delta);

  State state() const { return state_; }

 private:
  State state_;
  StopMatcher marker_;
};

}  // namespace tandem::router
