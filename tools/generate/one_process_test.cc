// Proves that both engines in one process give the oracle's tokens, alone and together, for any chunk size, and from
// any prefix of the answer on.
#include "tools/generate/one_process.h"

#include <cstdint>
#include <random>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pool_memory.h"

namespace tandem::generate {
namespace {

constexpr sim::HashModelOptions kModel{.vocab_size = 97, .weights_seed = 9};
constexpr kvcache::KvLayout kLayout{.num_layers = 2, .num_pages = 40};
constexpr int64_t kContextMax = 400;

struct Cluster {
  explicit Cluster(int chunked_prefill_size)
      : prefill_memory(kLayout),
        decode_memory(kLayout),
        prefill_model(prefill_memory.pool(), kModel),
        decode_model(decode_memory.pool(), kModel),
        process({.chunked_prefill_size = chunked_prefill_size, .context_length_max = kContextMax}, base::RealClock(),
                prefill_model, prefill_memory.pool(), decode_model, decode_memory.pool()) {}

  sim::PoolMemory prefill_memory, decode_memory;
  sim::HashModel prefill_model, decode_model;
  OneProcess process;
};

GenerateInput Input(int num_tokens, uint64_t seed) {
  std::mt19937_64 rng(seed);
  GenerateInput input;
  for (int i = 0; i < num_tokens; ++i) input.prompt_tokens.push_back(rng() % kModel.vocab_size);
  input.sampling.set_temperature(0.9f);
  input.sampling.set_top_p(0.95f);
  input.sampling.set_seed(seed);
  input.stopping.set_max_new_tokens(30);
  return input;
}

std::vector<uint32_t> Expected(const GenerateInput& input) {
  return sim::OracleTokens({input.prompt_tokens, input.sampling, input.stopping}, kModel, kLayout.num_layers,
                           kContextMax);
}

TEST(OneProcessTest, AnyChunkSizeGivesTheOraclesTokens) {
  const GenerateInput input = Input(200, 1);
  for (const int chunk : {1, 64, 100, 512}) {
    Cluster cluster(chunk);
    const auto results = cluster.process.Generate({input});
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ((*results)[0].tokens, Expected(input)) << "chunk " << chunk;
    EXPECT_EQ((*results)[0].finish_reason, proto::FINISH_REASON_LENGTH);
  }
}

TEST(OneProcessTest, CompanyDoesNotChangeAnybodysTokens) {
  std::vector<GenerateInput> inputs;
  for (int i = 1; i <= 12; ++i) inputs.push_back(Input(17 * i, i));
  Cluster cluster(100);
  const auto results = cluster.process.Generate(inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ((*results)[i].tokens, Expected(inputs[i])) << i;
}

TEST(OneProcessTest, AnyPrefixOfTheAnswerLeadsToTheWholeAnswer) {
  const GenerateInput whole = Input(70, 5);
  const std::vector<uint32_t> expected = Expected(whole);
  Cluster cluster(64);
  for (size_t known = 0; known < expected.size(); ++known) {
    GenerateInput input = whole;
    input.generated_tokens.assign(expected.begin(), expected.begin() + known);
    const auto results = cluster.process.Generate({input});
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ((*results)[0].tokens, expected) << "from " << known;
  }
}

TEST(OneProcessTest, AnErrorOfARequestIsReturned) {
  Cluster cluster(64);
  EXPECT_EQ(cluster.process.Generate({Input(400, 1)}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cluster.process.Generate({Input(10, 1)}).ok());
}

}  // namespace
}  // namespace tandem::generate
