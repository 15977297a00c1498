// Proves, on the host, what the model does where ops' memory is not the caller's (kernels/detached_backend.h): the same
// bits as on the host itself, through chunks, the MTP layer and the tap; records reach the caller's pool before their
// layer_done and nothing else of their pages does; pages that arrived are read; no room is told with what it was for.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/detached_backend.h"
#include "model/deepseek_model.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

using kernels::DetachedBackend;

constexpr int kVocab = 1024;
constexpr int kPromptTokens = 200;

class DetachedMemoryTest : public ::testing::Test {
 protected:
  const std::shared_ptr<const Checkpoint> checkpoint_ = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int32_t> tokens_ = GoldenTokens(kPromptTokens, kVocab);
  DetachedBackend detached_;
};

TEST_F(DetachedMemoryTest, GivesTheHostsBitsAndRecords) {
  std::map<std::string, std::vector<uint8_t>> stages[2];
  const auto tap_into = [](std::map<std::string, std::vector<uint8_t>>& into) {
    return [&into](const Tensor& tensor) {
      std::vector<uint8_t>& bytes = into[tensor.name];
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    };
  };
  TestModel host(checkpoint_, {.tap = tap_into(stages[0])});
  TestModel detached(checkpoint_, {.page_order_seed = 5, .tap = tap_into(stages[1]), .backend = &detached_});
  TestSequence host_sequence = host.NewSequence(kPromptTokens);
  TestSequence detached_sequence = detached.NewSequence(kPromptTokens);
  const TestModel::Result expected = host.Append(host_sequence, tokens_, 77);
  const TestModel::Result result = detached.Append(detached_sequence, tokens_, 77);
  EXPECT_EQ(result.logits, expected.logits);
  EXPECT_TRUE(result.hidden == expected.hidden);
  std::vector<int32_t> next(tokens_.begin() + 1, tokens_.end());
  next.push_back(7);
  const TestModel::Result expected_mtp = host.RunMtp(host_sequence, next, expected.hidden, 64);
  const TestModel::Result mtp = detached.RunMtp(detached_sequence, next, result.hidden, 64);
  EXPECT_EQ(mtp.logits, expected_mtp.logits);
  EXPECT_TRUE(mtp.hidden == expected_mtp.hidden);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(detached.Records(detached_sequence, layer, kPromptTokens),
              host.Records(host_sequence, layer, kPromptTokens))
        << "layer " << layer;
  }
  EXPECT_GT(stages[0].size(), 40u);
  EXPECT_TRUE(stages[0] == stages[1]);
  EXPECT_GT(detached_.num_bytes(), detached.layout().pool_bytes());
}

TEST_F(DetachedMemoryTest, GivesMoreRowsOfLogitsThanLeaveAtATime) {
  TestModel host(checkpoint_, {.num_rows_max = 512});
  TestModel detached(checkpoint_, {.num_rows_max = 512, .backend = &detached_});
  TestSequence a = host.NewSequence(kPromptTokens), b = detached.NewSequence(kPromptTokens);
  EXPECT_EQ(detached.Append(b, tokens_, kPromptTokens).logits, host.Append(a, tokens_, kPromptTokens).logits);
}

TEST_F(DetachedMemoryTest, WritesRecordsBackBeforeLayerDoneAndNothingElseOfTheirPages) {
  TestModel host(checkpoint_, {.with_mtp = false});
  TestModel detached(checkpoint_, {.with_mtp = false, .backend = &detached_});
  TestSequence reference = host.NewSequence(kPromptTokens), sequence = detached.NewSequence(kPromptTokens);
  host.Append(reference, tokens_, kPromptTokens);
  ASSERT_EQ(reference.pages, sequence.pages) << "one seed, one order";
  for (int begin = 0; begin < kPromptTokens; begin += 90) {
    const int count = std::min(90, kPromptTokens - begin);
    std::vector<bool> is_done(2);
    const Segment segment{.row_begin = 0, .num_rows = count, .first_position = begin, .page_table = sequence.pages};
    const absl::Status status = detached.model().Forward(
        {.tokens = absl::MakeConstSpan(tokens_).subspan(begin, count), .segments = {&segment, 1}},
        [&](int layer) {
          EXPECT_EQ(detached.Records(sequence, layer, begin + count), host.Records(reference, layer, begin + count))
              << "layer " << layer;
          is_done[layer] = true;
        },
        {});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(is_done[0] && is_done[1]);
  }
  // The tails of last pages and all pages of others are as they were: both pools began as one pattern.
  EXPECT_TRUE(detached.pool() == host.pool());
}

TEST_F(DetachedMemoryTest, LeavesThePoolAloneWhereNobodyReadsIt) {
  const kvcache::KvLayout layout{.num_layers = 2, .num_pages = 4};
  std::vector<uint8_t> pool(layout.pool_bytes(), 0x5A);
  auto model = DeepseekModel::Create(detached_, checkpoint_, layout, absl::MakeSpan(pool), {.writes_back_kv = false});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<int32_t> pages = {2, 0, 3, 1};
  const Segment segment{.row_begin = 0, .num_rows = kPromptTokens, .first_position = 0, .page_table = pages};
  int num_done = 0;
  ASSERT_TRUE((*model)->Forward({.tokens = tokens_, .segments = {&segment, 1}}, [&](int) { ++num_done; }, {}).ok());
  EXPECT_EQ(num_done, 2);
  EXPECT_EQ(detached_.num_downloads_beside(), 0);
  EXPECT_TRUE(pool == std::vector<uint8_t>(pool.size(), 0x5A));
}

TEST_F(DetachedMemoryTest, ReadsPagesThatArrived) {
  TestModel host(checkpoint_, {.with_mtp = false});
  TestSequence reference = host.NewSequence(kPromptTokens + 1);
  host.Append(reference, tokens_, kPromptTokens);
  TestModel decode(checkpoint_, {.with_mtp = false, .backend = &detached_});
  decode.pool() = host.pool();  // as a transfer writes it
  std::vector<int32_t> pages = reference.pages;
  EXPECT_EQ(decode.model().PagesArrived({24}).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(decode.model().PagesArrived(pages).ok());
  std::fill(decode.pool().begin(), decode.pool().end(), 0xA5);  // no longer looked at
  TestSequence arrived{.pages = pages, .num_cached = kPromptTokens};
  EXPECT_EQ(decode.Append(arrived, {5}, 1).logits, host.Append(reference, {5}, 1).logits);
}

// A sequence leaves, its pages are copied elsewhere and overwritten, and it goes on from other pages.
TEST_F(DetachedMemoryTest, PagesThatLeftComeBackAsTheyWere) {
  TestModel host(checkpoint_, {.with_mtp = false});
  TestSequence reference = host.NewSequence(kPromptTokens + 1);
  host.Append(reference, tokens_, kPromptTokens);
  const std::vector<float> expected = host.Append(reference, {5}, 1).logits;
  TestModel decode(checkpoint_, {.with_mtp = false, .backend = &detached_, .writes_back_kv = false});
  TestSequence sequence = decode.NewSequence(kPromptTokens + 1), other = decode.NewSequence(kPromptTokens + 1);
  decode.Append(sequence, tokens_, kPromptTokens);
  EXPECT_EQ(decode.model().PagesLeave({24}).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(decode.model().PagesLeave(sequence.pages).ok());
  const kvcache::KvLayout& layout = decode.layout();
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
      for (size_t i = 0; i < sequence.pages.size(); ++i) {
        uint8_t* const from = &decode.pool()[layout.PageOffset(kind, layer, sequence.pages[i])];
        std::copy(from, from + layout.PageBytes(kind), &decode.pool()[layout.PageOffset(kind, layer, other.pages[i])]);
        std::fill(from, from + layout.PageBytes(kind), 0xA5);
      }
    }
  }
  ASSERT_TRUE(decode.model().PagesArrived(sequence.pages).ok()) << "to be seen no more";
  ASSERT_TRUE(decode.model().PagesArrived(other.pages).ok());
  other.num_cached = kPromptTokens;
  EXPECT_EQ(decode.Append(other, {5}, 1).logits, expected);
}

// Steps of several sequences, some long, some short, as decode has them; contexts from below index_topk (16) to 200.
TEST_F(DetachedMemoryTest, PaddedAndReplayedStepsGiveTheSameBits) {
  TestModel host(checkpoint_, {.num_pages = 40, .with_mtp = false});
  TestModel detached(
      checkpoint_,
      {.num_rows_max = 96, .num_pages = 40, .with_mtp = false, .backend = &detached_, .writes_back_kv = false});
  const int lengths[] = {200, 31, 90, 130, 64, 17, 3};
  constexpr int kSequences = 7;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<TestSequence> sequences;
  std::vector<std::vector<float>> expected;
  for (int length : lengths) {
    tokens.push_back(GoldenTokens(length, kVocab));
    TestSequence reference = host.NewSequence(length);
    expected.push_back(host.Append(reference, tokens.back(), length).logits);
    sequences.push_back(detached.NewSequence(length));
  }
  uint32_t random = 1;
  int num_rows = 0;
  for (int step = 0; step < 400; ++step) {
    std::vector<int32_t> rows, logits_rows;
    std::vector<Segment> segments;
    std::vector<std::pair<int, int64_t>> origin;
    for (int s = 0; s < kSequences; ++s) {
      random = random * 1664525u + 1013904223u;
      const int left = lengths[s] - static_cast<int>(sequences[s].num_cached);
      const int count = std::min<int>(left, (random >> 24) % 4);
      if (count == 0) continue;
      segments.push_back({.row_begin = static_cast<int>(rows.size()),
                          .num_rows = count,
                          .first_position = sequences[s].num_cached,
                          .page_table = sequences[s].pages});
      for (int i = 0; i < count; ++i) {
        const int64_t position = sequences[s].num_cached++;
        rows.push_back(tokens[s][position]);
        logits_rows.push_back(static_cast<int32_t>(origin.size()));
        origin.emplace_back(s, position);
      }
    }
    std::vector<float> logits(rows.size() * kVocab);
    int num_layers_done = 0;
    const absl::Status status = detached.model().Forward(
        {.tokens = rows, .segments = segments, .logits_rows = logits_rows}, [&](int) { ++num_layers_done; },
        absl::MakeSpan(logits));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(num_layers_done, 2);
    for (size_t i = 0; i < origin.size(); ++i) {
      const auto [s, position] = origin[i];
      ASSERT_EQ(std::memcmp(&logits[i * kVocab], &expected[s][position * kVocab], kVocab * sizeof(float)), 0)
          << "step " << step << ", sequence " << s << ", position " << position;
    }
    num_rows += static_cast<int>(rows.size());
  }
  EXPECT_EQ(num_rows, 200 + 31 + 90 + 130 + 64 + 17 + 3);
  EXPECT_GT(detached_.num_recorded(), 4);
  EXPECT_LE(detached_.num_recorded(), 30) << "at most 1, 2, 4, .. 32 rows by contexts up to 16, 32, .. 256";
  EXPECT_GT(detached_.num_replayed(), 3 * detached_.num_recorded());
  EXPECT_EQ(detached.model().num_nan_index_logits(), 0);
  EXPECT_TRUE(detached.pool() == std::vector<uint8_t>(detached.pool().size(), 0xA5));
}

TEST_F(DetachedMemoryTest, GoesOnOpByOpWhereAStepCannotBeRecorded) {
  detached_.CannotRecord();
  TestModel host(checkpoint_, {.with_mtp = false});
  TestModel detached(checkpoint_, {.with_mtp = false, .backend = &detached_, .writes_back_kv = false});
  TestSequence a = host.NewSequence(20), b = detached.NewSequence(20);
  const std::vector<int32_t> tokens = GoldenTokens(20, kVocab);
  EXPECT_EQ(detached.Append(b, tokens, 1).logits, host.Append(a, tokens, 20).logits);
  EXPECT_EQ(detached_.num_replayed(), 0);
}

TEST_F(DetachedMemoryTest, SaysWhatThereIsNoRoomFor) {
  const kvcache::KvLayout layout{.num_layers = 2, .num_pages = 4};
  std::vector<uint8_t> pool(layout.pool_bytes());
  const auto create = [&](DetachedBackend& backend) {
    return DeepseekModel::Create(backend, checkpoint_, layout, absl::MakeSpan(pool), {}).status();
  };
  int64_t num_bytes_all = 0;
  {
    DetachedBackend backend;
    auto model = DeepseekModel::Create(backend, checkpoint_, layout, absl::MakeSpan(pool), {});
    ASSERT_TRUE(model.ok()) << model.status();
    num_bytes_all = backend.num_bytes();
  }
  std::string said;
  for (int64_t room = 0; room < num_bytes_all; room += num_bytes_all / 16) {
    DetachedBackend backend(room);
    const absl::Status status = create(backend);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << room << ": " << status;
    EXPECT_EQ(backend.num_bytes(), 0) << "all is given back";
    absl::StrAppend(&said, std::string(status.message()), "\n");
  }
  for (const char* what : {"the weights: detached: ", "the workspace: detached: "}) {
    EXPECT_TRUE(absl::StrContains(said, what)) << said;
  }
  DetachedBackend enough(num_bytes_all);
  EXPECT_TRUE(create(enough).ok());
}

}  // namespace
}  // namespace tandem::model
