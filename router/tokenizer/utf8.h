// UTF-8 by the letter of Unicode's Table 3-7: no surrogates, no overlong forms, nothing above U+10FFFF.
// Tested by utf8_test.cc against every code point and every sequence of up to four border bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::router {

struct Utf8Char {
  enum class Kind {
    kValid,       // `length` bytes are the character `code_point`
    kIncomplete,  // all `length` bytes there are begin a character whose rest is missing
    kInvalid,     // the first `length` bytes are a maximal invalid subpart: one U+FFFD
  };
  Kind kind;
  uint32_t length;      // at least 1
  uint32_t code_point;  // of a valid character
};

// The first character of `bytes`, which must not be empty.
Utf8Char DecodeUtf8(absl::string_view bytes);

// Byte offset of the first byte that is not part of a valid character; bytes.size() where there is none.
size_t FindInvalidUtf8(absl::string_view bytes);

// Appends the characters of `bytes` to *text, U+FFFD for each maximal invalid subpart, and returns how many bytes that
// took: all but an incomplete character at the end, at most 3 bytes.
size_t AppendDecodedUtf8(absl::string_view bytes, std::string* text);

// `code_point` must be a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string* text);

// U+FFFD
inline constexpr absl::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace tandem::router
