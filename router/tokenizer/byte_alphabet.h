// The printable stand-ins under which tokenizer.json spells raw bytes.
//
// Bytes that print well stand for themselves, the other 68 take U+0100, U+0101, ... in increasing order: a space is
// written U+0120, a line feed U+010A. The file's vocabulary and merges use these letters; this code uses bytes.
// Tested by byte_alphabet_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::router {

// The code point that spells `byte`.
uint32_t ByteLetter(uint8_t byte);

// The bytes that `spelling` stands for. Nothing where it has a character that is no byte's letter, or is not UTF-8.
std::optional<std::string> BytesFromLetters(absl::string_view spelling);

}  // namespace tandem::router
