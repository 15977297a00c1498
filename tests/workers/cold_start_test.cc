// Proves that workers which have only just started answer a burst: cold_start_long_test repeats it to a hundred starts.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/workers/two_workers_fixture.h"
#include "tools/generate/generate.h"

namespace tandem {
namespace {

class ColdStartTest : public TwoWorkersFixture {
 protected:
  // Two tokens after a prompt of 300, of the executor and the sampler alone.
  static std::vector<uint32_t> Expected() {
    model::TestModel model(model::MakeTestCheckpoint("v32-micro", 1), {.num_rows_max = 512});
    const auto generated =
        generate::Generate(model.model(), model::GoldenTokens(300, kVocabSize),
                           {.sampling = {.temperature = 0, .seed = 0}, .max_new_tokens = 2, .stop_token_ids = {}});
    EXPECT_TRUE(generated.ok()) << generated.status();
    return {generated->tokens.begin(), generated->tokens.end()};
  }
};

// A cold start of one prefill and two decode workers; both greet, wire and send long prompts at the same moment.
TEST_F(ColdStartTest, ABurstRightAfterAColdStartIsAnswered) {
  constexpr int kBurst = 4;  // of each decode worker
  const std::vector<uint32_t> expected = Expected();
  for (int start = 0; start < 3; ++start) {
    TearDown();
    ASSERT_NO_FATAL_FAILURE(StartPrefill({"ucx_shm", "tcp"}, /*chunked_prefill_size=*/100));
    ASSERT_NO_FATAL_FAILURE(StartDecode({"ucx_shm", "tcp"}));
    const auto first_decode = std::move(decode_);
    const auto first_router = std::move(router_);
    ASSERT_NO_FATAL_FAILURE(StartDecode({"tcp"}, CheckpointFolder(), "decode-1"));
    for (tests::RouterEnd* router : {first_router.get(), router_.get()}) router->AwaitPeer(true);
    for (uint64_t id = 0; id < kBurst; ++id) {
      first_router->Generate(id, Prompt(300), 2, 0.0f);
      router_->Generate(kBurst + id, Prompt(300), 2, 0.0f);
    }
    for (tests::RouterEnd* router : {first_router.get(), router_.get()}) {
      for (auto [id, answer] : router->Collect(kBurst)) {
        EXPECT_EQ(answer.tokens(), expected) << id << " " << answer.ended.error().message();
      }
    }
  }
}

}  // namespace
}  // namespace tandem
