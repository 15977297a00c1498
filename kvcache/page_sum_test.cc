// Proves: the sum does not depend on how a page is split; it changes with every bit, with the order of words and with
// everything it is bound to; its value is the one that the header defines. Not proved here: its speed
// (page_sum_benchmark.cc).
#include "kvcache/page_sum.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

constexpr int64_t kLatentPageBytes = LatentPageBytes(KvCacheDtype::kFp8E4m3);

std::vector<std::byte> RandomBytes(size_t num_bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(num_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// The header's definition, word by word, with the product by schoolbook on 32-bit halves: shares no code with the
// implementation.
uint64_t DefinitionSum(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size() / 16; ++i) {
    uint64_t low = 0;
    uint64_t high = 0;
    for (int b = 7; b >= 0; --b) {
      low = low << 8 | static_cast<uint64_t>(bytes[16 * i + b]);
      high = high << 8 | static_cast<uint64_t>(bytes[16 * i + 8 + b]);
    }
    low ^= (i + 1) * 0x9e3779b97f4a7c15;
    high ^= ((i + 1) * 0xd1342543de82ef95) ^ 0x8bb84b93962eacc9;
    const uint64_t ll = (low & 0xffffffff) * (high & 0xffffffff);
    const uint64_t lh = (low & 0xffffffff) * (high >> 32);
    const uint64_t hl = (low >> 32) * (high & 0xffffffff);
    const uint64_t hh = (low >> 32) * (high >> 32);
    const uint64_t middle = (ll >> 32) + (lh & 0xffffffff) + (hl & 0xffffffff);
    const uint64_t product_low = middle << 32 | (ll & 0xffffffff);
    const uint64_t product_high = hh + (lh >> 32) + (hl >> 32) + (middle >> 32);
    sum += product_low ^ product_high;
  }
  return sum;
}

TEST(PageSumTest, IsWhatTheHeaderDefines) {
  for (const size_t num_words : {0u, 1u, 2u, 3u, 7u, 528u, 2624u, 4608u}) {
    const std::vector<std::byte> bytes = RandomBytes(num_words * kSumWordBytes, num_words);
    EXPECT_EQ(ContentSum(bytes), DefinitionSum(bytes)) << num_words;
  }
}

// Vectors for other implementations (CUDA): byte i of a page is (7 * i + 3) mod 256.
TEST(PageSumTest, KeepsItsFixedVectors) {
  std::vector<std::byte> latent(kLatentPageBytes);
  for (size_t i = 0; i < latent.size(); ++i) latent[i] = static_cast<std::byte>(7 * i + 3);
  const std::vector<std::byte> index(latent.begin(), latent.begin() + kIndexPageBytes);
  EXPECT_EQ(ContentSum(latent), 0x268105865c9f88aa);
  EXPECT_EQ(ContentSum(index), 0x66595a0cc99cc6e9);
  const SumBinding binding = {
      .kind = RecordKind::kIndex, .layer = 61, .logical_page = 17, .incarnation = 0x0123456789abcdef, .epoch = 42};
  EXPECT_EQ(BindSum(ContentSum(index), binding), 0x6eb4d1b0177edc6c);
}

TEST(PageSumTest, DoesNotDependOnWhereAPageIsSplit) {
  const std::vector<std::byte> page = RandomBytes(kIndexPageBytes, 1);
  const uint64_t whole = ContentSum(page);
  for (size_t word = 0; word <= page.size() / kSumWordBytes; ++word) {
    const std::span<const std::byte> bytes(page);
    const uint64_t head = ContentSum(bytes.first(word * kSumWordBytes));
    const uint64_t tail = ContentSum(bytes.subspan(word * kSumWordBytes), word);
    ASSERT_EQ(head + tail, whole) << word;
  }
}

TEST(PageSumTest, DoesNotDependOnTheOrderOfTheParts) {
  const std::vector<std::byte> page = RandomBytes(kLatentPageBytes, 2);
  std::vector<size_t> words(page.size() / kSumWordBytes);
  for (size_t i = 0; i < words.size(); ++i) words[i] = i;
  std::shuffle(words.begin(), words.end(), std::mt19937_64(3));
  uint64_t sum = 0;
  for (const size_t word : words) {
    sum += ContentSum(std::span(page).subspan(word * kSumWordBytes, kSumWordBytes), word);
  }
  EXPECT_EQ(sum, ContentSum(page));
}

TEST(PageSumTest, DoesNotDependOnAlignment) {
  const std::vector<std::byte> page = RandomBytes(kIndexPageBytes, 4);
  for (size_t shift = 1; shift < 16; ++shift) {
    std::vector<std::byte> shifted(page.size() + shift);
    std::memcpy(shifted.data() + shift, page.data(), page.size());
    EXPECT_EQ(ContentSum(std::span(shifted).subspan(shift)), ContentSum(page));
  }
}

// Every single bit of an index page, on random bytes and on zeros (a fresh page).
TEST(PageSumTest, ChangesWithEveryBit) {
  for (std::vector<std::byte> page : {RandomBytes(kIndexPageBytes, 5), std::vector<std::byte>(kIndexPageBytes)}) {
    const uint64_t whole = ContentSum(page);
    std::set<uint64_t> seen = {whole};
    for (size_t bit = 0; bit < page.size() * 8; ++bit) {
      page[bit / 8] ^= std::byte{1} << (bit % 8);
      const size_t word = bit / 8 / kSumWordBytes;
      const std::span<const std::byte> changed = std::span(page).subspan(word * kSumWordBytes, kSumWordBytes);
      const uint64_t after = ContentSum(changed, word);
      page[bit / 8] ^= std::byte{1} << (bit % 8);
      seen.insert(whole - ContentSum(changed, word) + after);
    }
    EXPECT_EQ(seen.size(), page.size() * 8 + 1);  // no two flips give one sum either
  }
}

TEST(PageSumTest, ChangesWhenAnyTwoWordsAreSwapped) {
  std::vector<std::byte> page = RandomBytes(64 * kSumWordBytes, 6);
  const uint64_t whole = ContentSum(page);
  const auto swap_words = [&page](size_t a, size_t b) {
    std::swap_ranges(page.begin() + a * kSumWordBytes, page.begin() + (a + 1) * kSumWordBytes,
                     page.begin() + b * kSumWordBytes);
  };
  for (size_t a = 0; a < 64; ++a) {
    for (size_t b = a + 1; b < 64; ++b) {
      swap_words(a, b);
      EXPECT_NE(ContentSum(page), whole) << a << " " << b;
      swap_words(a, b);
    }
  }
}

TEST(PageSumTest, TellsZeroPagesOfDifferentLengthApart) {
  const std::vector<std::byte> zeros(kLatentPageBytes);
  EXPECT_NE(ContentSum(zeros), ContentSum(std::span(zeros).first(kIndexPageBytes)));
  EXPECT_NE(ContentSum(std::span(zeros).first(16)), 0u);
}

TEST(PageSumTest, IsBoundToEveryPartOfItsPlace) {
  const SumBinding base = {.layer = 3, .logical_page = 5, .incarnation = 7, .epoch = 9};
  std::set<uint64_t> seen;
  const auto add = [&](auto change) {
    SumBinding binding = base;
    change(binding);
    seen.insert(BindSum(1234, binding));
  };
  add([](SumBinding&) {});
  add([](SumBinding& b) { b.kind = RecordKind::kIndex; });
  add([](SumBinding& b) { b.layer = 4; });
  add([](SumBinding& b) { std::swap(b.layer, b.logical_page); });
  add([](SumBinding& b) { b.logical_page = 6; });
  add([](SumBinding& b) { b.incarnation = 8; });
  add([](SumBinding& b) { b.epoch = 10; });
  add([](SumBinding& b) { std::swap(b.incarnation, b.epoch); });
  EXPECT_EQ(seen.size(), 8u);
}

TEST(PageSumTest, IsBoundToTheEpochLast) {
  // Two contents that differ stay different under one binding, for many epochs: binding loses nothing.
  const SumBinding base = {.layer = 1, .logical_page = 1, .incarnation = 1};
  std::set<uint64_t> seen;
  for (uint64_t content = 0; content < 64; ++content) {
    for (uint64_t epoch = 0; epoch < 64; ++epoch) {
      SumBinding binding = base;
      binding.epoch = epoch;
      seen.insert(BindSum(content, binding));
    }
  }
  EXPECT_EQ(seen.size(), 64u * 64u);
}

}  // namespace
}  // namespace tandem::kvcache
