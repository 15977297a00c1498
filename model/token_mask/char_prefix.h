// The front of a character in UTF-8 that is not complete yet, and which characters it may still become.
#pragma once

#include <cstdint>

namespace tandem::model {

class CharPrefix final {
 public:
  enum class Result { kInvalid, kPartial, kComplete };

  bool empty() const { return num_missing_ == 0; }

  // After kPartial: the code points that may come of it are [first(), last()]; after kComplete both are the character,
  // and the prefix is empty again. kInvalid: no character begins so (overlong forms, surrogates, beyond U+10FFFF).
  Result Append(uint8_t byte) {
    if (num_missing_ == 0) {
      if (byte < 0x80) {
        first_ = last_ = byte;
        return Result::kComplete;
      }
      if (byte < 0xC2 || byte > 0xF4) return Result::kInvalid;
      num_missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      bits_ = byte & (0x3F >> num_missing_);
      least_ = num_missing_ == 1 ? 0x80 : num_missing_ == 2 ? 0x800 : 0x10000;
    } else {
      if ((byte & 0xC0) != 0x80) return Result::kInvalid;
      bits_ = bits_ << 6 | (byte & 0x3F);
      --num_missing_;
    }
    const int shift = 6 * num_missing_;
    first_ = bits_ << shift;
    last_ = first_ + (uint32_t{1} << shift) - 1;
    if (first_ < least_) first_ = least_;
    if (last_ > 0x10FFFF) last_ = 0x10FFFF;
    if (first_ > last_ || (first_ >= 0xD800 && last_ <= 0xDFFF)) return Result::kInvalid;
    return num_missing_ == 0 ? Result::kComplete : Result::kPartial;
  }

  uint32_t first() const { return first_; }
  uint32_t last() const { return last_; }

 private:
  int num_missing_ = 0;
  uint32_t bits_ = 0;
  uint32_t least_ = 0;  // of the characters that take as many bytes
  uint32_t first_ = 0;
  uint32_t last_ = 0;
};

}  // namespace tandem::model
