// Which tokens of a vocabulary may be drawn: one bit each.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tandem::model {

class TokenMask final {
 public:
  explicit TokenMask(int vocab_size) : vocab_size_(vocab_size), words_((vocab_size + 63) / 64, 0) {}

  int vocab_size() const { return vocab_size_; }
  void Allow(int32_t token) { words_[token >> 6] |= uint64_t{1} << (token & 63); }
  bool Allows(int32_t token) const { return (words_[token >> 6] >> (token & 63) & 1) != 0; }
  void Clear() { words_.assign(words_.size(), 0); }
  void AllowAllOf(const TokenMask& other) {
    TANDEM_CHECK(other.words_.size() == words_.size(), "masks of one vocabulary");
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  int num_allowed() const {
    int num_allowed = 0;
    for (const uint64_t word : words_) num_allowed += std::popcount(word);
    return num_allowed;
  }
  size_t num_bytes() const { return words_.size() * sizeof(uint64_t); }
  bool operator==(const TokenMask&) const = default;

 private:
  int vocab_size_;
  std::vector<uint64_t> words_;
};

}  // namespace tandem::model
