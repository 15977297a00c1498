// A rendered prompt that remembers which of its bytes are our markup and which a client sent.
//
// The tokenizer looks for added tokens (`<｜User｜>`, `</think>`, ...) in markup alone, so a client who writes such a
// name in a message gets its letters, never its id. Everything else treats the text as one string: see tokenizer.h.
// Tested by marked_text_test.cc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem::router {

class MarkedText {
 public:
  struct Run {
    size_t begin;  // byte offset into text()
    size_t end;    // one past the last byte
    bool is_markup;

    bool operator==(const Run&) const = default;
  };

  // Text that the chat format itself writes: added tokens are matched inside.
  void AppendMarkup(absl::string_view text) { Append(text, true); }

  // Text of clients, tools and earlier answers: added tokens are plain letters inside.
  void AppendContent(absl::string_view text) { Append(text, false); }

  const std::string& text() const { return text_; }

  // Covers text() from end to end. Neighbours differ in kind and none is empty.
  absl::Span<const Run> runs() const { return runs_; }

 private:
  void Append(absl::string_view text, bool is_markup);

  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace tandem::router
