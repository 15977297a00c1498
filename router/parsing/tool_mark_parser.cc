#include "router/parsing/tool_mark_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::router {
namespace {

constexpr size_t kNameBytesMax = 1024;  // what is longer is no name

}  // namespace

ToolMarkParser::ToolMarkParser(ReasoningSplitter::State start, const AnswerRules& rules)
    : writer_(rules.shows_calls, rules.is_single_call), is_reasoning_(start == ReasoningSplitter::State::kReasoning) {}

void ToolMarkParser::Append(absl::string_view text, AnswerDelta* delta) {
  if (is_complete()) return;
  pending_.append(text.data(), text.size());
  Run(delta);
}

void ToolMarkParser::Finish(bool is_cut, AnswerDelta* delta) {
  if (is_complete()) return;
  is_end_ = true;
  Run(delta);
  if (is_cut) return;
  if (place_ == Place::kName) BeginCall(delta);
  if (place_ == Place::kArguments) EndCall(delta);
}

void ToolMarkParser::Run(AnswerDelta* delta) {
  static constexpr std::pair<absl::string_view, Mark> kMarks[] = {
      {"</think>", Mark::kReasoningEnd},         {"<｜tool▁calls▁begin｜>", Mark::kCallsBegin},
      {"<｜tool▁calls▁end｜>", Mark::kCallsEnd}, {"<｜tool▁call▁begin｜>", Mark::kCallBegin},
      {"<｜tool▁call▁end｜>", Mark::kCallEnd},   {"<｜tool▁sep｜>", Mark::kSeparator},
  };
  absl::string_view text = pending_;
  while (!text.empty() && !is_complete()) {
    const size_t begin = std::min(text.find('<'), text.size());
    if (begin > 0) {
      TakeText(text.substr(0, begin), delta);
      text.remove_prefix(begin);
      continue;
    }
    Mark found = Mark::kNone;
    bool is_partial = false;
    for (const auto& [spelling, mark] : kMarks) {
      const bool counts = mark == Mark::kReasoningEnd ? is_reasoning_ && place_ == Place::kText
                                                      : mark != Mark::kSeparator || place_ == Place::kName;
      if (!counts) continue;
      if (absl::StartsWith(text, spelling)) {
        found = mark;
        text.remove_prefix(spelling.size());
        break;
      }
      is_partial = is_partial || absl::StartsWith(spelling, text);
    }
    if (found != Mark::kNone) {
      TakeMark(found, delta);
    } else if (is_partial && !is_end_) {
      break;
    } else {
      TakeText(text.substr(0, 1), delta);
      text.remove_prefix(1);
    }
  }
  pending_.erase(0, pending_.size() - text.size());
}

void ToolMarkParser::TakeText(absl::string_view text, AnswerDelta* delta) {
  if (place_ == Place::kName) {
    absl::StrAppend(&name_, text.substr(0, kNameBytesMax + 1 - std::min(name_.size(), kNameBytesMax + 1)));
    return;
  }
  if (skips_space_) {
    text = absl::StripLeadingAsciiWhitespace(text);
    if (text.empty()) return;
    skips_space_ = false;
  }
  if (place_ == Place::kText) {
    absl::StrAppend(is_reasoning_ ? &delta->reasoning : &delta->content, text);
  } else if (!is_call_dropped_) {
    has_arguments_ = true;
    writer_.AppendArguments(text, delta);
  }
}

void ToolMarkParser::TakeMark(Mark mark, AnswerDelta* delta) {
  if (mark == Mark::kReasoningEnd) {
    is_reasoning_ = false;
    skips_space_ = false;
    return;
  }
  if (place_ == Place::kName) BeginCall(delta);
  if (mark == Mark::kSeparator) return;
  if (place_ == Place::kArguments) EndCall(delta);
  if (is_complete()) return;
  skips_space_ = true;
  if (mark == Mark::kCallBegin) {
    place_ = Place::kName;
    name_.clear();
  }
}

// The name is complete.
void ToolMarkParser::BeginCall(AnswerDelta* delta) {
  const absl::string_view name = absl::StripAsciiWhitespace(name_);
  place_ = Place::kArguments;
  skips_space_ = true;
  has_arguments_ = false;
  is_call_dropped_ = name.empty() || name_.size() > kNameBytesMax;
  if (!is_call_dropped_) writer_.Begin(name, delta);
}

void ToolMarkParser::EndCall(AnswerDelta* delta) {
  place_ = Place::kText;
  skips_space_ = true;
  if (is_call_dropped_) return;
  if (!has_arguments_) writer_.AppendArguments("{}", delta);
  writer_.End();
}

}  // namespace tandem::router
