// Proves that the hash model is a fit witness: independent of chunking, batch and page placement, and changed by any
// single byte of any record that it may read.
#include "tests/sim/hash_model.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"
#include "kvcache/kv_pool.h"

namespace tandem::sim {
namespace {

using kvcache::KvLayout;
using kvcache::RecordKind;

constexpr KvLayout kLayout{.num_layers = 2, .num_pages = 6};
constexpr int kVocab = 50;

struct Memory {
  Memory() : storage(kLayout.pool_bytes() + kvcache::kPoolAlignment) {
    void* base = storage.data();
    size_t room = storage.size();
    std::align(kvcache::kPoolAlignment, kLayout.pool_bytes(), base, room);
    bytes = {static_cast<std::byte*>(base), static_cast<size_t>(kLayout.pool_bytes())};
  }
  kvcache::KvPool pool() const { return *kvcache::KvPool::Over(bytes, kLayout); }

  std::vector<std::byte> storage;
  std::span<std::byte> bytes;
};

std::vector<int32_t> RandomTokens(int count) {
  std::mt19937 rng(17);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % kVocab);
  return tokens;
}

// Logits of the last token, the prompt cut into the given chunks.
std::vector<float> LogitsAfter(HashModel& model, const std::vector<int32_t>& tokens,
                               const std::vector<int32_t>& page_table, const std::vector<int>& chunks) {
  std::vector<float> logits(kVocab);
  int64_t position = 0;
  for (const int chunk : chunks) {
    const model::Segment segment{
        .row_begin = 0, .num_rows = chunk, .first_position = position, .page_table = page_table};
    const int32_t last_row = chunk - 1;
    EXPECT_TRUE(model
                    .Forward(
                        {.tokens = absl::MakeSpan(tokens).subspan(position, chunk),
                         .segments = {&segment, 1},
                         .logits_rows = {&last_row, 1}},
                        [](int) {}, absl::MakeSpan(logits))
                    .ok());
    position += chunk;
  }
  EXPECT_EQ(position, static_cast<int64_t>(tokens.size()));
  return logits;
}

TEST(HashModelTest, ChunksAndPagePlacementDoNotChangeTheLogits) {
  Memory memory;
  HashModel model(memory.pool(), {.vocab_size = kVocab, .weights_seed = 1});
  const auto tokens = RandomTokens(150);
  const auto whole = LogitsAfter(model, tokens, {0, 1, 2}, {150});
  EXPECT_EQ(LogitsAfter(model, tokens, {5, 3, 4}, {1, 62, 1, 64, 22}), whole);
  HashModel other(memory.pool(), {.vocab_size = kVocab, .weights_seed = 2});
  EXPECT_NE(LogitsAfter(other, tokens, {0, 1, 2}, {150}), whole);
}

TEST(HashModelTest, ABatchOfTwoGivesEachItsOwnLogits) {
  Memory memory;
  HashModel model(memory.pool(), {.vocab_size = kVocab, .weights_seed = 1});
  const auto tokens = RandomTokens(70);
  const auto alone = LogitsAfter(model, tokens, {0, 1}, {70});
  std::vector<int32_t> both = {7, 8, 9};
  both.insert(both.end(), tokens.begin(), tokens.end());
  const std::vector<int32_t> table_a = {2}, table_b = {3, 4};
  const std::vector<model::Segment> segments = {{0, 3, 0, table_a}, {3, 70, 0, table_b}};
  const std::vector<int32_t> rows = {2, 72};
  std::vector<float> logits(2 * kVocab);
  ASSERT_TRUE(model
                  .Forward(
                      {both, segments, rows}, [](int) {}, absl::MakeSpan(logits))
                  .ok());
  EXPECT_EQ(std::vector<float>(logits.begin() + kVocab, logits.end()), alone);
}

TEST(HashModelTest, AnyByteOfAnyRecordItReadsChangesTheLogits) {
  Memory memory;
  HashModel model(memory.pool(), {.vocab_size = kVocab, .weights_seed = 1});
  const auto tokens = RandomTokens(100);
  LogitsAfter(model, {tokens.begin(), tokens.end() - 1}, {0, 1}, {99});
  const auto next = [&] {
    const std::vector<int32_t> table = {0, 1};
    const model::Segment segment{.row_begin = 0, .num_rows = 1, .first_position = 99, .page_table = table};
    const int32_t row = 0;
    std::vector<float> logits(kVocab);
    EXPECT_TRUE(model
                    .Forward(
                        {.tokens = {&tokens.back(), 1}, .segments = {&segment, 1}, .logits_rows = {&row, 1}},
                        [](int) {}, absl::MakeSpan(logits))
                    .ok());
    return logits;
  };
  const auto clean = next();
  std::mt19937 rng(23);
  for (int round = 0; round < 400; ++round) {
    const int position = static_cast<int>(rng() % 99), layer = static_cast<int>(rng() % 2);
    const int page = position / 64, slot = position % 64;
    std::byte* target;
    if (rng() % 2 == 0) {
      target = memory.pool().Page(RecordKind::kLatent, layer, page).data() + slot * 656 + rng() % 656;
    } else if (rng() % 2 == 0) {
      target = memory.pool().Page(RecordKind::kIndex, layer, page).data() + slot * 128 + rng() % 128;
    } else {
      target = memory.pool().Page(RecordKind::kIndex, layer, page).data() + 64 * 128 + slot * 4 + rng() % 4;
    }
    const std::byte flip{static_cast<uint8_t>(1 << (rng() % 8))};
    *target ^= flip;
    EXPECT_NE(next(), clean);
    *target ^= flip;
  }
  EXPECT_EQ(next(), clean);
}

TEST(HashModelTest, RefusesWhatWouldReadOutsideItsPages) {
  Memory memory;
  HashModel model(memory.pool(), {.vocab_size = kVocab, .weights_seed = 1});
  const std::vector<int32_t> table = {0}, bad_table = {6}, tokens = {1}, bad_tokens = {kVocab};
  const auto run = [&](const std::vector<int32_t>& t, const std::vector<int32_t>& pages, int64_t position) {
    const model::Segment segment{.row_begin = 0, .num_rows = 1, .first_position = position, .page_table = pages};
    return model.Forward({.tokens = t, .segments = {&segment, 1}, .logits_rows = {}}, [](int) {}, {}).code();
  };
  EXPECT_EQ(run(tokens, table, 63), absl::StatusCode::kOk);
  EXPECT_EQ(run(tokens, table, 64), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(run(tokens, bad_table, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(run(bad_tokens, table, 0), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::sim
