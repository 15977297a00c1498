// Proves, on the trained checkpoint, that every layout of ranks gives the tokens of one rank: three prompts, computed
// together in chunks, and 64 greedy steps of all three.
#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "model/rank_group.h"
#include "model/testing/golden_model.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

constexpr int kSteps = 64;
constexpr int kPromptTokens[] = {190, 77, 30};  // index_topk is 128
constexpr int kChunk = 96;

struct Layout {
  std::string name;
  int size = 1;
  RowSplit row_split = RowSplit::kInterleave;
  KvPlacement kv_placement = KvPlacement::kCopied;
  bool spreads_experts = false;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// The tokens of every sequence, in turn.
std::vector<int32_t> Generate(ModelExecutor& executor, const kvcache::KvLayout& layout) {
  struct Sequence {
    std::vector<int32_t> tokens, pages;
    int64_t num_cached = 0;
    size_t num_prompt_tokens = 0;
  };
  std::vector<Sequence> sequences;
  int32_t next_page = static_cast<int32_t>(layout.num_pages);
  for (const int length : kPromptTokens) {
    Sequence sequence{.tokens = GoldenTokens(length, executor.vocab_size())};
    sequence.num_prompt_tokens = sequence.tokens.size();
    for (int i = 0; i < kvcache::PagesForTokens(length + kSteps); ++i) sequence.pages.push_back(--next_page);
    sequences.push_back(std::move(sequence));
  }
  std::vector<int32_t> generated;
  while (generated.size() < std::size(kPromptTokens) * kSteps) {
    std::vector<int32_t> tokens, logits_rows;
    std::vector<Segment> segments;
    std::vector<Sequence*> drawing;
    for (Sequence& sequence : sequences) {
      if (sequence.tokens.size() == sequence.num_prompt_tokens + kSteps) continue;
      const int64_t left = static_cast<int64_t>(sequence.tokens.size()) - sequence.num_cached;
      const int count = static_cast<int>(std::min<int64_t>(left, kChunk - static_cast<int64_t>(tokens.size())));
      if (count == 0) continue;
      segments.push_back({.row_begin = static_cast<int>(tokens.size()),
                          .num_rows = count,
                          .first_position = sequence.num_cached,
                          .page_table = sequence.pages});
      const auto first = sequence.tokens.begin() + sequence.num_cached;
      tokens.insert(tokens.end(), first, first + count);
      sequence.num_cached += count;
      if (count < left) continue;
      logits_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      drawing.push_back(&sequence);
    }
    const int vocab = executor.vocab_size();
    std::vector<float> logits(logits_rows.size() * vocab);
    const absl::Status status = executor.Forward(
        {.tokens = tokens, .segments = segments, .logits_rows = logits_rows}, [](int) {}, absl::MakeSpan(logits));
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) break;
    for (size_t i = 0; i < drawing.size(); ++i) {
      const auto row = logits.begin() + static_cast<int64_t>(i) * vocab;
      drawing[i]->tokens.push_back(static_cast<int32_t>(std::max_element(row, row + vocab) - row));
      generated.push_back(drawing[i]->tokens.back());
    }
  }
  return generated;
}

class RankLayoutsTest : public ::testing::TestWithParam<Layout> {};

TEST_P(RankLayoutsTest, GivesTheTokensAndRecordsOfOneRank) {
  const Layout& ranks = GetParam();
  const auto checkpoint = OpenGoldenCheckpoint("tandem-tiny");
  const kvcache::KvLayout layout{.num_layers = checkpoint->config().num_hidden_layers, .num_pages = 12};
  const DeepseekModelOptions options{.num_rows_max = kChunk, .num_positions_max = 512};

  kernels::CpuBackend backend(1);
  std::vector<uint8_t> pool_of_one(layout.pool_bytes()), pool(layout.pool_bytes());
  const auto one = DeepseekModel::Create(backend, checkpoint, layout, absl::MakeSpan(pool_of_one), options);
  ASSERT_TRUE(one.ok()) << one.status();

  std::vector<std::unique_ptr<kernels::Backend>> backends;
  std::vector<kernels::Backend*> of_ranks;
  for (int rank = 0; rank < ranks.size; ++rank) {
    backends.push_back(std::make_unique<kernels::CpuBackend>(1));
    of_ranks.push_back(backends.back().get());
  }
  DeepseekModelOptions of_group = options;
  of_group.row_split = ranks.row_split;
  of_group.kv_placement = ranks.kv_placement;
  of_group.spreads_experts = ranks.spreads_experts;
  const auto group = RankGroup::Create(of_ranks, checkpoint, layout, absl::MakeSpan(pool), of_group);
  ASSERT_TRUE(group.ok()) << group.status();

  const std::vector<int32_t> expected = Generate(**one, layout);
  ASSERT_EQ(expected.size(), std::size(kPromptTokens) * kSteps);
  EXPECT_EQ(Generate(**group, layout), expected);
  EXPECT_TRUE(pool == pool_of_one);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RankLayoutsTest,
    ::testing::Values(
        Layout{.name = "cp2", .size = 2}, Layout{.name = "cp4_ep4", .size = 4, .spreads_experts = true},
        Layout{.name = "cp8_shared", .size = 8, .kv_placement = KvPlacement::kShared},
        Layout{.name = "tp2", .size = 2, .row_split = RowSplit::kAllRows},
        Layout{.name = "tp4", .size = 4, .row_split = RowSplit::kAllRows},
        Layout{.name = "tp4_ep4", .size = 4, .row_split = RowSplit::kAllRows, .spreads_experts = true},
        Layout{.name = "dp2", .size = 2, .row_split = RowSplit::kBySequence, .kv_placement = KvPlacement::kShared},
        Layout{.name = "dp4_ep4",
               .size = 4,
               .row_split = RowSplit::kBySequence,
               .kv_placement = KvPlacement::kShared,
               .spreads_experts = true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::model
