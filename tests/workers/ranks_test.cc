// Proves that a prefill worker on several ranks serves as one on one does: the tokens of one process without any
// engine, whatever the chunks, the cache format and the placement of the ranks' pools; that the bytes that ranks send
// are those of docs/parallelism.md; and that /statusz shows them.
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/workers/two_workers_fixture.h"
#include "tools/generate/generate.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

class RanksTest : public TwoWorkersFixture {
 protected:
  static std::vector<uint32_t> Expected(uint64_t seed, int num_prompt_tokens, int max_new_tokens, float temperature) {
    static std::map<std::tuple<uint64_t, int, int, float>, std::vector<uint32_t>> known;
    std::vector<uint32_t>& expected = known[{seed, num_prompt_tokens, max_new_tokens, temperature}];
    if (!expected.empty()) return expected;
    model::TestModel model(model::MakeTestCheckpoint("v32-micro", 1), {.num_rows_max = 512});
    const auto tokens = generate::Generate(model.model(), model::GoldenTokens(num_prompt_tokens, kVocabSize),
                                           {.sampling = {.temperature = temperature, .seed = seed},
                                            .max_new_tokens = max_new_tokens,
                                            .stop_token_ids = {}});
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return expected = {tokens->tokens.begin(), tokens->tokens.end()};
  }
  // Prompts that share steps; some steps have fewer rows than there are ranks.
  void ExpectRightAnswers() {
    constexpr int kNewTokens = 8;
    const int lengths[] = {1, 65, 200, 333};
    uint64_t id = 0;
    for (const int length : lengths) {
      router_->Generate(id, Prompt(length), kNewTokens, id % 2 == 0 ? 0.0f : 0.9f);
      ++id;
    }
    auto answers = router_->Collect(static_cast<int>(id));
    id = 0;
    for (const int length : lengths) {
      EXPECT_EQ(answers[id].tokens(), Expected(id, length, kNewTokens, id % 2 == 0 ? 0.0f : 0.9f))
          << "prompt of " << length << " tokens";
      EXPECT_FALSE(answers[id].ended.has_error()) << answers[id].ended.error().message();
      ++id;
    }
    EXPECT_EQ(AwaitMetric(decode_->admin_port(), "tandem_kv_pages_used", 0), 0);
    EXPECT_EQ(Metric(decode_->admin_port(), "tandem_kv_transfer_wrong_sums_total"), 0);
  }
  static constexpr int kPromptTokens = 1 + 65 + 200 + 333;

  // The value of a series of the prefill worker, over all ranks.
  double SumOverRanks(const std::string& name, const std::string& collective) const {
    const std::string text = tests::HttpGet(prefill_->admin_port(), "/metrics");
    double sum = 0;
    for (int rank = 0; rank < context_parallel_size_; ++rank) {
      const std::string series =
          absl::StrCat("\n", name, "{role=\"prefill\",collective=\"", collective, "\",rank=\"", rank, "\"} ");
      const size_t at = text.find(series);
      EXPECT_NE(at, std::string::npos) << series;
      if (at != std::string::npos) sum += std::stod(text.substr(at + series.size()));
    }
    return sum;
  }
};

TEST_F(RanksTest, OnAnyNumberOfRanksTheTokensAreThoseOfOneProcess) {
  for (const int size : {2, 4, 8}) {
    context_parallel_size_ = size;
    ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}, /*chunked_prefill_size=*/100));
    ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
    router_->AwaitPeer(true);
    ExpectRightAnswers();
    EXPECT_EQ(SumOverRanks("tandem_collective_sent_bytes_total", "all_gather"),
              int64_t{kPromptTokens} * kNumLayers * (size - 1) * 788);
    EXPECT_GT(SumOverRanks("tandem_collective_seconds_total", "all_gather"), 0);
    const std::string page = tests::HttpGet(prefill_->admin_port(), "/statusz");
    for (int rank = 0; rank < size; ++rank) EXPECT_THAT(page, HasSubstr(absl::StrCat("\n", rank, " all_gather ")));
    TearDown();
  }
}

struct Layouts {
  int prefill_cp = 1, prefill_dp = 1, decode_dp = 1;
  bool spreads_experts = false;
  int prefill_tp = 1, decode_tp = 1;
  int prefill_pp = 1, decode_pp = 1;
};
void PrintTo(const Layouts& layouts, std::ostream* out) {
  *out << "prefill cp " << layouts.prefill_cp << " dp " << layouts.prefill_dp << " tp " << layouts.prefill_tp << " pp "
       << layouts.prefill_pp << ", decode dp " << layouts.decode_dp << " tp " << layouts.decode_tp << " pp "
       << layouts.decode_pp << (layouts.spreads_experts ? ", experts spread" : "");
}

// Every number of ranks of either side meets every one of the other, and experts on every rank and spread.
class LayoutsOfBothSidesTest : public RanksTest, public ::testing::WithParamInterface<Layouts> {};

TEST_P(LayoutsOfBothSidesTest, ServeEachOther) {
  context_parallel_size_ = GetParam().prefill_cp;
  prefill_data_parallel_size_ = GetParam().prefill_dp;
  decode_data_parallel_size_ = GetParam().decode_dp;
  spreads_experts_ = GetParam().spreads_experts;
  prefill_tensor_parallel_size_ = GetParam().prefill_tp;
  decode_tensor_parallel_size_ = GetParam().decode_tp;
  prefill_pipeline_parallel_size_ = GetParam().prefill_pp;
  decode_pipeline_parallel_size_ = GetParam().decode_pp;
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}, /*chunked_prefill_size=*/100));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  ExpectRightAnswers();
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, LayoutsOfBothSidesTest,
    ::testing::Values(Layouts{1, 1, 2, false}, Layouts{1, 1, 4, true}, Layouts{2, 1, 1, true}, Layouts{2, 1, 2, true},
                      Layouts{2, 1, 4, false}, Layouts{4, 1, 1, false}, Layouts{4, 1, 2, true}, Layouts{4, 1, 4, true},
                      Layouts{8, 1, 1, true}, Layouts{8, 1, 2, false}, Layouts{8, 1, 4, true}, Layouts{1, 2, 1, true},
                      Layouts{1, 2, 2, false}, Layouts{1, 2, 4, true}, Layouts{1, 4, 1, false}, Layouts{1, 4, 2, true},
                      Layouts{1, 4, 4, false}, Layouts{1, 1, 1, true, 2, 2}, Layouts{1, 1, 4, false, 2, 1},
                      Layouts{1, 1, 2, true, 2, 1}, Layouts{1, 1, 1, false, 2, 1}, Layouts{4, 1, 1, true, 1, 2},
                      Layouts{8, 1, 1, false, 1, 2}, Layouts{2, 1, 1, false, 1, 2}, Layouts{1, 2, 1, true, 1, 2},
                      Layouts{1, 4, 1, false, 1, 2}, Layouts{1, 1, 1, false, 1, 2}, Layouts{1, 1, 1, false, 1, 1, 2, 2},
                      Layouts{1, 1, 1, false, 1, 1, 2, 1}, Layouts{4, 1, 1, true, 1, 1, 1, 2},
                      Layouts{1, 2, 1, false, 1, 1, 1, 2}, Layouts{1, 1, 2, true, 1, 1, 2, 1},
                      Layouts{1, 1, 1, false, 1, 2, 2, 1}, Layouts{1, 1, 1, false, 2, 1, 1, 2}));

TEST_F(RanksTest, RanksThatShareAPoolSendNothing) {
  context_parallel_size_ = 2;
  context_parallel_kv_ = "shared";
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"tcp"}, /*chunked_prefill_size=*/64));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"tcp"}));
  router_->AwaitPeer(true);
  ExpectRightAnswers();
  EXPECT_EQ(SumOverRanks("tandem_collective_sent_bytes_total", "all_gather"), 0);
  EXPECT_GT(SumOverRanks("tandem_collective_calls_total", "barrier"), 0);
}

TEST_F(RanksTest, WeightsMadeFromASeedAreSharedByAllRanks) {
  load_format_ = "dummy";
  context_parallel_size_ = 2;
  ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm"}));
  ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm"}));
  router_->AwaitPeer(true);
  router_->Generate(1, Prompt(130), 4, 0);
  EXPECT_EQ(router_->Collect(1)[1].tokens().size(), 4u);
}

}  // namespace
}  // namespace tandem
