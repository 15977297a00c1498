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
