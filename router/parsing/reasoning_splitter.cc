#include "router/parsing/reasoning_splitter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kReasoningOpen = "<think>";
constexpr absl::string_view kReasoningClose = "</think>";

const StopSet& CloseMarker() {
  static const StopSet* const kSet = [] {
    absl::StatusOr<StopSet> set = StopSet::Build({std::string(kReasoningClose)});
    TANDEM_CHECK(set.ok(), "one short string is a valid set");
    return new StopSet(*std::move(set));
  }();
  return *kSet;
}

}  // namespace

ReasoningSplitter::State ReasoningSplitter::StateAfterPrompt(const MarkedText& prompt) {
  const absl::Span<const MarkedText::Run> runs = prompt.runs();
  for (size_t i = runs.size(); i-- > 0;) {
    if (!runs[i].is_markup) continue;
    const absl::string_view markup =
        absl::string_view(prompt.text()).substr(runs[i].begin, runs[i].end - runs[i].begin);
    const size_t open = markup.rfind(kReasoningOpen);
    const size_t close = markup.rfind(kReasoningClose);
    if (open == close) continue;  // neither is there
    return close == absl::string_view::npos || (open != absl::string_view::npos && open > close) ? State::kReasoning
                                                                                                 : State::kContent;
  }
  return State::kContent;
}

ReasoningSplitter::ReasoningSplitter(State start) : state_(start), marker_(CloseMarker()) {}

void ReasoningSplitter::Append(absl::string_view text, AnswerDelta* delta) {
  if (state_ == State::kContent) {
    absl::StrAppend(&delta->content, text);
    return;
  }
  const size_t num_consumed = marker_.Append(text, &delta->reasoning);
  if (!marker_.matched().has_value()) return;
  state_ = State::kContent;
  absl::StrAppend(&delta->content, text.substr(num_consumed));
}

void ReasoningSplitter::Finish(AnswerDelta* delta) {
  if (state_ == State::kReasoning) marker_.Finish(&delta->reasoning);
}

}  // namespace tandem::router
