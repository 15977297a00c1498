// One tag of DSML, the markup of DeepSeek-V3.2's tool calls, read from the front of a text that may still grow:
//   <｜DSML｜function_calls>  <｜DSML｜invoke name="f">  <｜DSML｜parameter name="k" string="true">  and their ends
//   </...>
//
// The mark ｜DSML｜ (U+FF5C bars) makes a tag certain; the same tag without it is reported too, as bare, for the parser
// to judge by where it stands. Lenient in white space, in the order of attributes, in a missing `string` and in `/>`.
// Whatever else looks like a tag (other bars, other names) is none.
// Tested by dsml_tag_test.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::router {

struct DsmlTag {
  enum class Kind { kFunctionCalls, kInvoke, kParameter };

  Kind kind = Kind::kFunctionCalls;
  bool is_end = false;            // </...>
  bool is_bare = false;           // without the mark
  bool is_empty = false;          // <.../>
  bool is_malformed = false;      // marked, but it lacks its name or its >, or has more than a tag may have
  std::string name;               // of an invoke or a parameter
  std::optional<bool> is_string;  // of a parameter
  size_t length = 0;              // bytes of the text that the tag takes
};

enum class TagMatch { kNo, kPartial, kYes };

// No tag is longer, so no more is ever held back.
inline constexpr size_t kDsmlTagBytesMax = 1024;

// Whether `text` begins with a tag. kPartial: it may once more text has come. *tag is written on kYes alone.
TagMatch MatchDsmlTag(absl::string_view text, DsmlTag* tag);

// True for the front of a tag, complete or not, as far as its mark.
bool HasDsmlMark(absl::string_view text);

}  // namespace tandem::router
