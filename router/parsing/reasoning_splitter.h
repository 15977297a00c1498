// Splits a model's answer at the first `</think>` into reasoning and content.
//
// Where the answer starts is a fact of the rendered prompt, not of a flag: a prompt that ends with `<think>` is
// answered by reasoning, any other by content, also after tool results. Content is never searched: a later `</think>`
// is text. Held back is at most the longest suffix that may become the marker (7 bytes).
// Tested by reasoning_splitter_test.cc: all splits give what the whole gives.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "router/parsing/stop_matcher.h"

namespace tandem::router {

struct ReasoningDelta {
  std::string reasoning;
  std::string content;
};

class ReasoningSplitter {
 public:
  enum class State { kReasoning, kContent };

  // Reads the prompt's tail.
  static State StateAfterPrompt(absl::string_view prompt);

  explicit ReasoningSplitter(State start);

  // Appends what `text` makes certain to the two strings of *delta.
  void Append(absl::string_view text, ReasoningDelta* delta);

  // The stream has ended: a part of a marker that is held back belongs to the reasoning.
  void Finish(ReasoningDelta* delta);

  State state() const { return state_; }

 private:
  State state_;
  StopMatcher marker_;
};

}  // namespace tandem::router
