// Proves, on v32-micro, that a row's bits depend on that row alone: any chunking, batching and placement of pages gives
// the same logits, the same KV bytes, with sparse attention at work (contexts up to 200 tokens, index_topk 16). Also
// the seams: layer_done comes when a layer's records are final, refused batches touch nothing. That the numbers are
// right is deepseek_model_golden_test.cc's matter.
#include "model/deepseek_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu_backend.h"
#include "model/testing/edited_checkpoint.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

constexpr int kVocab = 1024;
constexpr int kPromptTokens = 200;

class DeepseekModelTest : public ::testing::Test {
 protected:
  const std::shared_ptr<const Checkpoint> checkpoint_ = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<int32_t> tokens_ = GoldenTokens(kPromptTokens, kVocab);

  void ExpectSameRecords(const TestModel& a, const TestSequence& sa, const TestModel& b, const TestSequence& sb,
                         int num_layers, int64_t num_tokens) {
    for (int layer = 0; layer < num_layers; ++layer) {
      EXPECT_EQ(a.Records(sa, layer, num_tokens), b.Records(sb, layer, num_tokens)) << "layer " << layer;
    }
  }
};

TEST_F(DeepseekModelTest, GivesTheSameBitsForEveryChunkSizeAndPlacementOfPages) {
  TestModel whole(checkpoint_, {});
  TestSequence reference = whole.NewSequence(kPromptTokens);
  const TestModel::Result expected = whole.Append(reference, tokens_, kPromptTokens);
  uint32_t seed = 2;
  for (int chunk_size : {1, 7, 64, 100}) {
    TestModel chunked(checkpoint_, {.page_order_seed = seed++});
    TestSequence sequence = chunked.NewSequence(kPromptTokens);
    const TestModel::Result result = chunked.Append(sequence, tokens_, chunk_size);
    EXPECT_EQ(result.logits, expected.logits) << "chunks of " << chunk_size;
    EXPECT_TRUE(result.hidden == expected.hidden) << "chunks of " << chunk_size;
    ExpectSameRecords(chunked, sequence, whole, reference, 2, kPromptTokens);
  }
}

TEST_F(DeepseekModelTest, GivesTheSameBitsForEveryCompanyInABatch) {
  // Three sequences of different lengths, advanced together by random numbers of rows, against each alone.
  const int lengths[] = {150, 90, 33};
  TestModel together(checkpoint_, {.page_order_seed = 9});
  TestModel alone(checkpoint_, {});
  std::vector<TestSequence> sequences, references;
  std::vector<TestModel::Result> expected;
  std::vector<std::vector<int32_t>> prompts;
  for (int length : lengths) {
    prompts.push_back(GoldenTokens(length, kVocab));
    sequences.push_back(together.NewSequence(length));
    references.push_back(alone.NewSequence(length));
    expected.push_back(alone.Append(references.back(), prompts.back(), length));
  }
  std::mt19937 random(3);
  int num_mixed = 0;
  while (true) {
    std::vector<int32_t> tokens, logits_rows;
    std::vector<Segment> segments;
    std::vector<std::pair<int, int64_t>> origin;  // (sequence, position) of each row
    for (int s = 0; s < 3; ++s) {
      const int left = lengths[s] - static_cast<int>(sequences[s].num_cached);
      const int count = std::min<int>(left, random() % 40);
      if (count == 0) continue;
      segments.push_back({.row_begin = static_cast<int>(tokens.size()),
                          .num_rows = count,
                          .first_position = sequences[s].num_cached,
                          .page_table = sequences[s].pages});
      for (int i = 0; i < count; ++i) {
        const int64_t position = sequences[s].num_cached + i;
        tokens.push_back(prompts[s][position]);
        if (random() % 2 == 0) {
          logits_rows.push_back(static_cast<int32_t>(origin.size()));
        }
        origin.emplace_back(s, position);
      }
      sequences[s].num_cached += count;
    }
    if (std::equal(std::begin(lengths), std::end(lengths), sequences.begin(),
                   [](int length, const TestSequence& s) { return length == s.num_cached; }) &&
        tokens.empty()) {
      break;
    }
    num_mixed += segments.size() > 1;
    std::vector<float> logits(logits_rows.size() * kVocab);
    ASSERT_TRUE(together.model()
                    .Forward(
                        {.tokens = tokens, .segments = segments, .logits_rows = logits_rows}, [](int) {},
                        absl::MakeSpan(logits))
                    .ok());
    for (size_t i = 0; i < logits_rows.size(); ++i) {
      const auto [s, position] = origin[logits_rows[i]];
      EXPECT_TRUE(
          std::equal(&logits[i * kVocab], &logits[(i + 1) * kVocab - 1] + 1, &expected[s].logits[position * kVocab]))
          << "sequence " << s << " position " << position;
    }
  }
  EXPECT_GE(num_mixed, 3);
  for (int s = 0; s < 3; ++s) ExpectSameRecords(together, sequences[s], alone, references[s], 2, lengths[s]);
}

TEST_F(DeepseekModelTest, MtpGivesTheSameBitsForEveryChunkSize) {
  TestModel whole(checkpoint_, {});
  TestSequence reference = whole.NewSequence(kPromptTokens);
  const TestModel::Result main = whole.Append(reference, tokens_, kPromptTokens);
  std::vector<int32_t> next(tokens_.begin() + 1, tokens_.end());
  next.push_back(7);
  const TestModel::Result expected = whole.RunMtp(reference, next, main.hidden, kPromptTokens);
  for (int chunk_size : {1, 64, 77}) {
    TestModel chunked(checkpoint_, {.page_order_seed = 5});
    TestSequence sequence = chunked.NewSequence(kPromptTokens);
    const TestModel::Result result = chunked.RunMtp(sequence, next, main.hidden, chunk_size);
    EXPECT_EQ(result.logits, expected.logits) << "chunks of " << chunk_size;
    EXPECT_TRUE(result.hidden == expected.hidden) << "chunks of " << chunk_size;
    EXPECT_EQ(chunked.Records(sequence, 2, kPromptTokens), whole.Records(reference, 2, kPromptTokens));
  }
}

TEST_F(DeepseekModelTest, RunsWithoutTheMtpLayerToTheSameBits) {
  TestModel with(checkpoint_, {.with_mtp = true}), without(checkpoint_, {.with_mtp = false});
  EXPECT_EQ(with.model().num_layers(), 3);
  EXPECT_EQ(without.model().num_layers(), 2);
  TestSequence a = with.NewSequence(40), b = without.NewSequence(40);
  const absl::Span<const int32_t> prompt = absl::MakeConstSpan(tokens_).first(40);
  EXPECT_EQ(with.Append(a, prompt, 40).logits, without.Append(b, prompt, 40).logits);
  const Segment segment{.row_begin = 0, .num_rows = 1, .first_position = 0, .page_table = b.pages};
  const std::vector<kernels::Bf16> hidden(128);
  EXPECT_EQ(
      without.model().RunMtp({.tokens = prompt.first(1), .segments = {&segment, 1}}, hidden, [](int) {}, {}, {}).code(),
      absl::StatusCode::kFailedPrecondition);
}

// Rewrites FP8 linears whose names `is_chosen` as BF16.
TensorEdit StoreLinearsAsBf16(bool (*is_chosen)(absl::string_view name)) {
  return [is_chosen](std::vector<OwnTensor>& tensors) {
    std::vector<std::string> names;
    for (const OwnTensor& own : tensors) {
      if (own.tensor.dtype == DType::kF8E4m3 && is_chosen(own.tensor.name)) names.push_back(own.tensor.name);
    }
    ASSERT_FALSE(names.empty());
    for (const std::string& name : names) StoreAsBf16(tensors, name);
  };
}

TEST_F(DeepseekModelTest, RunsBf16LinearsAndExpertsNearTheFp8Ones) {
  TestModel fp8(checkpoint_, {});
  TestSequence reference = fp8.NewSequence(100);
  const absl::Span<const int32_t> prompt = absl::MakeConstSpan(tokens_).first(100);
  const std::vector<float> expected = fp8.Append(reference, prompt, 100).logits;
  bool (*const choices[])(absl::string_view) = {
      [](absl::string_view) { return true; },
      [](absl::string_view name) { return absl::StrContains(name, ".experts."); },
      [](absl::string_view name) { return absl::StrContains(name, "experts.") && absl::StrContains(name, "up_proj"); },
      [](absl::string_view name) { return absl::StrContains(name, "self_attn"); },
  };
  for (const auto& is_chosen : choices) {
    const auto checkpoint = MakeEditedCheckpoint(StoreLinearsAsBf16(is_chosen));
    TestModel whole(checkpoint, {}), chunked(checkpoint, {.page_order_seed = 4});
    TestSequence a = whole.NewSequence(100), b = chunked.NewSequence(100);
    const std::vector<float> logits = whole.Append(a, prompt, 100).logits;
    EXPECT_EQ(chunked.Append(b, prompt, 13).logits, logits);
    // Weights are the same numbers; activations are not quantised: E4M3's error, 2^-4 a value. Compared where every
    // position is attended to, since that error also moves choices.
    const size_t num_dense = size_t{16} * kVocab;
    const double d =
        Distance(absl::MakeConstSpan(logits).first(num_dense), absl::MakeConstSpan(expected).first(num_dense));
    EXPECT_LT(d, 0.03);
    EXPECT_GT(d, 1e-6);
  }
}

TEST_F(DeepseekModelTest, RunsTheVariantsThatAConfigurationMayName) {
  const absl::Span<const int32_t> prompt = absl::MakeConstSpan(tokens_).first(100);
  TestModel plain(checkpoint_, {});
  TestSequence reference = plain.NewSequence(100);
  const std::vector<float> expected = plain.Append(reference, prompt, 100).logits;
  const TensorEdit nothing = [](std::vector<OwnTensor>&) {};
  const TensorEdit drop_bias = [](std::vector<OwnTensor>& tensors) {
    for (int layer : {1, 2}) Erase(tensors, absl::StrCat("model.layers.", layer, ".mlp.gate.e_score_correction_bias"));
  };
  const std::shared_ptr<const Checkpoint> variants[] = {
      MakeEditedCheckpoint(nothing, {{",\"scale_fmt\":\"ue8m0\"", ""}}),
      MakeEditedCheckpoint(nothing, {{"\"n_shared_experts\":1", "\"n_shared_experts\":0"}}),
      MakeEditedCheckpoint(drop_bias),
      MakeEditedCheckpoint(nothing, {{"\"norm_topk_prob\":true", "\"norm_topk_prob\":false"}}),
      MakeEditedCheckpoint(nothing, {{"\"n_group\":4", "\"n_group\":1"}, {"\"topk_group\":2", "\"topk_group\":1"}}),
      MakeEditedCheckpoint(nothing, {{"\"index_topk\":16", "\"index_topk\":64"}}),
      MakeEditedCheckpoint(nothing, {{"\"hidden_act\"", "\"indexer_rope_interleave\":true,\"hidden_act\""}}),
      MakeEditedCheckpoint(nothing, {{"\"factor\":40", "\"factor\":1"}}),
  };
  std::vector<std::vector<float>> seen = {expected};
  for (const auto& checkpoint : variants) {
    TestModel whole(checkpoint, {}), chunked(checkpoint, {.page_order_seed = 6});
    TestSequence a = whole.NewSequence(100), b = chunked.NewSequence(100);
    const std::vector<float> logits = whole.Append(a, prompt, 100).logits;
    EXPECT_EQ(chunked.Append(b, prompt, 13).logits, logits);
    EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); }));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), logits), 0) << "variant " << seen.size() << " is another model";
    seen.push_back(logits);
  }
}

TEST_F(DeepseekModelTest, ReadsMisalignedTensorsToTheSameBits) {
  const auto shifted = MakeEditedCheckpoint([](std::vector<OwnTensor>& tensors) {
    tensors.insert(tensors.begin(), OwnTensor{{"odd", DType::kU8, {1}, {}}, {1}});
  });
  TestModel a(checkpoint_, {}), b(shifted, {});
  TestSequence sa = a.NewSequence(60), sb = b.NewSequence(60);
  const absl::Span<const int32_t> prompt = absl::MakeConstSpan(tokens_).first(60);
  EXPECT_EQ(a.Append(sa, prompt, 60).logits, b.Append(sb, prompt, 60).logits);
}

TEST_F(DeepseekModelTest, CallsLayerDoneInOrderWithTheLayersRecordsFinal) {
  TestModel model(checkpoint_, {});
  TestSequence sequence = model.NewSequence(100);
  const Segment segment{.row_begin = 0, .num_rows = 100, .first_position = 0, .page_table = sequence.pages};
  std::vector<std::vector<uint8_t>> at_done;
  ASSERT_TRUE(model.model()
                  .Forward({.tokens = absl::MakeConstSpan(tokens_).first(100), .segments = {&segment, 1}},
                           [&](int layer) {
                             ASSERT_EQ(layer, static_cast<int>(at_done.size()));
                             at_done.push_back(model.Records(sequence, layer, 100));
                           },
                           {})
                  .ok());
  ASSERT_EQ(at_done.size(), 2u);
  for (int layer = 0; layer < 2; ++layer) EXPECT_EQ(at_done[layer], model.Records(sequence, layer, 100));
  EXPECT_NE(at_done[0], at_done[1]);
}

TEST_F(DeepseekModelTest, WritesItsOwnSlotsOnly) {
  TestModel model(checkpoint_, {});
  TestSequence sequence = model.NewSequence(100);
  std::vector<uint8_t> before = model.pool();
  model.Append(sequence, absl::MakeConstSpan(tokens_).first(70), 70);
  // Undo the sequence's own slots; everything else must be as it was.
  const kvcache::KvLayout& layout = model.layout();
  for (int layer = 0; layer < 2; ++layer) {
    for (int position = 0; position < 70; ++position) {
      const int64_t page = sequence.pages[position / 64], slot = position % 64;
      std::fill_n(&model.pool()[layout.LatentOffset(layer, page) + slot * 656], 656, 0xA5);
      std::fill_n(&model.pool()[layout.IndexOffset(layer, page) + slot * 128], 128, 0xA5);
      std::fill_n(&model.pool()[layout.IndexOffset(layer, page) + 64 * 128 + slot * 4], 4, 0xA5);
    }
  }
  EXPECT_TRUE(model.pool() == before);
}

TEST_F(DeepseekModelTest, AttendsToTheSelectedPositionsAndNothingElse) {
  std::map<std::string, std::vector<int32_t>> selected;
  TestModel model(checkpoint_, {.tap = [&](const Tensor& tensor) {
                    if (tensor.dtype != DType::kI32 || !absl::EndsWith(tensor.name, "selected")) return;
                    const auto* values = reinterpret_cast<const int32_t*>(tensor.bytes.data());
                    selected[tensor.name].assign(values, values + tensor.bytes.size() / 4);
                  }});
  TestSequence sequence = model.NewSequence(kPromptTokens);
  const absl::Span<const int32_t> all(tokens_);
  model.Append(sequence, all.first(kPromptTokens - 1), 64);
  const TestSequence before_last = sequence;
  const TestModel::Result expected = model.Append(sequence, all.last(1), 1);
  ASSERT_EQ(selected.size(), 2u);
  std::vector<uint8_t> intact = model.pool();
  int num_unselected = 0;
  for (int layer = 0; layer < 2; ++layer) {
    const std::vector<int32_t> list = selected.at("L" + std::to_string(layer) + ".selected");
    ASSERT_EQ(list.size(), 16u);
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
    EXPECT_GE(list.front(), 0);
    // Latents that no row may read any more: overwriting them must change nothing.
    for (int position = 0; position < kPromptTokens - 1; ++position) {
      if (std::binary_search(list.begin(), list.end(), position)) continue;
      const int64_t page = sequence.pages[position / 64], slot = position % 64;
      std::fill_n(&model.pool()[model.layout().LatentOffset(layer, page) + slot * 656], 656, 0x7f);
      ++num_unselected;
    }
  }
  EXPECT_GT(num_unselected, 300);
  TestSequence again = before_last;
  EXPECT_EQ(model.Append(again, all.last(1), 1).logits, expected.logits);
  // And a selected one does matter.
  model.pool() = intact;
  const int32_t chosen = selected.at("L0.selected")[3];
  model.pool()[model.layout().LatentOffset(0, sequence.pages[chosen / 64]) + chosen % 64 * 656] ^= 0x80;
  again = before_last;
  EXPECT_NE(model.Append(again, all.last(1), 1).logits, expected.logits);
}

TEST_F(DeepseekModelTest, RefusesABadBatchBeforeItTouchesThePool) {
  TestModel model(checkpoint_, {.num_rows_max = 8});
  TestSequence sequence = model.NewSequence(64);
  const std::vector<uint8_t> before = model.pool();
  const Segment segment{.row_begin = 0, .num_rows = 9, .first_position = 0, .page_table = sequence.pages};
  auto forward = [&](absl::Span<const int32_t> tokens, const Segment& s, absl::Span<const int32_t> rows,
                     size_t num_logits) {
    std::vector<float> logits(num_logits);
    return model.model().Forward(
        {.tokens = tokens, .segments = {&s, 1}, .logits_rows = rows}, [](int) {}, absl::MakeSpan(logits));
  };
  absl::Status status = forward(absl::MakeConstSpan(tokens_).first(9), segment, {}, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "batch of 9 rows, limit 8");
  Segment short_segment = segment;
  short_segment.num_rows = 1;
  status = forward({1}, short_segment, {0}, kVocab - 1);
  EXPECT_EQ(status.message(), "logits of 1023 values, the batch takes 1024");
  EXPECT_FALSE(forward({kVocab}, short_segment, {}, 0).ok());
  EXPECT_TRUE(model.pool() == before);
  EXPECT_TRUE(forward({1}, short_segment, {0}, kVocab).ok());
  EXPECT_TRUE(model.model().Forward({}, [](int) {}, {}).ok()) << "an empty batch does nothing";
}

TEST_F(DeepseekModelTest, RefusesAPoolOfAnotherShape) {
  kernels::CpuBackend backend(1);
  std::vector<uint8_t> pool(1000);
  const kvcache::KvLayout layout{.num_layers = 2, .num_pages = 4};
  auto create = [&](const kvcache::KvLayout& l, DeepseekModelOptions options) {
    return DeepseekModel::Create(backend, checkpoint_, l, absl::MakeSpan(pool), options).status();
  };
  EXPECT_EQ(create(layout, {}).message(), "KV pool of 1000 bytes, 4 pages take 403456");
  EXPECT_EQ(create({.num_layers = 3, .num_pages = 4}, {}).message(), "KV layout of 3 layers, the model has 2");
  EXPECT_EQ(create(layout, {.with_mtp = true}).message(), "KV layout of 2 layers, the model has 3");
  pool.resize(layout.pool_bytes());
  EXPECT_EQ(create(layout, {.num_rows_max = 0}).message(), "num_rows_max is 0, at least 1");
  EXPECT_EQ(create(layout, {.num_positions_max = 163841}).message(),
            "num_positions_max is 163841, allowed 1 to 163840");
  EXPECT_TRUE(create(layout, {}).ok());
}

// Index Cache: what a layer 'S' attends to is what the layer before chose, in every chunking, and a context that
// index_topk holds knows no difference.
TEST(IndexCacheTest, ASharedChoiceIsThatOfTheLayerBefore) {
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  constexpr int kTokens = 70;
  const int topk = checkpoint->config().index_topk;
  const std::vector<int32_t> tokens = GoldenTokens(kTokens, checkpoint->config().vocab_size);
  const auto run = [&](const std::string& pattern, int chunk) {
    TestModel model(checkpoint, {.index_topk_pattern = pattern});
    TestSequence sequence = model.NewSequence(kTokens);
    return model.Append(sequence, tokens, chunk).logits;
  };
  const std::vector<float> own = run("", kTokens), shared = run("FS", kTokens);
  EXPECT_EQ(run("FF", kTokens), own);
  EXPECT_EQ(run("FS", 13), shared);
  const int64_t same = int64_t{topk} * checkpoint->config().vocab_size;
  EXPECT_TRUE(std::equal(own.begin(), own.begin() + same, shared.begin()));
  EXPECT_FALSE(std::equal(own.begin() + same, own.end(), shared.begin() + same)) << "the layers chose alike by chance";
}

// dense_context_max: rows up to it are what they would be with an index_topk as large, and the others' own choice of
// index_topk is what it was; in every chunking.
TEST(DenseAttentionTest, RowsUpToTheLimitAttendToAllAndOthersChooseAsBefore) {
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  constexpr int kTokens = 90, kDense = 50;
  const int topk = checkpoint->config().index_topk;
  const int64_t vocab = checkpoint->config().vocab_size;
  const std::vector<int32_t> tokens = GoldenTokens(kTokens, checkpoint->config().vocab_size);
  std::vector<int64_t> num_chosen;  // of each row in layer 0
  const auto run = [&](int64_t dense, int chunk) {
    num_chosen.clear();
    const auto count_chosen = [&](const Tensor& tensor) {
      if (tensor.name != "L0.selected") return;
      std::vector<int32_t> all(tensor.bytes.size() / sizeof(int32_t));
      std::memcpy(all.data(), tensor.bytes.data(), tensor.bytes.size());
      const int64_t width = tensor.shape[1];
      for (auto row = all.begin(); row != all.end(); row += width) {
        num_chosen.push_back(width - std::count(row, row + width, -1));
      }
    };
    TestModel model(checkpoint, {.tap = count_chosen, .dense_context_max = dense});
    TestSequence sequence = model.NewSequence(kTokens);
    return model.Append(sequence, tokens, chunk).logits;
  };
  const std::vector<float> sparse = run(0, kTokens);
  EXPECT_EQ(run(topk, kTokens), sparse);
  const std::vector<float> all = run(1000, kTokens);
  for (int i = 0; i < kTokens; ++i) EXPECT_EQ(num_chosen[i], i + 1);
  const std::vector<float> dense = run(kDense, kTokens);
  for (int i = 0; i < kTokens; ++i) EXPECT_EQ(num_chosen[i], i < kDense ? i + 1 : topk);
  EXPECT_EQ(run(kDense, 13), dense);
  EXPECT_EQ(run(kDense, 1), dense);
  EXPECT_TRUE(std::equal(dense.begin(), dense.begin() + kDense * vocab, all.begin()));
  EXPECT_FALSE(std::equal(dense.begin(), dense.begin() + kDense * vocab, sparse.begin())) << "nothing was dense";
}

TEST(DenseAttentionTest, ALimitBelowIndexTopkIsRefused) {
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  const kvcache::KvLayout layout{.num_layers = checkpoint->config().num_hidden_layers, .num_pages = 2};
  std::vector<uint8_t> pool(layout.pool_bytes());
  kernels::CpuBackend backend(1);
  const auto model = DeepseekModel::Create(backend, checkpoint, layout, absl::MakeSpan(pool),
                                           {.num_positions_max = 64, .dense_context_max = 15});
  EXPECT_THAT(model.status().message(), ::testing::HasSubstr("dense_context_max is 15, at least index_topk 16"));
}

TEST(IndexCacheTest, APatternOfAnotherLengthIsRefused) {
  const auto checkpoint = MakeTestCheckpoint("v32-micro", 1);
  const kvcache::KvLayout layout{.num_layers = checkpoint->config().num_hidden_layers, .num_pages = 2};
  std::vector<uint8_t> pool(layout.pool_bytes());
  kernels::CpuBackend backend(1);
  const auto model = DeepseekModel::Create(backend, checkpoint, layout, absl::MakeSpan(pool),
                                           {.num_positions_max = 64, .index_topk_pattern = "FSF"});
  EXPECT_THAT(model.status().message(), ::testing::HasSubstr("index_topk_pattern has 3 letters"));
}

}  // namespace
}  // namespace tandem::model
