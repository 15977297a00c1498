// Writes the calls that a parser finds into deltas: numbers them, joins what belongs together, and applies what the
// request said of calls (none shown, at most one).
// Tested through dsml_parser_test.cc and tool_mark_parser_test.cc.
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "router/parsing/answer_delta.h"

namespace tandem::router {

class CallWriter {
 public:
  // shows: false where the request forbids calls; they are read, so that no markup reaches the content, and dropped.
  CallWriter(bool shows, bool is_single) : shows_(shows), is_single_(is_single) {}

  void Begin(absl::string_view name, AnswerDelta* delta) {
    is_open_ = true;
    if (shows_) delta->tool_calls.push_back({num_begun_++, std::string(name), ""});
  }

  void AppendArguments(absl::string_view text, AnswerDelta* delta) {
    if (!shows_ || text.empty()) return;
    const int index = num_begun_ - 1;
    if (delta->tool_calls.empty() || delta->tool_calls.back().index != index) {
      delta->tool_calls.push_back({index, "", ""});
    }
    absl::StrAppend(&delta->tool_calls.back().arguments, text);
  }

  void End() { is_open_ = false; }

  bool has_incomplete() const { return is_open_ && num_begun_ > 0; }
  int num_begun() const { return num_begun_; }
  // The one call that the request allows is complete.
  bool is_full() const { return is_single_ && num_begun_ > 0 && !is_open_; }

 private:
  const bool shows_;
  const bool is_single_;
  bool is_open_ = false;
  int num_begun_ = 0;
};

}  // namespace tandem::router
