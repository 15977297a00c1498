#include "router/tokenizer/marked_text.h"

#include "absl/strings/str_cat.h"

namespace tandem::router {

void MarkedText::Append(absl::string_view text, bool is_markup) {
  if (text.empty()) return;
  const size_t begin = text_.size();
  absl::StrAppend(&text_, text);
  if (!runs_.empty() && runs_.back().is_markup == is_markup) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({begin, text_.size(), is_markup});
  }
}

}  // namespace tandem::router
