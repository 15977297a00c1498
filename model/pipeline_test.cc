// Proves that a pipeline of stages is one rank to whoever calls it: for any size of micro-batches and chunks, any depth
// and several sequences in a batch, logits, hidden states and every byte of the pool are those of one rank; that layers
// are told in order on the caller's thread when their records are final; that bytes are handed on as
// docs/parallelism.md says; and that a refused batch touches nothing and a failing stage ends all of them by name.
#include "model/pipeline.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

using kernels::Bf16;

constexpr int kVocab = 1024;
constexpr int kPromptTokens = 130;  // three pages; index_topk is 16
constexpr int kStages = 2;          // v32-micro has two layers

class FailingBackend final : public kernels::CpuBackend {
 public:
  explicit FailingBackend(int num_ops_left) : CpuBackend(1), num_ops_left_(num_ops_left) {}
  absl::Status AddRmsNorm(const kernels::AddRmsNormArgs& a) override {
    if (num_ops_left_-- == 0) return absl::DataLossError("its memory is gone");
    return CpuBackend::AddRmsNorm(a);
  }

 private:
  int num_ops_left_;
};

// Stages on a pool that begins as TestModel's.
class Stages final {
 public:
  Stages(const std::shared_ptr<const Checkpoint>& checkpoint, const PipelineOptions& options,
         std::vector<std::unique_ptr<kernels::Backend>> backends = {})
      : backends_(std::move(backends)) {
    const TestModel::Options defaults;
    layout_ = {.num_layers = checkpoint->config().num_hidden_layers + 1,
               .num_pages = defaults.num_pages,
               .kv_cache_dtype = defaults.kv_cache_dtype};
    pool_.assign(layout_.pool_bytes(), 0xA5);
    std::vector<kernels::Backend*> of_stages;
    for (int stage = 0; stage < kStages; ++stage) {
      if (stage == static_cast<int>(backends_.size())) backends_.push_back(std::make_unique<kernels::CpuBackend>(1));
      of_stages.push_back(backends_[stage].get());
    }
    auto pipeline = Pipeline::Create(
        of_stages, checkpoint, layout_, absl::MakeSpan(pool_),
        {.num_rows_max = defaults.num_rows_max, .num_positions_max = defaults.num_positions_max, .with_mtp = true},
        options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    pipeline_ = *std::move(pipeline);
  }
  Pipeline& pipeline() { return *pipeline_; }
  const std::vector<uint8_t>& pool() const { return pool_; }

 private:
  std::vector<std::unique_ptr<kernels::Backend>> backends_;
  kvcache::KvLayout layout_;
  std::vector<uint8_t> pool_;
  std::unique_ptr<Pipeline> pipeline_;
};

struct Outputs {
  std::vector<float> logits;
  std::vector<Bf16> hidden, drafted;
  bool operator==(const Outputs& other) const = default;
};

// Three sequences, chunk by chunk in one batch, logits of every third row only; then the MTP layer over the last batch.
Outputs RunAll(ModelExecutor& executor, const std::vector<TestSequence>& sequences, const std::vector<int>& lengths,
               int chunk_size) {
  Outputs all;
  std::vector<int> cached(lengths.size());
  const std::vector<int32_t> prompt = GoldenTokens(kPromptTokens, kVocab);
  while (true) {
    std::vector<int32_t> tokens, logits_rows;
    std::vector<Segment> segments;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int count = std::min(chunk_size, lengths[i] - cached[i]);
      if (count == 0) continue;
      segments.push_back({.row_begin = static_cast<int>(tokens.size()),
                          .num_rows = count,
                          .first_position = cached[i],
                          .page_table = sequences[i].pages});
      tokens.insert(tokens.end(), prompt.begin() + cached[i], prompt.begin() + cached[i] + count);
      cached[i] += count;
    }
    if (segments.empty()) return all;
    for (size_t row = 0; row < tokens.size(); row += 3) logits_rows.push_back(static_cast<int32_t>(row));
    const RowBatch batch = {.tokens = tokens, .segments = segments, .logits_rows = logits_rows};
    std::vector<float> logits(logits_rows.size() * executor.vocab_size());
    std::vector<Bf16> hidden(tokens.size() * executor.hidden_size());
    std::vector<Bf16> drafted(logits_rows.size() * executor.hidden_size());
    std::vector<int> layers;
    const std::thread::id caller = std::this_thread::get_id();
    absl::Status status = executor.ForwardWithHidden(
        batch,
        [&](int layer) {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          layers.push_back(layer);
        },
        absl::MakeSpan(logits), absl::MakeSpan(hidden));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(layers, (std::vector<int>{0, 1}));
    all.logits.insert(all.logits.end(), logits.begin(), logits.end());
    all.hidden.insert(all.hidden.end(), hidden.begin(), hidden.end());
    status = executor.RunMtp(
        batch, hidden, [](int) {}, absl::MakeSpan(logits), absl::MakeSpan(drafted));
    EXPECT_TRUE(status.ok()) << status;
    all.drafted.insert(all.drafted.end(), drafted.begin(), drafted.end());
  }
}

class PipelineTest : public ::testing::Test {
 protected:
  const std::shared_ptr<const Checkpoint> checkpoint_ = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int> lengths_ = {100, 70, 33};
};

TEST_F(PipelineTest, GivesTheBitsOfOneRankForAnyMicroBatchChunkAndDepth) {
  TestModel one(checkpoint_, {});
  std::vector<TestSequence> sequences;
  for (const int length : lengths_) sequences.push_back(one.NewSequence(length));
  for (const int chunk_size : {80, 7}) {
    std::ranges::fill(one.pool(), 0xA5);
    const Outputs expected = RunAll(one.model(), sequences, lengths_, chunk_size);
    for (const PipelineOptions& options : {PipelineOptions{1, 1}, PipelineOptions{5, 3}, PipelineOptions{64, 1},
                                           PipelineOptions{64, 4}, PipelineOptions{256, 1}}) {
      Stages stages(checkpoint_, options);
      EXPECT_TRUE(RunAll(stages.pipeline(), sequences, lengths_, chunk_size) == expected)
          << "chunks of " << chunk_size << ", micro-batches of " << options.micro_batch_rows;
      EXPECT_TRUE(stages.pool() == one.pool());
      const int64_t num_rows = std::accumulate(lengths_.begin(), lengths_.end(), 0);
      EXPECT_EQ(stages.pipeline().bytes_sent(0), num_rows * 2 * 2 * stages.pipeline().hidden_size());
      EXPECT_EQ(stages.pipeline().bytes_sent(1), 0);
    }
  }
}

TEST_F(PipelineTest, ABatchThatIsRefusedTouchesNothing) {
  TestModel one(checkpoint_, {});
  const TestSequence sequence = one.NewSequence(64);
  Stages stages(checkpoint_, {.micro_batch_rows = 4});
  const std::vector<uint8_t> before = stages.pool();
  std::vector<int32_t> tokens(20, 1);
  tokens[19] = kVocab;  // of the last micro-batch
  const Segment segment = {.num_rows = 20, .page_table = sequence.pages};
  const absl::Status status = stages.pipeline().Forward(
      {.tokens = tokens, .segments = {&segment, 1}, .logits_rows = {}}, [](int) { ADD_FAILURE(); }, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(stages.pool() == before);
  EXPECT_TRUE(stages.pipeline().status().ok());
}

TEST_F(PipelineTest, AStageThatFailsEndsAllOfThemByName) {
  TestModel one(checkpoint_, {});
  const TestSequence sequence = one.NewSequence(64);
  const std::vector<int32_t> tokens(40, 1);
  const Segment segment = {.num_rows = 40, .page_table = sequence.pages};
  const RowBatch batch = {.tokens = tokens, .segments = {&segment, 1}, .logits_rows = {}};
  for (int failing = 0; failing < kStages; ++failing) {
    for (const int num_ops : {0, 3, 9}) {
      std::vector<std::unique_ptr<kernels::Backend>> backends;
      for (int stage = 0; stage < kStages; ++stage) {
        backends.push_back(std::make_unique<FailingBackend>(stage == failing ? num_ops : 1 << 30));
      }
      Stages stages(checkpoint_, {.micro_batch_rows = 4}, std::move(backends));
      const absl::Status expected = absl::DataLossError(absl::StrCat("stage ", failing, " failed: its memory is gone"));
      for (int call = 0; call < 2; ++call) {  // nothing brings it back
        EXPECT_EQ(stages.pipeline().Forward(batch, [](int) {}, {}), expected);
      }
    }
  }
}

TEST_F(PipelineTest, MoreStagesThanLayersAreRefused) {
  const TestModel one(checkpoint_, {});
  kernels::CpuBackend backend(1);
  std::vector<kernels::Backend*> backends(3, &backend);
  std::vector<uint8_t> pool(one.layout().pool_bytes());
  const DeepseekModelOptions options = {.with_mtp = true};
  EXPECT_EQ(Pipeline::Create(backends, checkpoint_, one.layout(), absl::MakeSpan(pool), options, {}).status(),
            absl::InvalidArgumentError("a pipeline of 3 stages: num_hidden_layers is 2"));
  DeepseekModelOptions sharing = options;
  sharing.index_topk_pattern = "FS";
  backends.pop_back();
  EXPECT_EQ(Pipeline::Create(backends, checkpoint_, one.layout(), absl::MakeSpan(pool), sharing, {}).status(),
            absl::InvalidArgumentError(
                "stage 1 of 2 would begin with layer 1, which attends to what a layer before it chose"));
}

}  // namespace
}  // namespace tandem::model
