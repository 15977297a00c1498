// Proves, on v32-micro (2 layers, index_topk 16), that HiSparse changes no bit: whatever the buffers' sizes, the order
// of their pages, what was resident, how often sequences left their buffers, how many rows a step has (so that their
// tokens need further windows) and how many of them were drafts that did not stay. Also that attention reads buffers
// and nothing else, and that rows go back to the host when they are known to stay, and no others. On the host and with
// memory apart (detached_backend.h).
#include "model/device_buffers.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "model/testing/backends_under_test.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

constexpr int kVocab = 1024;
constexpr int kTopK = 16;

// A sequence that has logits and records of every position from a model without HiSparse.
struct Reference {
  std::vector<int32_t> tokens;
  TestSequence sequence;
  std::vector<float> logits;
};

class DeviceBuffersTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto backend = OpenBackendUnderTest(GetParam());
    if (!backend.ok()) GTEST_SKIP() << "no device: " << backend.status();
    backend_ = *std::move(backend);
  }
  // Without HiSparse, on the same backend.
  TestModel MakeOff() {
    return TestModel(checkpoint_, {.num_rows_max = 600, .num_pages = 40, .with_mtp = false, .backend = backend_.get()});
  }
  std::unique_ptr<TestModel> MakeModel(int num_device_pages, int num_buffer_pages_max, int64_t num_pages = 40) {
    return std::make_unique<TestModel>(
        checkpoint_, TestModel::Options{.num_pages = num_pages,
                                        .with_mtp = false,
                                        .backend = backend_.get(),
                                        .writes_back_kv = false,
                                        .device_buffers = {.num_pages = num_device_pages,
                                                           .num_buffer_pages_max = num_buffer_pages_max}});
  }
  Reference MakeReference(TestModel& model, int length) {
    Reference reference{.tokens = GoldenTokens(length, kVocab), .sequence = model.NewSequence(length)};
    reference.logits = model.Append(reference.sequence, reference.tokens, length).logits;
    return reference;
  }
  // As a transfer does it: the first tokens' records come into the pages of `sequence`.
  void Arrive(TestModel& from, const Reference& reference, TestModel& to, const TestSequence& sequence,
              int64_t num_tokens) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int p = 0; p < kvcache::PagesForTokens(num_tokens); ++p) {
        for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
          std::copy_n(&from.pool()[from.layout().PageOffset(kind, layer, reference.sequence.pages[p])],
                      from.layout().PageBytes(kind),
                      &to.pool()[to.layout().PageOffset(kind, layer, sequence.pages[p])]);
        }
      }
    }
    ASSERT_TRUE(to.model().PagesArrived(sequence.pages).ok());
  }
  void ExpectLogits(absl::Span<const float> logits, const Reference& reference, int64_t position,
                    const std::string& where) {
    ASSERT_EQ(std::memcmp(logits.data(), &reference.logits[position * kVocab], kVocab * sizeof(float)), 0)
        << where << ", position " << position;
  }

  const std::shared_ptr<const Checkpoint> checkpoint_ = MakeTestCheckpoint("v32-micro", 1);
  std::unique_ptr<kernels::Backend> backend_;
};

TEST_P(DeviceBuffersTest, GivesTheSameBitsFromPromptsShorterAndLongerThanTheBuffer) {
  TestModel off = MakeOff();
  for (const int num_prompt_tokens : {1, 6, 15, 16, 17, 63, 64, 65, 200, 500}) {
    Reference reference = MakeReference(off, num_prompt_tokens + 40);
    const auto on = MakeModel(4, 2);
    TestSequence sequence = on->NewSequence(num_prompt_tokens + 40);
    sequence.device_pages = {3, 1};
    Arrive(off, reference, *on, sequence, num_prompt_tokens);
    sequence.num_cached = num_prompt_tokens;
    const auto generated = absl::MakeConstSpan(reference.tokens).subspan(num_prompt_tokens);
    const TestModel::Result result = on->Append(sequence, generated, 1);
    for (int i = 0; i < 40; ++i) {
      ExpectLogits(absl::MakeConstSpan(result.logits).subspan(i * kVocab, kVocab), reference, num_prompt_tokens + i,
                   absl::StrCat("prompt of ", num_prompt_tokens));
    }
    off.FreeAll();
  }
}

// Rows whose whole context is attended to beyond index_topk: their lists are as long as the buffer, and no longer.
TEST_P(DeviceBuffersTest, GivesTheSameBitsWithDenseAttentionBeyondIndexTopk) {
  constexpr int kDense = 128, kPrompt = 100, kLength = 160;
  const TestModel::Options options{
      .num_rows_max = 600, .num_pages = 40, .with_mtp = false, .backend = backend_.get(), .dense_context_max = kDense};
  TestModel off(checkpoint_, options);
  const Reference reference = MakeReference(off, kLength);
  TestModel::Options with_buffers = options;
  with_buffers.writes_back_kv = false;
  with_buffers.device_buffers = {.num_pages = 4, .num_buffer_pages_max = 3};
  TestModel on(checkpoint_, with_buffers);
  TestSequence sequence = on.NewSequence(kLength);
  sequence.device_pages = {3, 1, 0};
  Arrive(off, reference, on, sequence, kPrompt);
  sequence.num_cached = kPrompt;
  const auto generated = absl::MakeConstSpan(reference.tokens).subspan(kPrompt);
  const TestModel::Result result = on.Append(sequence, generated, 1);
  for (int i = 0; i < kLength - kPrompt; ++i) {
    ExpectLogits(absl::MakeConstSpan(result.logits).subspan(i * kVocab, kVocab), reference, kPrompt + i, "dense");
  }
  EXPECT_NE(MakeReference(*std::make_unique<TestModel>(MakeOff()), kLength).logits, reference.logits);
}

// Slots and residency permuted in every way that an engine has.
TEST_P(DeviceBuffersTest, NoBitDependsOnSlotsResidencyWindowsOrDrafts) {
  constexpr int kSequences = 4;
  const int lengths[kSequences] = {190, 75, 20, 330}, prompts[kSequences] = {100, 70, 1, 290};
  TestModel off = MakeOff();
  std::vector<Reference> references;
  for (const int length : lengths) references.push_back(MakeReference(off, length));
  int64_t num_rejected = 0, num_left = 0, num_windows_more = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    const int num_buffer_pages_max = 2 + static_cast<int>(random() % 2);
    const auto on = MakeModel(24, num_buffer_pages_max);
    std::vector<int32_t> free_pages(24);
    std::iota(free_pages.begin(), free_pages.end(), 0);
    std::vector<TestSequence> sequences;
    for (int s = 0; s < kSequences; ++s) {
      sequences.push_back(on->NewSequence(lengths[s] + 8));
      Arrive(off, references[s], *on, sequences[s], prompts[s]);
      sequences[s].num_cached = prompts[s];
    }
    int64_t num_steps = 0;
    while (!std::all_of(sequences.begin(), sequences.end(),
                        [&, s = 0](const TestSequence& q) mutable { return q.num_cached == lengths[s++]; })) {
      std::vector<int32_t> tokens, logits_rows;
      std::vector<Segment> segments;
      std::vector<int> of_sequence, num_right;
      for (int s = 0; s < kSequences; ++s) {
        TestSequence& sequence = sequences[s];
        const int left = lengths[s] - static_cast<int>(sequence.num_cached);
        if (!sequence.device_pages.empty() && random() % 10 == 0) {  // leaves its buffer
          const Segment whole{.first_position = sequence.num_cached,
                              .page_table = sequence.pages,
                              .device_pages = sequence.device_pages};
          ASSERT_TRUE(on->model().WriteBack(whole).ok());
          on->model().ForgetBuffer(sequence.device_pages[0]);
          free_pages.insert(free_pages.end(), sequence.device_pages.begin(), sequence.device_pages.end());
          sequence.device_pages.clear();
          ++num_left;
        }
        if (left == 0 || random() % 4 == 0) continue;
        // As few pages as its context needs, or all that it may have.
        const int needed = 1 + std::min(num_buffer_pages_max - 1, kvcache::PagesForTokens(sequence.num_cached + 8));
        while (static_cast<int>(sequence.device_pages.size()) < needed) {
          std::swap(free_pages[random() % free_pages.size()], free_pages.back());
          sequence.device_pages.push_back(free_pages.back());
          free_pages.pop_back();
        }
        const int count = 1 + static_cast<int>(random() % 8);
        const int right = std::min<int>(left, 1 + random() % count);
        segments.push_back({.row_begin = static_cast<int>(tokens.size()),
                            .num_rows = count,
                            .first_position = sequence.num_cached,
                            .page_table = sequence.pages,
                            .device_pages = sequence.device_pages});
        of_sequence.push_back(s);
        num_right.push_back(right);
        for (int i = 0; i < count; ++i) {  // the first `right` of them are the sequence's, the others will not stay
          logits_rows.push_back(static_cast<int32_t>(tokens.size()));
          tokens.push_back(i < right ? references[s].tokens[sequence.num_cached + i] : random() % kVocab);
        }
        num_rejected += count - right;
      }
      std::vector<float> logits(tokens.size() * kVocab);
      const absl::Status status = on->model().Forward(
          {.tokens = tokens, .segments = segments, .logits_rows = logits_rows}, [](int) {}, absl::MakeSpan(logits));
      ASSERT_TRUE(status.ok()) << status;
      for (size_t i = 0; i < segments.size(); ++i) {
        TestSequence& sequence = sequences[of_sequence[i]];
        for (int row = 0; row < num_right[i]; ++row) {
          ExpectLogits(absl::MakeConstSpan(logits).subspan((segments[i].row_begin + row) * kVocab, kVocab),
                       references[of_sequence[i]], sequence.num_cached + row, absl::StrCat("seed ", seed));
        }
        sequence.num_cached += num_right[i];
      }
      num_steps += segments.empty() ? 0 : 1;
    }
    const DeviceBufferCounters& counters = *on->model().device_buffer_counters();
    num_windows_more += counters.windows - 2 * num_steps;
    EXPECT_EQ(counters.swapped_in_bytes, 656 * (counters.layers[0].misses + counters.layers[1].misses));
    for (int s = 0; s < kSequences; ++s) {
      const Segment whole{
          .first_position = lengths[s], .page_table = sequences[s].pages, .device_pages = sequences[s].device_pages};
      if (!sequences[s].device_pages.empty()) {
        ASSERT_TRUE(on->model().WriteBack(whole).ok());
      }
      for (int layer = 0; layer < 2; ++layer) {
        EXPECT_EQ(on->Latents(sequences[s], layer, lengths[s]), off.Latents(references[s].sequence, layer, lengths[s]))
            << "layer " << layer << " of sequence " << s;
      }
    }
  }
  EXPECT_GT(num_rejected, 100);
  EXPECT_GT(num_left, 20);
  EXPECT_GT(num_windows_more, 100) << "rows whose tokens do not fit together";
}

TEST_P(DeviceBuffersTest, AttentionReadsBuffersAndNothingElse) {
  TestModel off = MakeOff();
  Reference reference = MakeReference(off, 60);
  const auto on = MakeModel(2, 2);
  TestSequence sequence = on->NewSequence(60);
  sequence.device_pages = {0, 1};
  Arrive(off, reference, *on, sequence, 10);
  sequence.num_cached = 10;
  const auto run = [&] {
    return on->Append(sequence, absl::MakeConstSpan(reference.tokens).subspan(sequence.num_cached, 1), 1).logits;
  };
  ExpectLogits(run(), reference, 10, "all ten tokens are brought");
  const auto spoil_host = [&] {
    for (int layer = 0; layer < 2; ++layer) {
      std::fill_n(&on->pool()[on->layout().LatentOffset(layer, 0)],
                  40 * on->layout().PageBytes(kvcache::RecordKind::kLatent), 0x5C);
    }
  };
  spoil_host();
  ExpectLogits(run(), reference, 11, "nothing is read from the host again");
  const DeviceBufferCounters& counters = *on->model().device_buffer_counters();
  EXPECT_EQ(counters.layers[0].misses, 10);
  EXPECT_EQ(counters.layers[0].hits, 1 + 12);
  on->model().ForgetBuffer(0);
  const std::vector<float> other = run();
  EXPECT_NE(std::memcmp(other.data(), &reference.logits[12 * kVocab], kVocab * sizeof(float)), 0)
      << "a buffer that was forgotten is empty";
}

TEST_P(DeviceBuffersTest, RowsGoBackOnceALaterRowShowsThatTheyStay) {
  const auto on = MakeModel(2, 2);
  TestSequence sequence = on->NewSequence(100);
  sequence.device_pages = {1, 0};
  const std::vector<int32_t> tokens = GoldenTokens(100, kVocab);
  // Positions whose latents in the pool are not the pattern that it began with.
  const auto written = [&] {
    std::vector<int> positions;
    const std::vector<uint8_t> latents = on->Latents(sequence, 1, 100);
    for (int p = 0; p < 100; ++p) {
      if (std::any_of(&latents[p * 656], &latents[p * 656] + 656, [](uint8_t byte) { return byte != 0xA5; })) {
        positions.push_back(p);
      }
    }
    return positions;
  };
  const auto append = [&](int count) {
    return on->Append(sequence, absl::MakeConstSpan(tokens).subspan(sequence.num_cached, count), count);
  };
  const auto up_to = [](int end) {
    std::vector<int> positions(end);
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  };
  append(5);
  EXPECT_TRUE(written().empty());
  append(4);
  EXPECT_EQ(written(), up_to(5));
  sequence.num_cached = 6;  // of the four drafts one stays
  append(3);
  EXPECT_EQ(written(), up_to(6));
  sequence.num_cached = 9;
  const Segment whole{.first_position = 8, .page_table = sequence.pages, .device_pages = sequence.device_pages};
  ASSERT_TRUE(on->model().WriteBack(whole).ok());
  EXPECT_EQ(written(), up_to(8));
  append(64);
  EXPECT_EQ(written(), up_to(9));
  append(1);
  EXPECT_EQ(written(), up_to(73));
  EXPECT_EQ(on->model().device_buffer_counters()->written_back_bytes, 73 * 2 * 656);
}

TEST_P(DeviceBuffersTest, RefusesWhatDoesNotFitAndTouchesNothing) {
  const auto on = MakeModel(8, 3);
  TestSequence sequence = on->NewSequence(300);
  const std::vector<int32_t> tokens = GoldenTokens(100, kVocab);
  const auto message = [&](std::vector<int32_t> device_pages, int count, int64_t first_position) {
    const Segment segment{.num_rows = count,
                          .first_position = first_position,
                          .page_table = sequence.pages,
                          .device_pages = device_pages};
    const absl::Status status = on->model().Forward(
        {.tokens = absl::MakeConstSpan(tokens).subspan(0, count), .segments = {&segment, 1}}, [](int) {}, {});
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(message({}, 1, 0), "segment 0: device buffer of 0 pages, allowed 2 to 3");
  EXPECT_EQ(message({0, 1, 2, 3}, 1, 0), "segment 0: device buffer of 4 pages, allowed 2 to 3");
  EXPECT_EQ(message({0, 8}, 1, 0), "segment 0: device page 8, the buffers have 8");
  EXPECT_EQ(message({0, -1}, 1, 0), "segment 0: device page -1, the buffers have 8");
  EXPECT_EQ(message({0, 1}, 65, 0), "segment 0: 65 rows, a device buffer takes 64 in a batch");
  EXPECT_EQ(message({0, 1}, 4, 0), "");
  EXPECT_EQ(message({0, 1}, 1, 5), "segment 0: begins at position 5, its device buffer has rows to 4");
  EXPECT_EQ(message({0, 1}, 1, 4), "");
  const Segment behind{.first_position = 6, .page_table = sequence.pages, .device_pages = {}};
  EXPECT_EQ(on->model().WriteBack(behind).message(), "the sequence has no device buffer");
  const std::vector<int32_t> pages = {0, 1};
  const Segment later{.first_position = 6, .page_table = sequence.pages, .device_pages = pages};
  EXPECT_EQ(on->model().WriteBack(later).message(),
            "rows before position 6 are to go back, the device buffer has them to 5");
  std::vector<uint8_t> pool(on->layout().pool_bytes());
  auto both = DeepseekModel::Create(*backend_, checkpoint_, on->layout(), absl::MakeSpan(pool),
                                    {.device_buffers = {.num_pages = 8, .num_buffer_pages_max = 3}});
  EXPECT_EQ(both.status().message(),
            "device buffers are of a decode worker's one rank: they exclude writes_back_kv and further ranks");
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceBuffersTest, ::testing::ValuesIn(BackendsUnderTest()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::model
