// Proves that a group of ranks is one rank to whoever calls it: for 1 to 8 ranks, any chunk size (smaller than the
// group, too), several sequences in a batch, either cache format and either placement of the pools, logits, hidden
// states and every byte of every rank's pool are those of one rank. Also that bytes are sent as docs/parallelism.md
// says, and that a rank that fails at any op ends the group with its name.
#include "model/rank_group.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "model/testing/edited_checkpoint.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

using kvcache::KvCacheDtype;

constexpr int kVocab = 1024;
constexpr int kPromptTokens = 130;  // three pages; index_topk is 16

// As many ranks as backends, on pools that begin as TestModel's.
class Ranks final {
 public:
  struct Options {
    int size = 2;
    KvPlacement kv_placement = KvPlacement::kCopied;
    KvCacheDtype kv_cache_dtype = KvCacheDtype::kFp8E4m3;
    int num_rows_max = 256;
    bool with_mtp = true;
    int num_threads = 1;  // of each rank
    RowSplit row_split = RowSplit::kInterleave;
    bool spreads_experts = false;
  };
  Ranks(const std::shared_ptr<const Checkpoint>& checkpoint, const Options& options,
        std::vector<std::unique_ptr<kernels::Backend>> backends = {})
      : backends_(std::move(backends)) {
    const TestModel::Options defaults;
    layout_ = {.num_layers = checkpoint->config().num_hidden_layers + (options.with_mtp ? 1 : 0),
               .num_pages = defaults.num_pages,
               .kv_cache_dtype = options.kv_cache_dtype};
    pool_.assign(layout_.pool_bytes(), 0xA5);
    std::vector<kernels::Backend*> of_ranks;
    for (int rank = 0; rank < options.size; ++rank) {
      if (rank == static_cast<int>(backends_.size())) {
        backends_.push_back(std::make_unique<kernels::CpuBackend>(options.num_threads));
      }
      of_ranks.push_back(backends_[rank].get());
    }
    auto group = RankGroup::Create(of_ranks, checkpoint, layout_, absl::MakeSpan(pool_),
                                   {.num_rows_max = options.num_rows_max,
                                    .num_positions_max = defaults.num_positions_max,
                                    .with_mtp = options.with_mtp,
                                    .row_split = options.row_split,
                                    .kv_placement = options.kv_placement,
                                    .spreads_experts = options.spreads_experts});
    EXPECT_TRUE(group.ok()) << group.status();
    group_ = *std::move(group);
    for (int rank = 0; rank < group_->size(); ++rank) std::ranges::fill(group_->pool(rank), 0xA5);
  }

  RankGroup& group() { return *group_; }
  const kvcache::KvLayout& layout() const { return layout_; }
  void ExpectEveryPoolIs(const std::vector<uint8_t>& expected) const {
    for (int rank = 0; rank < group_->size(); ++rank) {
      const absl::Span<uint8_t> pool = group_->pool(rank);
      EXPECT_TRUE(std::equal(pool.begin(), pool.end(), expected.begin(), expected.end())) << "rank " << rank;
    }
  }

 private:
  std::vector<std::unique_ptr<kernels::Backend>> backends_;
  kvcache::KvLayout layout_;
  std::vector<uint8_t> pool_;
  std::unique_ptr<RankGroup> group_;
};

// TestModel::Append for any executor.
template <typename Executor>
TestModel::Result Append(Executor& executor, TestSequence& sequence, absl::Span<const int32_t> tokens, int chunk_size) {
  TestModel::Result result;
  const int vocab = executor.vocab_size(), hidden = executor.hidden_size();
  result.logits.resize(tokens.size() * vocab);
  result.hidden.resize(tokens.size() * hidden);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk_size) {
    const int count = static_cast<int>(std::min<size_t>(chunk_size, tokens.size() - begin));
    const Segment segment{
        .row_begin = 0, .num_rows = count, .first_position = sequence.num_cached, .page_table = sequence.pages};
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    const absl::Status status = executor.ForwardWithHidden(
        {.tokens = tokens.subspan(begin, count), .segments = {&segment, 1}, .logits_rows = rows}, [](int) {},
        absl::MakeSpan(&result.logits[begin * vocab], count * vocab),
        absl::MakeSpan(&result.hidden[begin * hidden], count * hidden));
    EXPECT_TRUE(status.ok()) << status;
    sequence.num_cached += count;
  }
  return result;
}

class RankGroupTest : public ::testing::Test {
 protected:
  const std::shared_ptr<const Checkpoint> checkpoint_ = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int32_t> tokens_ = GoldenTokens(kPromptTokens, kVocab);
};

TEST_F(RankGroupTest, GivesTheBitsOfOneRankForEveryNumberOfRanksAndChunkSize) {
  for (const KvCacheDtype kv_cache_dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    TestModel one(checkpoint_, {.kv_cache_dtype = kv_cache_dtype});
    const TestSequence begin = one.NewSequence(kPromptTokens);
    TestSequence of_one = begin;
    const TestModel::Result expected = Append(one.model(), of_one, tokens_, kPromptTokens);
    for (const KvPlacement kv_placement : {KvPlacement::kCopied, KvPlacement::kShared}) {
      for (const int size : {1, 2, 4, 8}) {
        for (const int chunk_size : {3, 64, 129}) {
          if (chunk_size == 3 && (kv_cache_dtype == KvCacheDtype::kBfloat16 || size == 2)) continue;  // takes long
          Ranks ranks(checkpoint_, {.size = size, .kv_placement = kv_placement, .kv_cache_dtype = kv_cache_dtype});
          TestSequence sequence = begin;
          const TestModel::Result result = Append(ranks.group(), sequence, tokens_, chunk_size);
          EXPECT_EQ(result.logits, expected.logits) << size << " ranks, chunks of " << chunk_size;
          EXPECT_TRUE(result.hidden == expected.hidden) << size << " ranks, chunks of " << chunk_size;
          ranks.ExpectEveryPoolIs(one.pool());
        }
      }
    }
  }
}

TEST_F(RankGroupTest, GivesTheBitsOfOneRankWhateverSharesABatch) {
  const int lengths[] = {100, 70, 33};
  const Ranks::Options layouts[] = {
      {.size = 2, .num_threads = 2},
      {.size = 8},
      {.size = 3, .spreads_experts = true},
      {.size = 8, .kv_placement = KvPlacement::kShared, .spreads_experts = true},
      {.size = 2, .kv_placement = KvPlacement::kShared, .row_split = RowSplit::kBySequence},
      {.size = 4, .kv_placement = KvPlacement::kShared, .row_split = RowSplit::kBySequence, .spreads_experts = true},
      {.size = 3, .row_split = RowSplit::kBySequence, .spreads_experts = true},
      {.size = 2, .row_split = RowSplit::kAllRows},
      {.size = 2, .row_split = RowSplit::kAllRows, .spreads_experts = true},
  };
  for (const Ranks::Options& layout : layouts) {
    const int size = layout.size;
    SCOPED_TRACE(absl::StrCat(size, " ranks, split ", static_cast<int>(layout.row_split), ", experts spread ",
                              layout.spreads_experts));
    TestModel one(checkpoint_, {});
    Ranks ranks(checkpoint_, layout);
    std::vector<TestSequence> sequences;
    std::vector<std::vector<int32_t>> prompts;
    for (const int length : lengths) {
      prompts.push_back(GoldenTokens(length, kVocab));
      sequences.push_back(one.NewSequence(length));
    }
    std::mt19937 random(size);
    int num_small = 0, num_mixed = 0;
    for (bool is_done = false; !is_done;) {
      is_done = true;
      std::vector<int32_t> tokens, logits_rows;
      std::vector<Segment> segments;
      for (size_t s = 0; s < sequences.size(); ++s) {
        const int left = lengths[s] - static_cast<int>(sequences[s].num_cached);
        const int count = std::min<int>(left, random() % 3 == 0 ? random() % 3 : random() % 40);
        if (left > 0) is_done = false;
        if (count == 0) continue;
        segments.push_back({.row_begin = static_cast<int>(tokens.size()),
                            .num_rows = count,
                            .first_position = sequences[s].num_cached,
                            .page_table = sequences[s].pages});
        const auto first = prompts[s].begin() + sequences[s].num_cached;
        tokens.insert(tokens.end(), first, first + count);
        sequences[s].num_cached += count;
      }
      for (size_t row = 0; row < tokens.size(); ++row) {
        if (random() % 2 == 0) logits_rows.push_back(static_cast<int32_t>(row));
      }
      num_small += !tokens.empty() && static_cast<int>(tokens.size()) < size;
      num_mixed += segments.size() > 1;
      const RowBatch batch{.tokens = tokens, .segments = segments, .logits_rows = logits_rows};
      std::vector<float> expected(logits_rows.size() * kVocab), logits(expected.size());
      ASSERT_TRUE(one.model()
                      .Forward(
                          batch, [](int) {}, absl::MakeSpan(expected))
                      .ok());
      ASSERT_TRUE(ranks.group()
                      .Forward(
                          batch, [](int) {}, absl::MakeSpan(logits))
                      .ok());
      EXPECT_EQ(logits, expected) << tokens.size() << " rows";
    }
    EXPECT_GE(num_small + num_mixed, 3);
    ranks.ExpectEveryPoolIs(one.pool());
  }
}

TEST_F(RankGroupTest, MtpGivesTheBitsOfOneRank) {
  TestModel one(checkpoint_, {});
  const TestSequence begin = one.NewSequence(kPromptTokens);
  TestSequence of_one = begin;
  const TestModel::Result main = Append(one.model(), of_one, tokens_, kPromptTokens);
  std::vector<int32_t> next(tokens_.begin() + 1, tokens_.end());
  next.push_back(7);
  const TestModel::Result expected = one.RunMtp(of_one, next, main.hidden, kPromptTokens);
  for (const int size : {2, 8}) {
    Ranks ranks(checkpoint_, {.size = size});
    TestSequence sequence = begin;
    const TestModel::Result result = Append(ranks.group(), sequence, tokens_, 64);
    const int chunk_size = 77, width = ranks.group().hidden_size();
    for (int at = 0; at < kPromptTokens; at += chunk_size) {
      const int count = std::min(chunk_size, kPromptTokens - at);
      const Segment segment{.row_begin = 0, .num_rows = count, .first_position = at, .page_table = sequence.pages};
      const std::vector<int32_t> last = {count - 1};
      std::vector<float> logits(kVocab);
      std::vector<kernels::Bf16> hidden(width);
      ASSERT_TRUE(ranks.group()
                      .RunMtp(
                          {.tokens = absl::MakeConstSpan(next).subspan(at, count),
                           .segments = {&segment, 1},
                           .logits_rows = last},
                          absl::MakeConstSpan(result.hidden).subspan(at * width, count * width), [](int) {},
                          absl::MakeSpan(logits), absl::MakeSpan(hidden))
                      .ok());
      const int row = at + count - 1;
      EXPECT_TRUE(std::equal(logits.begin(), logits.end(), &expected.logits[row * kVocab])) << "position " << row;
      EXPECT_TRUE(std::equal(hidden.begin(), hidden.end(), &expected.hidden[row * width])) << "position " << row;
    }
    ranks.ExpectEveryPoolIs(one.pool());
  }
}

TEST_F(RankGroupTest, CallsLayerDoneInOrderOnTheCallersThreadWithAllRanksRecordsInTheCallersPool) {
  TestModel one(checkpoint_, {});
  TestSequence sequence = one.NewSequence(100);
  const Segment segment{.row_begin = 0, .num_rows = 100, .first_position = 0, .page_table = sequence.pages};
  const RowBatch batch{.tokens = absl::MakeConstSpan(tokens_).first(100), .segments = {&segment, 1}};
  ASSERT_TRUE(one.model().Forward(batch, [](int) {}, {}).ok());
  for (const KvPlacement kv_placement : {KvPlacement::kCopied, KvPlacement::kShared}) {
    Ranks ranks(checkpoint_, {.size = 4, .kv_placement = kv_placement});
    const int64_t layer_bytes = ranks.layout().layer_bytes();
    const std::thread::id caller = std::this_thread::get_id();
    int num_done = 0;
    ASSERT_TRUE(ranks.group()
                    .Forward(batch,
                             [&](int layer) {
                               EXPECT_EQ(std::this_thread::get_id(), caller);
                               ASSERT_EQ(layer, num_done++);
                               const auto pool = ranks.group().pool(0).subspan(layer * layer_bytes, layer_bytes);
                               EXPECT_TRUE(std::equal(pool.begin(), pool.end(), &one.pool()[layer * layer_bytes]));
                             },
                             {})
                    .ok());
    EXPECT_EQ(num_done, 2);
  }
}

TEST_F(RankGroupTest, ARefusedBatchTouchesNothingAndTheGroupGoesOn) {
  TestModel one(checkpoint_, {});
  Ranks ranks(checkpoint_, {.size = 4, .num_rows_max = 8});
  TestSequence sequence = one.NewSequence(64);
  const std::vector<uint8_t> untouched = one.pool();
  Segment segment{.row_begin = 0, .num_rows = 9, .first_position = 0, .page_table = sequence.pages};
  const auto forward = [&](absl::Span<const int32_t> tokens, size_t num_logits) {
    std::vector<float> logits(num_logits);
    const std::vector<int32_t> rows(num_logits > 0 ? 1 : 0);
    return ranks.group().Forward(
        {.tokens = tokens, .segments = {&segment, 1}, .logits_rows = rows}, [](int) {}, absl::MakeSpan(logits));
  };
  EXPECT_EQ(forward(absl::MakeConstSpan(tokens_).first(9), 0), absl::InvalidArgumentError("batch of 9 rows, limit 8"));
  segment.num_rows = 1;
  EXPECT_EQ(forward({1}, kVocab - 1), absl::InvalidArgumentError("logits of 1023 values, the batch takes 1024"));
  EXPECT_EQ(forward({kVocab}, 0).code(), absl::StatusCode::kInvalidArgument);
  ranks.ExpectEveryPoolIs(untouched);
  EXPECT_TRUE(ranks.group().status().ok());
  EXPECT_TRUE(forward({1}, kVocab).ok());
  EXPECT_TRUE(ranks.group().Forward({}, [](int) {}, {}).ok()) << "an empty batch does nothing";
}

TEST_F(RankGroupTest, PagesThatOthersWroteAreSeenByEveryRank) {
  TestModel one(checkpoint_, {});
  const TestSequence begin = one.NewSequence(kPromptTokens);
  TestSequence of_one = begin;
  Append(one.model(), of_one, absl::MakeConstSpan(tokens_).first(100), 100);
  Ranks ranks(checkpoint_, {.size = 4});
  std::ranges::copy(one.pool(), ranks.group().pool(0).begin());
  ASSERT_TRUE(ranks.group().PagesArrived(begin.pages).ok());
  TestSequence sequence = of_one;
  const absl::Span<const int32_t> rest = absl::MakeConstSpan(tokens_).subspan(100);
  EXPECT_EQ(Append(ranks.group(), sequence, rest, 20).logits, Append(one.model(), of_one, rest, 50).logits);
  ranks.ExpectEveryPoolIs(one.pool());
  EXPECT_EQ(ranks.group().PagesArrived({24}).message(), "page 24 arrived, the pool has 24");
}

// docs/parallelism.md: a token's records go from its rank to every other one, at each layer.
TEST_F(RankGroupTest, SendsTheBytesThatTheFormulaSays) {
  for (const KvCacheDtype kv_cache_dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    for (const int size : {1, 2, 4, 8}) {
      const int64_t record_bytes = kv_cache_dtype == KvCacheDtype::kFp8E4m3 ? 656 + 132 : 1152 + 132;
      TestModel one(checkpoint_, {});
      TestSequence sequence = one.NewSequence(kPromptTokens);
      Ranks ranks(checkpoint_, {.size = size, .kv_cache_dtype = kv_cache_dtype, .with_mtp = false});
      Append(ranks.group(), sequence, tokens_, 64);
      Ranks sharing(checkpoint_, {.size = size, .kv_placement = KvPlacement::kShared, .with_mtp = false});
      TestSequence again{.pages = sequence.pages};
      Append(sharing.group(), again, tokens_, 64);
      int64_t sent = 0;
      for (int rank = 0; rank < size; ++rank) {
        sent += ranks.group().communicator(rank).counters(Collective::kAllGather).bytes_sent;
        const int num_calls = size == 1 ? 0 : 3 * 2;  // batches, layers
        EXPECT_EQ(ranks.group().communicator(rank).counters(Collective::kAllGather).num_calls, num_calls);
        EXPECT_EQ(sharing.group().communicator(rank).counters(Collective::kAllGather).num_calls, 0);
        EXPECT_EQ(sharing.group().communicator(rank).counters(Collective::kBarrier).num_calls, num_calls);
      }
      EXPECT_EQ(sent, int64_t{kPromptTokens} * 2 * (size - 1) * record_bytes) << size << " ranks";
    }
  }
}

// The rows' hidden states and the experts' results, singly, are what must be equal; BF16 experts take rows in another
// form.
TEST_F(RankGroupTest, SpreadExpertsGiveTheBitsOfOneRankInEveryFormOfWeights) {
  bool (*const stored_as_bf16[])(absl::string_view) = {
      [](absl::string_view) { return false; },
      [](absl::string_view name) { return absl::StrContains(name, ".experts."); },
      [](absl::string_view name) { return absl::StrContains(name, "experts.") && absl::StrContains(name, "up_proj"); },
      [](absl::string_view) { return true; },
  };
  for (const auto& is_bf16 : stored_as_bf16) {
    const auto checkpoint = MakeEditedCheckpoint([&](std::vector<OwnTensor>& tensors) {
      std::vector<std::string> names;
      for (const OwnTensor& own : tensors) {
        if (own.tensor.dtype == DType::kF8E4m3 && is_bf16(own.tensor.name)) names.push_back(own.tensor.name);
      }
      for (const std::string& name : names) StoreAsBf16(tensors, name);
    });
    TestModel one(checkpoint, {});
    const TestSequence begin = one.NewSequence(kPromptTokens);
    TestSequence of_one = begin;
    const TestModel::Result expected = Append(one.model(), of_one, tokens_, kPromptTokens);
    for (const Ranks::Options& layout :
         {Ranks::Options{.size = 2, .spreads_experts = true}, Ranks::Options{.size = 8, .spreads_experts = true},
          Ranks::Options{.size = 2, .row_split = RowSplit::kAllRows},
          Ranks::Options{.size = 2, .row_split = RowSplit::kAllRows, .spreads_experts = true}}) {
      const int size = layout.size;
      Ranks ranks(checkpoint, layout);
      TestSequence sequence = begin;
      const TestModel::Result result = Append(ranks.group(), sequence, tokens_, 50);
      EXPECT_EQ(result.logits, expected.logits) << size << " ranks";
      EXPECT_TRUE(result.hidden == expected.hidden) << size << " ranks";
      ranks.ExpectEveryPoolIs(one.pool());
    }
  }
}

// docs/parallelism.md, from the experts that one rank alone has chosen for each token.
TEST_F(RankGroupTest, RowsToExpertsTakeTheBytesThatTheFormulaSays) {
  std::map<std::string, std::vector<int32_t>> chosen;
  TestModel one(checkpoint_, {.with_mtp = false, .tap = [&](const Tensor& tensor) {
                                if (!absl::EndsWith(tensor.name, "router_ids")) return;
                                const auto* ids = reinterpret_cast<const int32_t*>(tensor.bytes.data());
                                chosen[tensor.name].assign(ids, ids + tensor.bytes.size() / sizeof(int32_t));
                              }});
  TestSequence of_one = one.NewSequence(kPromptTokens);
  const TestSequence begin = of_one;
  Append(one.model(), of_one, tokens_, kPromptTokens);
  ASSERT_FALSE(chosen.empty());
  const ModelConfig& config = checkpoint_->config();
  const int top_k = config.num_experts_per_tok;
  for (const int size : {2, 3, 8}) {
    Ranks ranks(checkpoint_, {.size = size, .with_mtp = false, .spreads_experts = true});
    TestSequence sequence = begin;
    Append(ranks.group(), sequence, tokens_, kPromptTokens);
    const auto rank_of = [&](int32_t expert) {
      int rank = 0;
      while (ShareOf(config.n_routed_experts, rank, size).begin + ShareOf(config.n_routed_experts, rank, size).count <=
             expert)
        ++rank;
      return rank;
    };
    int64_t num_rows_sent = 0, num_pairs_sent = 0, num_pairs = 0;
    for (const auto& [layer, ids] : chosen) {
      ASSERT_EQ(static_cast<int>(ids.size()), kPromptTokens * top_k);
      for (int token = 0; token < kPromptTokens; ++token) {
        std::set<int> others;
        for (int j = 0; j < top_k; ++j) {
          ++num_pairs;
          const int rank = rank_of(ids[token * top_k + j]);
          if (rank == token % size) continue;
          others.insert(rank);
          ++num_pairs_sent;
        }
        num_rows_sent += static_cast<int64_t>(others.size());
      }
    }
    const int64_t hidden = config.hidden_size;
    const auto num_layers = static_cast<int64_t>(chosen.size());
    const int64_t expected = num_rows_sent * (hidden + hidden / 128 * 4) + num_pairs_sent * (8 + 2 * hidden) +
                             num_layers * size * (size - 1) * 8;
    int64_t sent = 0, computed = 0;
    for (int rank = 0; rank < size; ++rank) {
      sent += ranks.group().communicator(rank).counters(Collective::kAllToAll).bytes_sent;
      computed += ranks.group().num_expert_pairs(rank);
    }
    EXPECT_EQ(sent, expected) << size << " ranks";
    EXPECT_EQ(computed, num_pairs) << "no row is dropped or done twice";
  }
}

// docs/parallelism.md: a row's columns go from the rank that has them to every other one.
TEST_F(RankGroupTest, ColumnsTakeTheBytesThatTheFormulaSays) {
  const ModelConfig& config = checkpoint_->config();
  TestModel one(checkpoint_, {});
  TestSequence sequence = one.NewSequence(kPromptTokens);
  Ranks ranks(checkpoint_, {.size = 2, .with_mtp = false, .row_split = RowSplit::kAllRows});
  Append(ranks.group(), sequence, tokens_, 64);
  const auto quantized = [](int64_t dim) { return dim + dim / 128 * 4; };
  const int64_t attention = quantized(int64_t{config.num_attention_heads} * config.v_head_dim) + 2 * config.hidden_size;
  const int64_t dense = quantized(config.intermediate_size) + 2 * config.hidden_size;
  const int64_t shared =
      quantized(int64_t{config.n_shared_experts} * config.moe_intermediate_size) + 2 * config.hidden_size;
  const int64_t num_dense = config.first_k_dense_replace, num_moe = config.num_hidden_layers - num_dense;
  int64_t sent = 0;
  for (int rank = 0; rank < 2; ++rank)
    sent += ranks.group().communicator(rank).counters(Collective::kAllGather).bytes_sent;
  EXPECT_EQ(sent, kPromptTokens * ((num_dense + num_moe) * attention + num_dense * dense + num_moe * shared));
}

TEST_F(RankGroupTest, LayersThatCannotBeCutAreRefusedNamingTheTensor) {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  std::vector<kernels::Backend*> of_ranks;
  for (int rank = 0; rank < 3; ++rank) {
    backends.push_back(std::make_unique<kernels::CpuBackend>(1));
    of_ranks.push_back(backends.back().get());
  }
  const kvcache::KvLayout layout{.num_layers = 2, .num_pages = 1};
  std::vector<uint8_t> pool(layout.pool_bytes());
  const auto group = RankGroup::Create(of_ranks, checkpoint_, layout, absl::MakeSpan(pool),
                                       {.num_rows_max = 16, .num_positions_max = 64, .row_split = RowSplit::kAllRows});
  EXPECT_EQ(group.status(), absl::InvalidArgumentError(
                                "q_b_proj of 4 heads of 192 rows cannot be cut for 3 ranks: 2 heads stay together, "
                                "since 128 rows share a scale"));
}

TEST_F(RankGroupTest, MoreRanksThanExpertsAreRefused) {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  std::vector<kernels::Backend*> of_ranks;
  for (int rank = 0; rank < 9; ++rank) {
    backends.push_back(std::make_unique<kernels::CpuBackend>(1));
    of_ranks.push_back(backends.back().get());
  }
  const kvcache::KvLayout layout{.num_layers = 2, .num_pages = 1};
  std::vector<uint8_t> pool(layout.pool_bytes());
  const auto group = RankGroup::Create(of_ranks, checkpoint_, layout, absl::MakeSpan(pool),
                                       {.num_rows_max = 16, .num_positions_max = 64, .spreads_experts = true});
  EXPECT_EQ(group.status(), absl::InvalidArgumentError("experts spread over 9 ranks: n_routed_experts is 8"));
}

// The host, but its n-th op of a few kinds, from all over a layer, fails.
class FailingBackend final : public kernels::CpuBackend {
 public:
  explicit FailingBackend(int num_ops_left) : CpuBackend(1), num_ops_left_(num_ops_left) {}
  absl::Status GatherRows(const kernels::GatherRowsArgs& a) override {
    return Or([&] { return CpuBackend::GatherRows(a); });
  }
  absl::Status AddRmsNorm(const kernels::AddRmsNormArgs& a) override {
    return Or([&] { return CpuBackend::AddRmsNorm(a); });
  }
  absl::Status WriteLatent(const kernels::WriteLatentArgs& a) override {
    return Or([&] { return CpuBackend::WriteLatent(a); });
  }
  absl::Status SparseMla(const kernels::SparseMlaArgs& a) override {
    return Or([&] { return CpuBackend::SparseMla(a); });
  }
  absl::Status SwiGlu(const kernels::SwiGluArgs& a) override {
    return Or([&] { return CpuBackend::SwiGlu(a); });
  }

 private:
  template <typename Op>
  absl::Status Or(const Op& op) {
    if (num_ops_left_-- == 0) return absl::DataLossError("its memory is gone");
    return op();
  }
  int num_ops_left_;
};

TEST_F(RankGroupTest, ARankThatFailsAtAnyOpEndsTheGroupWithItsName) {
  TestModel one(checkpoint_, {});
  TestSequence sequence = one.NewSequence(64);
  const Segment segment{.row_begin = 0, .num_rows = 10, .first_position = 0, .page_table = sequence.pages};
  const std::vector<int32_t> last = {9};
  const RowBatch batch{
      .tokens = absl::MakeConstSpan(tokens_).first(10), .segments = {&segment, 1}, .logits_rows = last};
  std::vector<float> logits(kVocab);
  for (int failing = 0; failing < 3; ++failing) {
    int num_ops = 0;
    for (;; ++num_ops) {
      std::vector<std::unique_ptr<kernels::Backend>> backends;
      for (int rank = 0; rank < 3; ++rank) {
        backends.push_back(std::make_unique<FailingBackend>(rank == failing ? num_ops : 1 << 30));
      }
      Ranks ranks(checkpoint_, {.size = 3, .spreads_experts = true}, std::move(backends));
      const absl::Status status = ranks.group().Forward(
          batch, [](int) {}, absl::MakeSpan(logits));
      if (status.ok()) break;
      const absl::Status expected = absl::DataLossError(absl::StrCat("rank ", failing, " failed: its memory is gone"));
      EXPECT_EQ(status, expected);
      EXPECT_EQ(ranks.group().status(), expected);
      EXPECT_EQ(ranks.group().Forward(
                    batch, [](int) {}, absl::MakeSpan(logits)),
                expected)
          << "nothing brings it back";
    }
    EXPECT_GE(num_ops, 12) << "of two layers";
  }
}

TEST_F(RankGroupTest, DescribesWhatEachRankHasSent) {
  TestModel one(checkpoint_, {});
  TestSequence sequence = one.NewSequence(64);
  Ranks ranks(checkpoint_, {.size = 2});
  Append(ranks.group(), sequence, absl::MakeConstSpan(tokens_).first(3), 3);
  const std::string text = ranks.group().Describe();
  EXPECT_NE(text.find(absl::StrCat("\n0 all_gather 2 ", 2 * 2 * 788, " ")), std::string::npos) << text;
  EXPECT_NE(text.find(absl::StrCat("\n1 all_gather 2 ", 1 * 2 * 788, " ")), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::model
