#include "model/testing/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "model/decoder_layer.h"
#include "model/kv_mirror.h"

namespace tandem::model {
namespace {

using kernels::Matrix;

constexpr double kKlMax = 1e-3;  // the specification's
// Choices of positions (index logits, over the largest) and experts (scores) with a larger margin are beyond noise.
constexpr float kSteadyMargin = 1e-3f;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// KL(golden || ours) over the stored columns.
double Divergence(absl::Span<const float> logits, absl::Span<const float> golden) {
  auto log_sum = [](absl::Span<const float> x) {
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (float value : x) sum += std::exp(value - max);
    return max + std::log(sum);
  };
  const double ours = log_sum(logits), theirs = log_sum(golden);
  double sum = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    sum += std::exp(golden[i] - theirs) * ((golden[i] - theirs) - (logits[i] - ours));
  }
  return sum;
}

}  // namespace

LayerAlone::LayerAlone(kernels::Backend& backend, std::shared_ptr<const Checkpoint> checkpoint, int layer,
                       kvcache::KvCacheDtype kv_cache_dtype)
    : backend_(backend), layer_(layer), kv_cache_dtype_(kv_cache_dtype) {
  weights_ = *LoadWeights(backend, std::move(checkpoint), false);
}

std::vector<float> LayerAlone::Run(absl::Span<const int32_t> tokens, const TensorTap& tap,
                                   const Mistake& mistake) const {
  ModelConfig config = weights_->config;
  config.index_topk -= mistake.num_keys_dropped;
  const int rows = static_cast<int>(tokens.size());
  const kvcache::KvLayout layout{
      .num_layers = 1, .num_pages = kvcache::PagesForTokens(rows), .kv_cache_dtype = kv_cache_dtype_};
  std::vector<uint8_t> pool(layout.pool_bytes());
  const KvMirror kv(backend_, layout, absl::MakeSpan(pool));
  std::vector<int32_t> pages(layout.num_pages);
  std::iota(pages.rbegin(), pages.rend(), 0);
  BatchPlan plan(backend_, {.num_rows_max = rows,
                            .num_positions_max = rows,
                            .num_pages = layout.num_pages,
                            .vocab_size = config.vocab_size});
  const Segment segment{.row_begin = 0, .num_rows = rows, .first_position = 0, .page_table = pages};
  EXPECT_TRUE(plan.Build({.tokens = tokens, .segments = {&segment, 1}}).ok());
  Workspace workspace(backend_, config, rows, rows, weights_->has_bf16_experts(),
                      /*has_ends_apart=*/!backend_.is_host());
  std::vector<float> table((rows + int64_t{1}) * kvcache::kRopeDim);
  EXPECT_TRUE(
      kernels::BuildRopeTable({.yarn = config.yarn, .table = {table.data(), {rows + 1, kvcache::kRopeDim}}}).ok());
  if (mistake.rope_is_late_from >= 0) {
    const auto late = table.begin() + mistake.rope_is_late_from * int64_t{kvcache::kRopeDim};
    std::copy(late + kvcache::kRopeDim, table.end(), late);
  }
  kernels::BackendMemory memory(backend_);
  const Matrix<float> rope(memory.Allocate<float>(static_cast<int64_t>(table.size())), {rows, kvcache::kRopeDim});
  EXPECT_TRUE(backend_.Upload({rope.data, table.data(), static_cast<int64_t>(table.size() * sizeof(float))}).ok());
  const LayerRun run{.backend = backend_,
                     .config = config,
                     .plan = plan,
                     .workspace = workspace,
                     .rope_table = rope,
                     .softmax_scale = mistake.softmax_scale_factor * 0.1352337789f,  // 192^-0.5 m^2, as specified
                     .layer = layer_,
                     .kv_cache_dtype = kv_cache_dtype_,
                     .latent_pages = kv.LatentPages(0),
                     .index_pages = kv.IndexPages(0),
                     .nan_count = workspace.nan_counts.Slice(0, rows),
                     .tap = tap};
  const auto records_written = [&]() -> absl::Status {
    if (mistake.lost_page < 0) return absl::OkStatus();
    const std::vector<uint8_t> zeros(layout.PageBytes(kvcache::RecordKind::kLatent));
    const absl::Status lost = backend_.Upload(
        {kv.LatentPages(0).Row(pages[mistake.lost_page]), zeros.data(), static_cast<int64_t>(zeros.size())});
    return lost.ok() ? backend_.Synchronize() : lost;
  };
  const auto expect_ok = [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; };
  expect_ok(backend_.GatherRows({.table = weights_->embed_tokens, .rows = plan.tokens(), .out = workspace.x}));
  expect_ok(RunDecoderLayer(run, weights_->layers[layer_], ResidualState::kNone, records_written));
  expect_ok(backend_.AddRmsNorm({.x = workspace.x,
                                 .residual = workspace.residual,
                                 .weight = weights_->norm,
                                 .eps = config.rms_norm_eps,
                                 .y = workspace.x,
                                 .residual_out = workspace.residual}));
  const Matrix<float> logits(memory.Allocate<float>(rows * int64_t{config.vocab_size}), {rows, config.vocab_size});
  expect_ok(backend_.Bf16LinearF32({.x = workspace.x, .weight = weights_->lm_head, .y = logits}));
  std::vector<float> on_host(logits.num_elements());
  expect_ok(backend_.Download({on_host.data(), logits.data, static_cast<int64_t>(on_host.size() * sizeof(float))}));
  expect_ok(backend_.Synchronize());
  return on_host;
}

std::shared_ptr<const Checkpoint> OpenGoldenCheckpoint(const std::string& name) {
  if (name != "tandem-tiny") return MakeTestCheckpoint(name, 1);
  absl::StatusOr<std::shared_ptr<const Checkpoint>> opened = Checkpoint::Open("checkpoints/tandem-tiny");
  TANDEM_CHECK(opened.ok(), opened.status().message());
  return *opened;
}

GoldenModel::GoldenModel(const GoldenCase& golden_case, kernels::Backend* backend)
    : case_(golden_case),
      own_backend_(backend == nullptr ? std::make_unique<kernels::CpuBackend>(1) : nullptr),
      backend_(backend != nullptr ? *backend : *own_backend_),
      golden_(absl::StrCat("tests/golden/model/", golden_case.name, ".safetensors")),
      checkpoint_(OpenGoldenCheckpoint(golden_case.checkpoint)),
      vocab_(checkpoint_->config().vocab_size) {}

GoldenModel::Comparison GoldenModel::Compare(int n, const std::string& run, const std::vector<float>& logits) const {
  const std::string prefix = absl::StrCat("c", n, ".", run, ".");
  const std::vector<int32_t> positions = golden_.Ints(absl::StrCat("c", n, ".positions"));
  const std::vector<float> expected = golden_.Floats(prefix + "logits");
  const size_t columns = expected.size() / positions.size();
  std::vector<double> distances;
  std::vector<float> stored;
  Comparison result;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto ours = absl::MakeConstSpan(&logits[positions[i] * int64_t{vocab_}], columns);
    const auto theirs = absl::MakeConstSpan(&expected[i * columns], columns);
    distances.push_back(Distance(ours, theirs));
    result.kl += Divergence(ours, theirs) / static_cast<double>(positions.size());
    stored.insert(stored.end(), ours.begin(), ours.end());
  }
  result.d = Distance(stored, expected);
  result.median_row_d = Median(distances);
  const std::vector<int32_t> argmax = golden_.Ints(prefix + "argmax");
  const std::vector<float> gaps = golden_.Floats(prefix + "top2_margin");
  const std::vector<bool> is_steady = SteadyRows(n, run);
  for (int row = 0; row < n; ++row) {
    const auto first = logits.begin() + row * int64_t{vocab_};
    if (std::max_element(first, first + vocab_) - first == argmax[row]) continue;
    ++result.num_other_argmax;
    if (is_steady[row]) result.other_gap_max = std::max<double>(result.other_gap_max, gaps[row]);
  }
  std::printf("%-23s %-12s d %.1e  median row d %.1e  KL %.1e  other argmax %d of %d, gaps up to %.3f\n",
              case_.name.c_str(), absl::StrCat("c", n, ".", run).c_str(), result.d, result.median_row_d, result.kl,
              result.num_other_argmax, n, result.other_gap_max);
  return result;
}

std::vector<bool> GoldenModel::SteadyRows(int n, const std::string& run) const {
  // Margins are [layers, n]; those of the MTP layer are the whole's last.
  const std::string prefix = absl::StrCat("c", n, ".", run == "mtp" ? "whole" : run, ".");
  const int num_layers = checkpoint_->config().num_hidden_layers;
  const int num_rows = run == "mtp" ? num_layers + 1 : run == "whole" ? num_layers : 1;
  std::vector<bool> is_steady(n, true);
  for (const char* name : {"index_margin", "router_margin"}) {
    const std::vector<float> margins = golden_.Floats(prefix + name);
    for (int i = 0; i < num_rows * n; ++i) {
      if (margins[i] < kSteadyMargin) is_steady[i % n] = false;
    }
  }
  return is_steady;
}

RunBound GoldenModel::BoundOf(int n, const std::string& run) const {
  const std::string& name = case_.bounds_of.empty() ? case_.name : case_.bounds_of;
  const int context = case_.bounds_context == 0 ? n : case_.bounds_context;
  return ReadRunBound(name, absl::StrCat("c", context, ".", run), case_.noise);
}

std::vector<std::string> GoldenModel::Violations(const Comparison& comparison, const RunBound& bound, int n) {
  std::vector<std::string> violations;
  const auto check = [&](const char* what, double value, double limit) {
    if (!(value <= limit)) violations.push_back(absl::StrCat(what, " is ", value, ", at most ", limit));
  };
  check("d", comparison.d, bound.d);
  check("median row d", comparison.median_row_d, bound.median_row_d);
  check("KL", comparison.kl, kKlMax);
  check("gap of a steady row with another argmax", comparison.other_gap_max, bound.decided_gap);
  check("rows with another argmax", comparison.num_other_argmax, bound.argmax_other * n);
  return violations;
}

TestModel GoldenModel::BuildModel(int n) const {
  return TestModel(checkpoint_, {.num_rows_max = 128,
                                 .num_positions_max = n,
                                 .num_pages = kvcache::PagesForTokens(n) + 3,
                                 .kv_cache_dtype = case_.kv_cache_dtype,
                                 .backend = &backend_,
                                 .index_topk_pattern = case_.index_topk_pattern,
                                 .dense_context_max = case_.dense_context_max});
}

RunBound GoldenModel::BoundOfALayerAlone(int n, const std::string& run) const {
  RunBound bound = BoundOf(n, run);
  bound.d = 1e-4;
  bound.median_row_d = 1e-6;
  return bound;
}

void GoldenModel::ExpectEachLayerAloneMatches() const {
  for (int layer = 0; layer < checkpoint_->config().num_hidden_layers; ++layer) {
    const LayerAlone alone(backend_, checkpoint_, layer, case_.kv_cache_dtype);
    const std::string run = absl::StrCat("alone", layer);
    for (int n : case_.contexts) {
      SCOPED_TRACE(absl::StrCat("c", n, ".", run));
      const Comparison result = Compare(n, run, alone.Run(TokensOf(n), TensorTap()));
      EXPECT_THAT(Violations(result, BoundOfALayerAlone(n, run), n), ::testing::IsEmpty());
    }
  }
}

void GoldenModel::ExpectTheWholeOfACalmModelMatches() const {
  for (int n : case_.contexts) {
    const std::vector<int32_t> tokens = TokensOf(n);
    TestModel model = BuildModel(n);
    TestSequence sequence = model.NewSequence(n);
    const TestModel::Result main = model.Append(sequence, tokens, 100);
    EXPECT_EQ(model.model().num_nan_index_logits(), 0);
    const TestModel::Result mtp =
        model.RunMtp(sequence, golden_.Ints(absl::StrCat("c", n, ".mtp.tokens")), main.hidden, 100);
    for (const auto& [run, logits] : {std::pair("whole", &main.logits), std::pair("mtp", &mtp.logits)}) {
      SCOPED_TRACE(absl::StrCat("c", n, ".", run));
      EXPECT_THAT(Violations(Compare(n, run, *logits), BoundOf(n, run), n), ::testing::IsEmpty());
    }
  }
}

GoldenModel::Comparison GoldenModel::RunWhole(int n) const {
  TestModel model = BuildModel(n);
  TestSequence sequence = model.NewSequence(n);
  const Comparison result = Compare(n, "whole", model.Append(sequence, TokensOf(n), 100).logits);
  EXPECT_EQ(model.model().num_nan_index_logits(), 0);
  return result;
}

void GoldenModel::ExpectTheWholeModelMatchesWithinNoise() const {
  for (int n : case_.contexts) {
    SCOPED_TRACE(absl::StrCat("c", n, ".whole"));
    const Comparison result = RunWhole(n);
    const RunBound bound = BoundOf(n, "whole");
    EXPECT_LE(result.median_row_d, bound.median_row_d);
    EXPECT_LE(result.num_other_argmax, bound.argmax_other * n);
  }
}

}  // namespace tandem::model
