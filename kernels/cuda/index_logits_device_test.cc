// Proves IndexLogits of a device: close to float64 and to the host's at every number of heads and kind of batch; a
// row's bits are its own, whatever rows share its tile, their order, and the pages' places; columns beyond a context
// and rows that are skipped stay untouched; NaN stays in its row and key.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

namespace tandem::kernels::cuda {
namespace {

constexpr E4m3 kNanCode = {0x7f};

ThreadPool& HostThreads() {
  static ThreadPool* const threads = new ThreadPool(NumUsableProcessors());
  return *threads;
}

// Rows of sequences over a pool of random index pages.
struct Problem {
  Problem(Source& source, int64_t num_heads, const std::vector<int32_t>& sequence_of,
          const std::vector<int32_t>& context_of, int64_t topk, int64_t spare_columns = 70)
      : index_topk(topk),
        num_sequences(1 + *std::max_element(sequence_of.begin(), sequence_of.end())),
        longest(*std::max_element(context_of.begin(), context_of.end())),
        num_pages(num_sequences * kvcache::PagesForTokens(longest) + 3),
        width(longest + spare_columns),
        q(source.NormalE4m3<3>({static_cast<int64_t>(sequence_of.size()), num_heads, 128})),
        weights(source.NormalF32<2>({static_cast<int64_t>(sequence_of.size()), num_heads})),
        fixture(context_of, sequence_of, source.Permutation(static_cast<int>(num_pages))),
        pages({num_pages, kvcache::kIndexPageBytes}) {
    for (int64_t page = 0; page < num_pages; ++page) {
      for (int64_t i = 0; i < kvcache::kIndexScaleOffset; ++i) {
        pages.at(page, i) = ToE4m3(source.Normal(50)).bits;
      }
      for (int64_t slot = 0; slot < kvcache::kPageTokens; ++slot) {
        const float scale = source.Uniform(0.005f, 0.015f);
        std::memcpy(&pages.at(page, kvcache::kIndexScaleOffset + slot * 4), &scale, 4);
      }
    }
  }
  int64_t num_rows() { return q.dim(0); }
  int32_t context(int64_t row) { return fixture.context_length[row]; }
  bool is_skipped(int64_t row) { return context(row) <= index_topk; }

  // The rows `order` alone, in that order, over the same pages.
  Problem Pick(const std::vector<int32_t>& order) const {
    Problem picked = *this;
    Problem copy = *this;
    picked.q = PickRows(copy.q, order);
    picked.weights = PickRows(copy.weights, order);
    picked.fixture.context_length = PickRows(copy.fixture.context_length, order);
    picked.fixture.sequence = PickRows(copy.fixture.sequence, order);
    return picked;
  }
  // Untouched elements are the poison that device outputs begin with.
  Tensor<float, 2> OnHost() {
    Tensor<float, 2> logits({num_rows(), width});
    std::memset(logits.values().data(), kPoison, logits.values().size() * sizeof(float));
    const absl::Status status = kernels::IndexLogits({.q = q,
                                                      .weights = weights,
                                                      .rows = fixture.rows(),
                                                      .index_pages = pages,
                                                      .index_topk = index_topk,
                                                      .logits = logits,
                                                      .threads = &HostThreads()});
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }
  // Written elements in row-major order.
  Tensor<float, 1> Written(Tensor<float, 2>& logits) {
    std::vector<float> values;
    for (int64_t row = 0; row < num_rows(); ++row) {
      if (is_skipped(row)) continue;
      for (int64_t s = 0; s < context(row); ++s) values.push_back(logits.at(row, s));
    }
    Tensor<float, 1> written({static_cast<int64_t>(values.size())});
    written.values() = values;
    return written;
  }
  Tensor<float, 1> Exact() {
    Tensor<float, 2> exact({num_rows(), width});
    HostThreads().Run(num_rows() * width, [&](int64_t i) {
      const int64_t row = i / width, s = i % width;
      if (is_skipped(row) || s >= context(row)) return;
      const int32_t page = fixture.PageOf(fixture.sequence[row], s);
      const int64_t slot = s % kvcache::kPageTokens;
      double sum = 0;
      for (int64_t head = 0; head < q.dim(1); ++head) {
        double score = 0;
        for (int64_t d = 0; d < 128; ++d) {
          score += double{ToFloat(q.at(row, head, d))} * ToFloat(E4m3{pages.at(page, slot * 128 + d)});
        }
        sum += std::max(score, 0.0) * weights.at(row, head);
      }
      float scale;
      std::memcpy(&scale, &pages.at(page, kvcache::kIndexScaleOffset + slot * 4), 4);
      exact.at(row, s) = static_cast<float>(sum * scale);
    });
    return Written(exact);
  }

  int64_t index_topk;
  int64_t num_sequences;
  int32_t longest;
  int64_t num_pages;
  int64_t width;
  Tensor<E4m3, 3> q;
  Tensor<float, 2> weights;
  PagedFixture fixture;
  Tensor<uint8_t, 2> pages;
};

class IndexLogitsDeviceTest : public DeviceTest {
 protected:
  Tensor<float, 2> OnDevice(Problem problem, const Placement& q_placement = {}) {
    const DeviceTensor<E4m3, 3> q = Upload(problem.q, q_placement);
    const DeviceTensor<float, 2> weights = Upload(problem.weights, {.row_gap = q_placement.row_gap});
    const DeviceTensor<int32_t, 2> tables = Upload(problem.fixture.page_tables, {.row_gap = 5});
    const DeviceTensor<int32_t, 1> sequence = Upload(problem.fixture.sequence);
    const DeviceTensor<int32_t, 1> context = Upload(problem.fixture.context_length);
    const DeviceTensor<uint8_t, 2> pages = Upload(problem.pages);
    DeviceTensor<float, 2> logits = Output<float, 2>({problem.num_rows(), problem.width}, {.row_gap = 3});
    RunOp(IndexLogits(stream(), {.q = q,
                                 .weights = weights,
                                 .rows = {.page_tables = tables, .sequence = sequence, .context_length = context},
                                 .index_pages = pages,
                                 .index_topk = problem.index_topk,
                                 .logits = logits}));
    return logits.Download();
  }

  // Close to the host's and to float64; what is not a row's is untouched.
  void ExpectRight(absl::string_view what, Problem& problem, Tensor<float, 2> logits) {
    Tensor<float, 2> host = problem.OnHost();
    Tensor<float, 1> written = problem.Written(logits), of_host = problem.Written(host), exact = problem.Exact();
    double squares = 0;
    for (const float value : exact.values()) squares += double{value} * value;
    const double rms = std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, exact.size())));
    const Tolerance tolerance = {.abs = 4e-3 * rms, .min_cosine = 1 - 5e-6};
    ExpectClose(absl::StrCat(what, " against float64, rms ", rms, ","), written, exact, tolerance);
    ExpectClose(absl::StrCat(what, " against the host,"), written, of_host, tolerance);
    int64_t touched = 0, first = -1;
    for (int64_t i = 0; i < logits.size(); ++i) {
      const int64_t row = i / problem.width, s = i % problem.width;
      if (!problem.is_skipped(row) && s < problem.context(row)) continue;
      if (std::memcmp(&logits[i], &host[i], sizeof(float)) == 0) continue;
      if (touched++ == 0) first = i;
    }
    EXPECT_EQ(touched, 0) << what << ": columns beyond a context, first at row " << first / problem.width << ", column "
                          << first % problem.width;
  }

  Source source_{1};
};

TEST_F(IndexLogitsDeviceTest, EveryNumberOfHeads) {
  for (const int64_t num_heads : {1, 4, 8, 9, 32, 63, 64, 65, 128}) {
    Problem problem(source_, num_heads, {0, 0, 0, 1, 2, 2}, {129, 130, 300, 64, 513, 200}, 63);
    ExpectRight(absl::StrCat(num_heads, " heads"), problem, OnDevice(problem));
  }
}

TEST_F(IndexLogitsDeviceTest, EveryContextBesideABoundary) {
  Problem problem(source_, 64, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {1, 2, 63, 64, 65, 127, 128, 129, 191, 2049, 5000},
                  1);
  ExpectRight("contexts", problem, OnDevice(problem));
  ExpectRight("unaligned queries", problem, OnDevice(problem, {.row_gap = 5, .offset = 3}));
}

TEST_F(IndexLogitsDeviceTest, ChunksOfAPrefill) {
  for (const int count : {2, 7, 8, 9, 45}) {
    std::vector<int32_t> contexts;
    for (int i = 0; i < count; ++i) contexts.push_back(1000 + i);
    Problem problem(source_, 64, std::vector<int32_t>(static_cast<size_t>(count), 0), contexts, 1002);
    ExpectRight(absl::StrCat(count, " rows of a sequence"), problem, OnDevice(problem));
  }
}

TEST_F(IndexLogitsDeviceTest, LongRows) {
  Problem one(source_, 64, {0}, {131072}, 2048);
  ExpectRight("one long row", one, OnDevice(one));
  Problem several(source_, 64, {0, 1, 2, 2, 1}, {32768, 20000, 7000, 7001, 2048}, 2048);
  ExpectRight("long rows", several, OnDevice(several));
}

TEST_F(IndexLogitsDeviceTest, ARowsBitsAreItsOwn) {
  std::vector<int32_t> sequences, contexts;
  for (int i = 0; i < 300; ++i) {
    sequences.push_back(i < 150 ? i / 40 : static_cast<int32_t>(source_.Below(9)));
    contexts.push_back(static_cast<int32_t>(1 + source_.Below(700)));
  }
  for (const int64_t num_heads : {4, 64, 128}) {
    Problem problem(source_, num_heads, sequences, contexts, 100);
    Tensor<float, 2> together = OnDevice(problem);
    const std::vector<int32_t> shuffled = source_.Permutation(300);
    Tensor<float, 2> expected = PickRows(together, shuffled);
    ExpectSameBits(absl::StrCat(num_heads, " heads, another order"), OnDevice(problem.Pick(shuffled)), expected);
    for (const int count : {1, 2, 3, 5, 17, 64, 133}) {
      const int first = static_cast<int>(source_.Below(300 - count));
      std::vector<int32_t> some(static_cast<size_t>(count));
      std::iota(some.begin(), some.end(), first);
      Tensor<float, 2> expected_some = PickRows(together, some);
      ExpectSameBits(absl::StrCat(num_heads, " heads, rows from ", first), OnDevice(problem.Pick(some)), expected_some);
    }
    // The same records in other pages.
    Problem moved = problem;
    const std::vector<int32_t> place = source_.Permutation(static_cast<int>(problem.num_pages));
    for (int64_t page = 0; page < problem.num_pages; ++page) {
      std::copy_n(&problem.pages.at(page, 0), kvcache::kIndexPageBytes, &moved.pages.at(place[page], 0));
    }
    for (int32_t& page : moved.fixture.page_tables.values()) page = place[page];
    ExpectSameBits(absl::StrCat(num_heads, " heads, other pages"), OnDevice(moved), together);
  }
}

TEST_F(IndexLogitsDeviceTest, NanStaysInItsRowAndKey) {
  const auto same_but = [&](absl::string_view what, Problem& problem, Tensor<float, 2>& clean,
                            const std::function<bool(int64_t, int64_t)>& is_nan) {
    Tensor<float, 2> logits = OnDevice(problem);
    int64_t wrong = 0;
    for (int64_t row = 0; row < problem.num_rows(); ++row) {
      for (int64_t s = 0; s < problem.context(row); ++s) {
        const bool right =
            is_nan(row, s) ? std::isnan(logits.at(row, s)) : std::memcmp(&logits.at(row, s), &clean.at(row, s), 4) == 0;
        if (!right && wrong++ == 0) {
          ADD_FAILURE() << what << ": row " << row << ", key " << s << " is " << logits.at(row, s) << ", was "
                        << clean.at(row, s);
        }
      }
    }
    std::printf("CHECK NaN in %.*s: %lld wrong\n", static_cast<int>(what.size()), what.data(),
                static_cast<long long>(wrong));
  };
  Problem problem(source_, 64, {0, 0, 0, 1}, {300, 301, 302, 200}, 10);
  Tensor<float, 2> clean = OnDevice(problem);
  Problem bad_query = problem;
  bad_query.q.at(1, 5, 77) = kNanCode;
  same_but("a query", bad_query, clean, [](int64_t row, int64_t) { return row == 1; });
  Problem bad_weight = problem;
  bad_weight.weights.at(2, 63) = std::numeric_limits<float>::quiet_NaN();
  same_but("a weight", bad_weight, clean, [](int64_t row, int64_t) { return row == 2; });
  Problem bad_key = problem;
  bad_key.pages.at(problem.fixture.PageOf(0, 70), 70 % 64 * 128 + 3) = kNanCode.bits;
  same_but("a key", bad_key, clean, [](int64_t row, int64_t s) { return row < 3 && s == 70; });
}

TEST_F(IndexLogitsDeviceTest, ZeroRowsAndBadShapes) {
  Problem problem(source_, 4, {0, 0}, {100, 101}, 10);
  ExpectSameBits("no rows", OnDevice(problem.Pick({})),
                 *std::make_unique<Tensor<float, 2>>(std::array<int64_t, 2>{0, problem.width}));
  DeviceTensor<E4m3, 3> q = Output<E4m3, 3>({2, 129, 128});
  const absl::Status status = IndexLogits(stream(), {.q = q});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace tandem::kernels::cuda
