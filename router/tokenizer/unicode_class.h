// The coarse class of a code point, as pre-tokenizer patterns ask for it. Unicode 16.0.0.
//
// The version matters: a character that one version has as a symbol and another has not assigned yet is cut
// differently. make_unicode_class_runs.py says how it was chosen and writes the table.
// Tested by unicode_class_test.cc against PCRE2's properties.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tandem::router {

// Values are those of the table.
enum class UnicodeClass : uint8_t {
  kOther = 0,  // controls, formats, private, surrogate, unassigned
  kLetter = 1,
  kMark = 2,
  kNumber = 3,
  kPunctuation = 4,
  kSymbol = 5,
  kSpace = 6,    // White_Space but CR and LF
  kNewline = 7,  // CR and LF
};

class UnicodeClasses {
 public:
  static const UnicodeClasses& Get();

  // `code_point` at most 0x10FFFF.
  UnicodeClass Of(uint32_t code_point) const {
    return classes_[block_offsets_[code_point / kBlockSize] + code_point % kBlockSize];
  }

 private:
  static constexpr uint32_t kBlockSize = 128;
  static constexpr uint32_t kNumBlocks = 0x110000 / kBlockSize;

  UnicodeClasses();

  std::array<uint32_t, kNumBlocks> block_offsets_;
  std::vector<UnicodeClass> classes_;  // blocks that are equal are kept once
};

}  // namespace tandem::router
