#include "kvcache/page_sum.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace tandem::kvcache {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read in the machine's own order");

// Odd, without small factors in common; any such constants would do, but they are part of the wire format.
constexpr uint64_t kKeyLow = 0x9e3779b97f4a7c15;
constexpr uint64_t kKeyHigh = 0xd1342543de82ef95;
constexpr uint64_t kKeyTwist = 0x8bb84b93962eacc9;

inline uint64_t Mix(uint64_t low, uint64_t high) {
  const unsigned __int128 product = static_cast<unsigned __int128>(low) * high;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// A bijection of 64 bits in which every input bit moves every output bit.
constexpr uint64_t Scramble(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

// Two words at a time in separate accumulators: the multiplications of neighbours overlap.
uint64_t SumWords(const std::byte* bytes, size_t num_words, uint64_t first_word) {
  uint64_t even = 0;
  uint64_t odd = 0;
  uint64_t key_low = (first_word + 1) * kKeyLow;
  uint64_t key_high = (first_word + 1) * kKeyHigh;
  size_t i = 0;
  for (; i + 2 <= num_words; i += 2) {
    uint64_t word[4];
    std::memcpy(word, bytes + i * kSumWordBytes, sizeof(word));
    even += Mix(word[0] ^ key_low, word[1] ^ key_high ^ kKeyTwist);
    odd += Mix(word[2] ^ (key_low + kKeyLow), word[3] ^ (key_high + kKeyHigh) ^ kKeyTwist);
    key_low += 2 * kKeyLow;
    key_high += 2 * kKeyHigh;
  }
  if (i < num_words) {
    uint64_t word[2];
    std::memcpy(word, bytes + i * kSumWordBytes, sizeof(word));
    even += Mix(word[0] ^ key_low, word[1] ^ key_high ^ kKeyTwist);
  }
  return even + odd;
}

}  // namespace

uint64_t ContentSum(std::span<const std::byte> bytes, uint64_t first_word) {
  TANDEM_CHECK(bytes.size() % kSumWordBytes == 0, "a sum is over whole words of 16 bytes");
  return SumWords(bytes.data(), bytes.size() / kSumWordBytes, first_word);
}

uint64_t BindSum(uint64_t content_sum, const SumBinding& binding) {
  const uint64_t place = uint64_t{binding.layer} << 32 | binding.logical_page;
  uint64_t sum = content_sum;
  sum = Scramble(sum + 1 + static_cast<uint64_t>(binding.kind));
  sum = Scramble(sum ^ place);
  sum = Scramble(sum ^ binding.incarnation);
  return Scramble(sum ^ binding.epoch);
}

}  // namespace tandem::kvcache
