#include "model/testing/micro_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "tools/make_checkpoint/checkpoint_writer.h"

namespace tandem::model {

std::shared_ptr<const Checkpoint> MakeTestCheckpoint(const std::string& config_name, uint64_t seed) {
  static auto* made = new std::map<std::pair<std::string, uint64_t>, std::shared_ptr<const Checkpoint>>();
  std::shared_ptr<const Checkpoint>& checkpoint = (*made)[{config_name, seed}];
  if (checkpoint != nullptr) return checkpoint;
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/", config_name, "-", seed, "-", static_cast<int64_t>(::getpid()));
  const absl::Status status = make_checkpoint::WriteCheckpoint(config_name, seed, folder);
  TANDEM_CHECK(status.ok(), status.message());
  absl::StatusOr<std::shared_ptr<const Checkpoint>> opened = Checkpoint::Open(folder);
  TANDEM_CHECK(opened.ok(), opened.status().message());
  checkpoint = *opened;
  std::filesystem::remove_all(folder);  // the mapping keeps the bytes
  return checkpoint;
}

std::vector<int32_t> GoldenTokens(int n, int vocab_size) {
  uint32_t x = 12345 + static_cast<uint32_t>(n);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) {
    x = 1664525u * x + 1013904223u;
    token = static_cast<int32_t>((x >> 8) % static_cast<uint32_t>(vocab_size));
  }
  return tokens;
}

TestModel::TestModel(std::shared_ptr<const Checkpoint> checkpoint, const Options& options) {
  const ModelConfig& config = checkpoint->config();
  layout_ = {.num_layers = config.num_hidden_layers + (options.with_mtp ? 1 : 0),
             .num_pages = options.num_pages,
             .kv_cache_dtype = options.kv_cache_dtype};
  pool_.assign(layout_.pool_bytes(), 0xA5);
  all_pages_.resize(options.num_pages);
  std::iota(all_pages_.begin(), all_pages_.end(), 0);
  std::shuffle(all_pages_.begin(), all_pages_.end(), std::mt19937(options.page_order_seed));
  FreeAll();
  if (options.backend == nullptr) own_backend_ = std::make_unique<kernels::CpuBackend>(1);
  kernels::Backend& backend = options.backend != nullptr ? *options.backend : *own_backend_;
  auto model = DeepseekModel::Create(backend, std::move(checkpoint), layout_, absl::MakeSpan(pool_),
                                     {.num_rows_max = options.num_rows_max,
                                      .num_positions_max = options.num_positions_max,
                                      .with_mtp = options.with_mtp,
                                      .writes_back_kv = options.writes_back_kv,
                                      .records_steps = options.records_steps,
                                      .device_buffers = options.device_buffers,
                                      .index_topk_pattern = options.index_topk_pattern,
                                      .dense_context_max = options.dense_context_max,
                                      .tap = options.tap});
  TANDEM_CHECK(model.ok(), model.status().message());
  model_ = *std::move(model);
}

void TestModel::FreeAll() { free_pages_ = all_pages_; }

TestSequence TestModel::NewSequence(int64_t num_tokens) {
  TestSequence sequence;
  for (int i = 0; i < kvcache::PagesForTokens(num_tokens); ++i) {
    TANDEM_CHECK(!free_pages_.empty(), "the test's pool is large enough");
    sequence.pages.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
  return sequence;
}

TestModel::Result TestModel::Append(TestSequence& sequence, absl::Span<const int32_t> tokens, int chunk_size) {
  Result result;
  const int vocab = model_->vocab_size(), hidden = model_->hidden_size();
  result.logits.resize(tokens.size() * vocab);
  result.hidden.resize(tokens.size() * hidden);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk_size) {
    const int count = static_cast<int>(std::min<size_t>(chunk_size, tokens.size() - begin));
    const Segment segment{.row_begin = 0,
                          .num_rows = count,
                          .first_position = sequence.num_cached,
                          .page_table = sequence.pages,
                          .device_pages = sequence.device_pages};
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    const absl::Status status = model_->ForwardWithHidden(
        {.tokens = tokens.subspan(begin, count), .segments = {&segment, 1}, .logits_rows = rows}, [](int) {},
        absl::MakeSpan(&result.logits[begin * vocab], count * vocab),
        absl::MakeSpan(&result.hidden[begin * hidden], count * hidden));
    EXPECT_TRUE(status.ok()) << status;
    sequence.num_cached += count;
  }
  return result;
}

TestModel::Result TestModel::RunMtp(const TestSequence& sequence, absl::Span<const int32_t> next_tokens,
                                    absl::Span<const kernels::Bf16> hidden, int chunk_size) {
  Result result;
  const int vocab = model_->vocab_size(), width = model_->hidden_size();
  result.logits.resize(next_tokens.size() * vocab);
  result.hidden.resize(next_tokens.size() * width);
  for (size_t begin = 0; begin < next_tokens.size(); begin += chunk_size) {
    const int count = static_cast<int>(std::min<size_t>(chunk_size, next_tokens.size() - begin));
    const Segment segment{
        .row_begin = 0, .num_rows = count, .first_position = static_cast<int64_t>(begin), .page_table = sequence.pages};
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    const absl::Status status = model_->RunMtp(
        {.tokens = next_tokens.subspan(begin, count), .segments = {&segment, 1}, .logits_rows = rows},
        hidden.subspan(begin * width, count * width), [](int) {},
        absl::MakeSpan(&result.logits[begin * vocab], count * vocab),
        absl::MakeSpan(&result.hidden[begin * width], count * width));
    EXPECT_TRUE(status.ok()) << status;
  }
  return result;
}

std::vector<uint8_t> TestModel::Records(const TestSequence& sequence, int layer, int64_t num_tokens) const {
  const int64_t latent_bytes = kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  std::vector<uint8_t> records;
  auto append = [&](int64_t offset, int64_t num_bytes) {
    records.insert(records.end(), pool_.begin() + offset, pool_.begin() + offset + num_bytes);
  };
  for (int64_t position = 0; position < num_tokens; ++position) {
    const int32_t page = sequence.pages[position / kvcache::kPageTokens];
    const int64_t slot = position % kvcache::kPageTokens;
    append(layout_.LatentOffset(layer, page) + slot * latent_bytes, latent_bytes);
    append(layout_.IndexOffset(layer, page) + slot * kvcache::kIndexDim, kvcache::kIndexDim);
    append(layout_.IndexOffset(layer, page) + kvcache::kIndexScaleOffset + slot * 4, 4);
  }
  return records;
}

std::vector<uint8_t> TestModel::Latents(const TestSequence& sequence, int layer, int64_t num_tokens) const {
  const int64_t latent_bytes = kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  std::vector<uint8_t> records;
  for (int64_t position = 0; position < num_tokens; ++position) {
    const int32_t page = sequence.pages[position / kvcache::kPageTokens];
    const auto record =
        pool_.begin() + layout_.LatentOffset(layer, page) + position % kvcache::kPageTokens * latent_bytes;
    records.insert(records.end(), record, record + latent_bytes);
  }
  return records;
}

double Distance(absl::Span<const float> x, absl::Span<const float> y) {
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += static_cast<double>(x[i]) * y[i];
    xx += static_cast<double>(x[i]) * x[i];
    yy += static_cast<double>(y[i]) * y[i];
  }
  return 1 - 2 * xy / (xx + yy);
}

}  // namespace tandem::model
