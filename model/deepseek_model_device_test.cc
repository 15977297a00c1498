// Proves, on a CUDA device, what deepseek_model_test.cc and deepseek_model_golden_test.cc prove on the host, and how
// far the device is from the host: layers alone and whole models against the NumPy reference's goldens within the noise
// that was measured for them; a row's bits whatever the chunks, the company and the pages; the trained tandem-tiny,
// teacher forced, against the host in logits, argmax and KV records. Every comparison prints a line that starts with
// CHECK. Skips, saying why, where there is no device.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_backend.h"
#include "model/testing/golden_model.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kvcache::KvCacheDtype;

constexpr double kWholeDistanceMax = 1e-3;  // the specification's, of logits of a whole model with FP8 linears

// One device for the process: opening it costs more than most tests.
kernels::Backend* Device() {
  static auto* opened = new absl::StatusOr<std::unique_ptr<kernels::Backend>>(kernels::cuda::OpenCudaBackend(0));
  if (opened->ok()) return (*opened)->get();
  std::printf("no device: %s\n", opened->status().ToString().c_str());
  return nullptr;
}

class DeviceModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = Device();
    if (device_ == nullptr) GTEST_SKIP() << "no device";
  }
  kernels::Backend* device_ = nullptr;
};

// ---- Against the NumPy reference ----

// The bounds are those of FP8 instructions, which keep about 14 bits. Single rows may choose other experts or
// positions: the median row is bounded, and the share of rows with another argmax.
GoldenCase Fp8Case(const std::string& name, const std::string& checkpoint, std::vector<int> contexts,
                   KvCacheDtype dtype = KvCacheDtype::kFp8E4m3) {
  return {.name = name,
          .checkpoint = checkpoint,
          .contexts = std::move(contexts),
          .kv_cache_dtype = dtype,
          .noise = Noise::kFp8};
}

TEST_F(DeviceModelTest, EachLayerAloneMatchesTheReference) {
  for (const GoldenCase& golden_case :
       {Fp8Case("v32-micro", "v32-micro", {1, 17, 200}), Fp8Case("v32-tiny", "v32-tiny", {65, 1000}),
        Fp8Case("v32-tiny-bf16", "v32-tiny", {200}, KvCacheDtype::kBfloat16),
        Fp8Case("tandem-tiny", "tandem-tiny", {135, 200})}) {
    const GoldenModel golden(golden_case, device_);
    for (int layer = 0; layer < golden.checkpoint()->config().num_hidden_layers; ++layer) {
      const LayerAlone alone(*device_, golden.checkpoint(), layer, golden_case.kv_cache_dtype);
      for (const int n : golden_case.contexts) {
        const std::string run = absl::StrCat("alone", layer);
        SCOPED_TRACE(absl::StrCat(golden_case.name, " c", n, ".", run));
        std::printf("CHECK ");
        const auto result = golden.Compare(n, run, alone.Run(golden.TokensOf(n), TensorTap()));
        const RunBound bound = golden.BoundOf(n, run);
        EXPECT_LE(result.median_row_d, bound.median_row_d);
        EXPECT_LE(result.num_other_argmax, bound.argmax_other * n);
      }
    }
  }
}

TEST_F(DeviceModelTest, TheWholeOfACalmModelMatchesTheReference) {
  GoldenModel({"v32-tiny-calm", "v32-tiny-calm", {1, 65, 1000}}, device_).ExpectTheWholeOfACalmModelMatches();
  GoldenModel({"v32-tiny-calm-bf16", "v32-tiny-calm", {65}, KvCacheDtype::kBfloat16}, device_)
      .ExpectTheWholeOfACalmModelMatches();
}

TEST_F(DeviceModelTest, TheWholeModelMatchesTheReferenceWithinNoise) {
  GoldenModel(Fp8Case("v32-micro", "v32-micro", {1, 16, 17, 40, 200}), device_).ExpectTheWholeModelMatchesWithinNoise();
  GoldenModel(Fp8Case("v32-tiny", "v32-tiny", {64, 65, 1000}), device_).ExpectTheWholeModelMatchesWithinNoise();
}

// Trained weights turn noise into few other choices: the specification's distance, and where an argmax is another the
// reference's two largest logits are closer than noise moves them.
TEST_F(DeviceModelTest, TheWholeOfTheTrainedModelMatchesTheReference) {
  for (const GoldenCase& golden_case : {Fp8Case("tandem-tiny", "tandem-tiny", {135, 200}),
                                        Fp8Case("tandem-tiny-bf16", "tandem-tiny", {200}, KvCacheDtype::kBfloat16)}) {
    const GoldenModel golden(golden_case, device_);
    for (const int n : golden_case.contexts) {
      const auto result = golden.RunWhole(n);
      const RunBound bound = golden.BoundOf(n, "whole");
      EXPECT_LE(result.d, kWholeDistanceMax);
      EXPECT_LE(result.other_gap_max, bound.decided_gap);
      EXPECT_LE(result.num_other_argmax, bound.argmax_other * n);
    }
  }
}

// Contexts of up to 120 tokens whole, longer ones by choice; steps of one row, recorded, give the bits of the whole.
TEST_F(DeviceModelTest, DenseAttentionUpToALimitMatchesTheReferenceInEveryChunking) {
  GoldenCase golden_case = Fp8Case("v32-micro-dense", "v32-micro", {200});
  golden_case.dense_context_max = 120;
  GoldenModel(golden_case, device_).ExpectTheWholeModelMatchesWithinNoise();

  constexpr int kTokens = 200, kVocab = 1024;
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int32_t> tokens = GoldenTokens(kTokens, kVocab);
  const auto run = [&](int64_t dense_context_max, int chunk_size) {
    TestModel model(
        checkpoint,
        {.with_mtp = false, .backend = device_, .writes_back_kv = false, .dense_context_max = dense_context_max});
    TestSequence sequence = model.NewSequence(kTokens);
    return model.Append(sequence, tokens, chunk_size).logits;
  };
  const std::vector<float> whole = run(120, kTokens);
  for (const int chunk_size : {1, 13}) EXPECT_TRUE(run(120, chunk_size) == whole) << "chunks of " << chunk_size;
  EXPECT_FALSE(run(0, kTokens) == whole) << "nothing was dense";
}

// ---- A row's bits are its own ----

TEST_F(DeviceModelTest, GivesTheSameBitsForEveryChunkSizeAndPlacementOfPages) {
  constexpr int kTokens = 200, kVocab = 1024;
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int32_t> tokens = GoldenTokens(kTokens, kVocab);
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    TestModel whole(checkpoint, {.kv_cache_dtype = dtype, .backend = device_});
    TestSequence reference = whole.NewSequence(kTokens);
    const TestModel::Result expected = whole.Append(reference, tokens, kTokens);
    uint32_t seed = 2;
    for (const int chunk_size : {1, 7, 64, 100}) {
      TestModel chunked(checkpoint, {.kv_cache_dtype = dtype, .page_order_seed = seed++, .backend = device_});
      TestSequence sequence = chunked.NewSequence(kTokens);
      const TestModel::Result result = chunked.Append(sequence, tokens, chunk_size);
      int64_t num_rows_other = 0, first = -1;
      for (int row = 0; row < kTokens; ++row) {
        const bool is_same = std::memcmp(&result.logits[row * kVocab], &expected.logits[row * kVocab], kVocab * 4) == 0;
        num_rows_other += is_same ? 0 : 1;
        if (!is_same && first < 0) first = row;
      }
      std::string layers;
      for (int layer = 0; layer < 2; ++layer) {
        const bool is_same = chunked.Records(sequence, layer, kTokens) == whole.Records(reference, layer, kTokens);
        absl::StrAppend(&layers, " layer ", layer, is_same ? " same" : " OTHER");
        EXPECT_TRUE(is_same) << "records of layer " << layer << ", chunks of " << chunk_size;
      }
      std::printf("CHECK %s chunks of %d: %lld of %d rows of logits differ, first %lld; records:%s\n",
                  std::string(KvCacheDtypeName(dtype)).c_str(), chunk_size, static_cast<long long>(num_rows_other),
                  kTokens, static_cast<long long>(first), layers.c_str());
      EXPECT_EQ(num_rows_other, 0) << "chunks of " << chunk_size;
      EXPECT_TRUE(result.hidden == expected.hidden) << "chunks of " << chunk_size;
    }
  }
}

TEST_F(DeviceModelTest, GivesTheSameBitsForEveryCompanyInABatch) {
  constexpr int kVocab = 1024;
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  const int lengths[] = {150, 90, 33, 200, 65};
  constexpr int kSequences = 5;
  TestModel together(checkpoint, {.num_pages = 40, .page_order_seed = 9, .backend = device_});
  TestModel alone(checkpoint, {.num_pages = 40, .backend = device_});
  std::vector<TestSequence> sequences, references;
  std::vector<TestModel::Result> expected;
  std::vector<std::vector<int32_t>> prompts;
  for (const int length : lengths) {
    prompts.push_back(GoldenTokens(length, kVocab));
    sequences.push_back(together.NewSequence(length));
    references.push_back(alone.NewSequence(length));
    expected.push_back(alone.Append(references.back(), prompts.back(), length));
  }
  std::mt19937 random(3);
  int num_rows = 0, num_other = 0, num_steps = 0;
  while (true) {
    std::vector<int32_t> tokens;
    std::vector<Segment> segments;
    std::vector<std::pair<int, int64_t>> origin;  // (sequence, position) of each row
    int num_left = 0;
    for (int s = 0; s < kSequences; ++s) {
      const int left = lengths[s] - static_cast<int>(sequences[s].num_cached);
      num_left += left;
      const int count = std::min<int>(left, static_cast<int>(random() % 40));
      if (count == 0) continue;
      segments.push_back({.row_begin = static_cast<int>(tokens.size()),
                          .num_rows = count,
                          .first_position = sequences[s].num_cached,
                          .page_table = sequences[s].pages});
      for (int i = 0; i < count; ++i) {
        tokens.push_back(prompts[s][sequences[s].num_cached + i]);
        origin.emplace_back(s, sequences[s].num_cached + i);
      }
      sequences[s].num_cached += count;
    }
    if (num_left == 0) break;
    ++num_steps;
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(rows.size() * kVocab);
    const absl::Status status = together.model().Forward(
        {.tokens = tokens, .segments = segments, .logits_rows = rows}, [](int) {}, absl::MakeSpan(logits));
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto [s, position] = origin[i];
      const bool is_same =
          std::memcmp(&logits[i * kVocab], &expected[s].logits[position * kVocab], kVocab * sizeof(float)) == 0;
      ++num_rows;
      if (is_same) continue;
      if (num_other++ == 0) std::printf("CHECK company: first other row: sequence %d position %d\n", s, int(position));
    }
  }
  std::printf("CHECK company: %d of %d rows differ, %d steps\n", num_other, num_rows, num_steps);
  EXPECT_EQ(num_other, 0);
  for (int s = 0; s < kSequences; ++s) {
    for (int layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(together.Records(sequences[s], layer, lengths[s]), alone.Records(references[s], layer, lengths[s]))
          << "sequence " << s << " layer " << layer;
    }
  }
}

TEST_F(DeviceModelTest, RecordedStepsGiveTheSameBits) {
  constexpr int kTokens = 200, kVocab = 1024;
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int32_t> tokens = GoldenTokens(kTokens, kVocab);
  TestModel eager(checkpoint, {.with_mtp = false, .backend = device_, .writes_back_kv = false, .records_steps = false});
  TestSequence reference = eager.NewSequence(kTokens);
  const std::vector<float> expected = eager.Append(reference, tokens, kTokens).logits;
  for (const int chunk_size : {1, 3, 20, 100}) {
    TestModel recorded(checkpoint, {.with_mtp = false, .backend = device_, .writes_back_kv = false});
    TestSequence sequence = recorded.NewSequence(kTokens);
    const std::vector<float> actual = recorded.Append(sequence, tokens, chunk_size).logits;
    int num_other = 0, first = -1;
    for (int row = 0; row < kTokens; ++row) {
      if (std::memcmp(&actual[row * kVocab], &expected[row * kVocab], kVocab * sizeof(float)) == 0) continue;
      if (num_other++ == 0) first = row;
    }
    std::printf("CHECK recorded steps of %d: %d of %d rows differ, first %d\n", chunk_size, num_other, kTokens, first);
    EXPECT_EQ(num_other, 0);
  }
}

// ---- Against the host ----

struct StageError {
  int64_t count = 0, num_other = 0;
  double distance = 0, max_abs = 0;
};

// Values of a captured tensor as floats; ids as they are.
std::vector<float> ValuesOf(DType dtype, absl::Span<const uint8_t> bytes) {
  std::vector<float> values;
  const auto convert = [&]<typename T>(T) {
    values.resize(bytes.size() / sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_arithmetic_v<T>) {
        values[i] = static_cast<float>(value);
      } else {
        values[i] = ToFloat(value);
      }
    }
  };
  if (dtype == DType::kBf16) {
    convert(Bf16());
  } else if (dtype == DType::kF8E4m3) {
    convert(kernels::E4m3());
  } else if (dtype == DType::kF32) {
    convert(float());
  } else {
    convert(int32_t());
  }
  return values;
}

StageError Compare(const std::vector<float>& actual, const std::vector<float>& expected) {
  StageError error{.count = static_cast<int64_t>(expected.size())};
  std::vector<float> a, e;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool both_nan = std::isnan(actual[i]) && std::isnan(expected[i]);
    if (actual[i] == expected[i] || both_nan) {
      if (!std::isfinite(expected[i])) continue;
    } else {
      ++error.num_other;
      error.max_abs = std::max<double>(error.max_abs, std::fabs(actual[i] - expected[i]));
    }
    a.push_back(actual[i]);
    e.push_back(expected[i]);
  }
  error.distance = e.empty() || std::all_of(e.begin(), e.end(), [](float x) { return x == 0; }) ? 0 : Distance(a, e);
  return error;
}

// The first row of a prompt has no history: nothing but arithmetic is between the two, until a choice differs.
TEST_F(DeviceModelTest, StagesBesideTheHosts) {
  constexpr int kVocab = 1024;
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  for (const int n : {1, 40, 200}) {
    const std::vector<int32_t> tokens = GoldenTokens(n, kVocab);
    using Stages = std::map<std::string, std::vector<float>>;
    std::vector<std::string> order;
    Stages stages[2];
    const auto tap_into = [&](int side) {
      return [&, side](const Tensor& tensor) {
        if (side == 0) order.push_back(tensor.name);
        stages[side][tensor.name] = ValuesOf(tensor.dtype, tensor.bytes);
      };
    };
    TestModel host(checkpoint, {.with_mtp = false, .tap = tap_into(0)});
    TestModel device(checkpoint, {.with_mtp = false, .tap = tap_into(1), .backend = device_});
    TestSequence host_sequence = host.NewSequence(n), device_sequence = device.NewSequence(n);
    const std::vector<float> expected = host.Append(host_sequence, tokens, n).logits;
    const std::vector<float> actual = device.Append(device_sequence, tokens, n).logits;
    std::printf("%-24s %10s %10s %12s %12s\n", absl::StrCat("n = ", n).c_str(), "values", "other", "d", "max abs");
    for (const std::string& name : order) {
      ASSERT_EQ(stages[1][name].size(), stages[0][name].size()) << name;
      const StageError error = Compare(stages[1][name], stages[0][name]);
      std::printf("CHECK %-18s %10lld %10lld %12.2e %12.3g\n", name.c_str(), static_cast<long long>(error.count),
                  static_cast<long long>(error.num_other), error.distance, error.max_abs);
      // What comes before the first choice of layer 0 differs by rounding alone.
      const std::vector<std::string> early = {"L0.input", "L0.qr", "L0.c", "L0.k_rope", "L0.q", "L0.index_w"};
      if (std::find(early.begin(), early.end(), name) != early.end()) {
        EXPECT_LE(error.distance, 1e-4) << name << ", n = " << n;
      }
    }
    const StageError error = Compare(actual, expected);
    std::printf("CHECK logits             %10lld %10lld %12.2e %12.3g\n", static_cast<long long>(error.count),
                static_cast<long long>(error.num_other), error.distance, error.max_abs);
  }
}

// Records of one layer as values: latents times their scales and rotary keys; index keys times theirs.
struct RecordValues {
  std::vector<float> latents, rope_keys, index_keys;
};
RecordValues RecordsAsValues(const std::vector<uint8_t>& records) {
  RecordValues values;
  constexpr int kLatentBytes = kvcache::LatentRecordBytes(KvCacheDtype::kFp8E4m3);
  constexpr int kBytes = kLatentBytes + kvcache::kIndexDim + 4;
  const auto float_at = [](const uint8_t* bytes) {
    float value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  };
  for (size_t begin = 0; begin < records.size(); begin += kBytes) {
    const uint8_t* record = &records[begin];
    for (int i = 0; i < kvcache::kLatentDim; ++i) {
      const float scale = float_at(record + kvcache::kLatentScaleOffset + i / kvcache::kLatentTile * 4);
      values.latents.push_back(kernels::ToFloat(kernels::E4m3{record[i]}) * scale);
    }
    for (int i = 0; i < kvcache::kRopeDim; ++i) {
      Bf16 value;
      std::memcpy(&value, record + kvcache::LatentRopeOffset(KvCacheDtype::kFp8E4m3) + i * 2, 2);
      values.rope_keys.push_back(kernels::ToFloat(value));
    }
    for (int i = 0; i < kvcache::kIndexDim; ++i) {
      values.index_keys.push_back(kernels::ToFloat(kernels::E4m3{record[kLatentBytes + i]}) *
                                  float_at(record + kLatentBytes + kvcache::kIndexDim));
    }
  }
  return values;
}

int32_t LargestOf(const float* logits, int vocab) {
  return static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits);
}

// A trained model decides: where its two largest logits are apart, device and host must agree.
TEST_F(DeviceModelTest, TandemTinyAgreesWithTheHostUnderTeacherForcing) {
  const auto checkpoint = Checkpoint::Open("checkpoints/tandem-tiny");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const int vocab = (*checkpoint)->config().vocab_size, num_layers = (*checkpoint)->config().num_hidden_layers;
  constexpr int kPrompt = 32, kTokens = 512;
  TestModel host(*checkpoint, {.with_mtp = false}), device(*checkpoint, {.with_mtp = false, .backend = device_});
  TestSequence host_sequence = host.NewSequence(kTokens), device_sequence = device.NewSequence(kTokens);
  // A prompt and what the host says to it, drawn with a little noise so that it does not go in circles.
  std::vector<int32_t> tokens = GoldenTokens(kPrompt, vocab);
  std::mt19937 random(5);
  std::vector<float> expected = host.Append(host_sequence, tokens, kPrompt).logits;
  while (static_cast<int>(tokens.size()) < kTokens) {
    const float* last = &expected[(tokens.size() - 1) * vocab];
    const bool is_strange = random() % 8 == 0;
    tokens.push_back(is_strange ? static_cast<int32_t>(random() % vocab) : LargestOf(last, vocab));
    const std::vector<float> row = host.Append(host_sequence, {tokens.back()}, 1).logits;
    expected.insert(expected.end(), row.begin(), row.end());
  }
  const std::vector<float> actual = device.Append(device_sequence, tokens, 200).logits;
  EXPECT_EQ(device.model().num_nan_index_logits(), 0);
  int num_same = 0;
  double kl = 0, other_gap_max = 0;
  for (int row = 0; row < kTokens; ++row) {
    const float* e = &expected[row * vocab];
    const float* a = &actual[row * vocab];
    const int32_t best = LargestOf(e, vocab), ours = LargestOf(a, vocab);
    num_same += best == ours ? 1 : 0;
    if (best != ours) other_gap_max = std::max<double>(other_gap_max, e[best] - e[ours]);
    double sum_e = 0, sum_a = 0;
    for (int i = 0; i < vocab; ++i) {
      sum_e += std::exp(e[i] - e[best]);
      sum_a += std::exp(a[i] - e[best]);
    }
    for (int i = 0; i < vocab; ++i) {
      const double log_e = e[i] - e[best] - std::log(sum_e), log_a = a[i] - e[best] - std::log(sum_a);
      kl += std::exp(log_e) * (log_e - log_a) / kTokens;
    }
  }
  const double distance = Distance(actual, expected);
  std::printf(
      "CHECK tandem-tiny, %d tokens: d %.2e, KL %.2e, argmax equal %d (%.2f %%), gaps of the others up to %.3f\n",
      kTokens, distance, kl, num_same, 100.0 * num_same / kTokens, other_gap_max);
  EXPECT_LE(distance, 10 * kWholeDistanceMax);  // every eighth token is a strange one
  EXPECT_LE(kl, 0.1);
  EXPECT_GE(num_same, 0.94 * kTokens);
  for (int layer = 0; layer < num_layers; ++layer) {
    const std::vector<uint8_t> device_records = device.Records(device_sequence, layer, kTokens);
    const std::vector<uint8_t> host_records = host.Records(host_sequence, layer, kTokens);
    ASSERT_EQ(device_records.size(), host_records.size());
    int64_t num_bytes_other = 0;
    for (size_t i = 0; i < host_records.size(); ++i) num_bytes_other += device_records[i] != host_records[i] ? 1 : 0;
    const RecordValues ours = RecordsAsValues(device_records), theirs = RecordsAsValues(host_records);
    const double latents = Distance(ours.latents, theirs.latents), rope = Distance(ours.rope_keys, theirs.rope_keys),
                 keys = Distance(ours.index_keys, theirs.index_keys);
    std::printf(
        "CHECK tandem-tiny layer %d records: %.2f %% of bytes differ, d latents %.2e, rope keys %.2e, keys %.2e\n",
        layer, 100.0 * static_cast<double>(num_bytes_other) / static_cast<double>(host_records.size()), latents, rope,
        keys);
    EXPECT_LE(std::max({latents, rope, keys}), 5 * kWholeDistanceMax) << "layer " << layer;
  }
}

// Pages that a transfer brought are read, and what the pool holds later is not.
TEST_F(DeviceModelTest, GoesOnFromPagesThatArrived) {
  constexpr int kTokens = 200, kVocab = 1024;
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int32_t> tokens = GoldenTokens(kTokens, kVocab);
  TestModel prefill(checkpoint, {.with_mtp = false, .backend = device_});
  TestSequence reference = prefill.NewSequence(kTokens + 1);
  prefill.Append(reference, tokens, 77);
  TestModel decode(checkpoint, {.with_mtp = false, .backend = device_});
  decode.pool() = prefill.pool();
  ASSERT_TRUE(decode.model().PagesArrived(reference.pages).ok());
  std::fill(decode.pool().begin(), decode.pool().end(), 0xFF);
  TestSequence arrived{.pages = reference.pages, .num_cached = kTokens};
  EXPECT_EQ(decode.Append(arrived, {5}, 1).logits, prefill.Append(reference, {5}, 1).logits);
}

}  // namespace
}  // namespace tandem::model
