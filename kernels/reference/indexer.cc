// IndexWeights and IndexLogits: the lightning indexer's scores over the paged index keys.
//
// Rows of one sequence that follow each other share each page's decoding. Per (row, position): for each head the lane
// sum of q . key and its tree; the heads are then added in ascending order to one FP32 sum, which the key's scale
// multiplies last. Tested by indexer_test.cc.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/reference/lane_kernels.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/paged_rows.h"

namespace tandem::kernels {
namespace {

constexpr int kDim = kvcache::kIndexDim;
constexpr int kKeys = kvcache::kPageTokens;
constexpr int kQueriesMax = 128;  // rows * heads of one tile

struct Tiles {
  alignas(64) float queries[kQueriesMax * kDim];
  alignas(64) float keys[kKeys * kDim];
  alignas(64) float scores[kQueriesMax * kKeys];
};

// A NaN score stays NaN, so that top-k sees it.
TANDEM_LANES_INLINE Lanes Relu(const Lanes& score) {
  return MakeLanes([&](int p) { return score.part[p] < 0.0f ? NativeFloat{} : score.part[p]; });
}

// logits[s] = key_scale[s] * sum over heads of relu(scores[head, s]) * weights[head], for num_keys keys of a page.
void CombineHeads(const float* scores, const float* weights, int64_t num_heads, const float* key_scales, int num_keys,
                  float* logits) {
  for (int s = 0; s < num_keys; s += kLanes) {
    Lanes sum = {};
    for (int64_t head = 0; head < num_heads; ++head) {
      sum += Relu(LoadLanes(scores + head * kKeys + s)) * BroadcastLanes(weights[head]);
    }
    float scaled[kLanes];
    StoreLanes(scaled, sum * LoadLanes(key_scales + s));
    std::memcpy(logits + s, scaled, sizeof(float) * static_cast<size_t>(std::min(kLanes, num_keys - s)));
  }
}

// Rows [begin, end) of one sequence, at most kQueriesMax queries.
void ScoreRows(const IndexLogitsArgs& args, int64_t begin, int64_t end, Tiles& tiles) {
  const LaneKernels& kernels = BestLaneKernels();
  const int64_t num_heads = args.q.shape[1];
  const int32_t* contexts = args.rows.context_length.data;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < num_heads; ++head) {
      kernels.decode_e4m3(args.q.Row(row, head), tiles.queries + ((row - begin) * num_heads + head) * kDim, kDim);
    }
  }
  const int64_t context_max = *std::max_element(contexts + begin, contexts + end);
  for (int64_t first = 0; first < context_max; first += kKeys) {
    const uint8_t* page = args.index_pages.Row(SlotOf(args.rows, begin, first).page);
    const int num_keys = static_cast<int>(std::min<int64_t>(kKeys, context_max - first));
    kernels.decode_e4m3(page, tiles.keys, num_keys * kDim);
    float key_scales[kKeys];
    std::memcpy(key_scales, page + kvcache::kIndexScaleOffset, sizeof(key_scales));
    const int num_queries = static_cast<int>((end - begin) * num_heads);
    kernels.dot({tiles.queries, kDim, num_queries}, {tiles.keys, kDim, num_keys}, kDim, tiles.scores, kKeys);
    for (int64_t row = begin; row < end; ++row) {
      const int row_keys = static_cast<int>(std::min<int64_t>(num_keys, contexts[row] - first));
      if (row_keys <= 0) continue;
      CombineHeads(tiles.scores + (row - begin) * num_heads * kKeys, args.weights.Row(row), num_heads, key_scales,
                   row_keys, args.logits.Row(row) + first);
    }
  }
}

}  // namespace

absl::Status IndexWeights(const IndexWeightsArgs& args) {
  const auto [num_rows, num_heads] = args.projected.shape;
  OpBorder border("IndexWeights");
  border.Require(num_heads > 0, "num_heads", num_heads, "positive")
      .Require(args.head_dim > 0, "head_dim", args.head_dim, "positive")
      .Shape("projected", args.projected, {num_rows, num_heads})
      .Shape("q_scale", args.q_scale, {num_rows, num_heads})
      .Shape("weights", args.weights, {num_rows, num_heads});
  RETURN_IF_ERROR(border.status());
  const float constant = static_cast<float>(1.0 / std::sqrt(static_cast<double>(num_heads * args.head_dim)));
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t head = 0; head < num_heads; ++head) {
      args.weights.Row(row)[head] = (args.projected.Row(row)[head] * constant) * args.q_scale.Row(row)[head];
    }
  }
  return absl::OkStatus();
}

absl::Status IndexLogits(const IndexLogitsArgs& args) {
  const int64_t num_rows = args.q.shape[0];
  const int64_t num_heads = args.q.shape[1];
  const int64_t num_pages = args.index_pages.shape[0];
  OpBorder border("IndexLogits");
  border.Require(num_heads >= 1 && num_heads <= kQueriesMax, "num_heads", num_heads, "in [1, 128]")
      .Shape("q", args.q, {num_rows, num_heads, kDim})
      .Shape("weights", args.weights, {num_rows, num_heads})
      .Shape("index_pages", args.index_pages, {num_pages, kvcache::kIndexPageBytes})
      .Shape("logits", args.logits, {num_rows, args.logits.shape[1]});
  CheckPagedRows(border, args.rows, num_rows, num_pages);
  RETURN_IF_ERROR(border.status());
  const int32_t* contexts = args.rows.context_length.data;
  const auto is_skipped = [&](int64_t row) { return contexts[row] <= args.index_topk; };
  for (int64_t row = 0; row < num_rows; ++row) {
    border.Require(is_skipped(row) || contexts[row] <= args.logits.shape[1], "logits' width", args.logits.shape[1],
                   "at least the longest context");
  }
  RETURN_IF_ERROR(border.status());

  const int64_t rows_max = kQueriesMax / num_heads;
  Tiles tiles;
  for (int64_t begin = 0; begin < num_rows;) {
    if (is_skipped(begin)) {
      ++begin;
      continue;
    }
    int64_t end = begin + 1;
    while (end < num_rows && end - begin < rows_max && !is_skipped(end) &&
           args.rows.sequence.data[end] == args.rows.sequence.data[begin]) {
      ++end;
    }
    ScoreRows(args, begin, end, tiles);
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels
