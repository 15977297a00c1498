// SparseMla: softmax attention in latent space over a row's own list of positions.
//
// The list is walked in blocks of 64 entries. Per block and head: scores are lane sums over the 576 dims; the running
// maximum m becomes m' = max(m, scores); weights are p = exp(score - m'); the running sum and the 512 accumulators are
// multiplied by exp(m - m'), then p's lane sum is added to the sum, and p * latent entry by entry, ascending, to the
// accumulators. The order depends on the list alone, so a list of all positions is dense attention, bit for bit.
// Tested by sparse_mla_test.cc.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/reference/lane_kernels.h"
#include "kernels/reference/lane_math.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/paged_rows.h"

namespace tandem::kernels {
namespace {

constexpr int kBlock = 64;
constexpr int kLatentDim = kvcache::kLatentDim;
constexpr int kKeyDim = kLatentDim + kvcache::kRopeDim;  // 576
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int64_t kAlignment = 64;

// The workspace: one block of decoded records, and the state of every head of one row.
struct RowState {
  float* keys;          // [kBlock, kKeyDim]
  float* queries;       // [num_heads, kKeyDim]
  float* weights;       // [num_heads, kBlock]: scores, then p
  float* accumulators;  // [num_heads, kLatentDim]
  float* maxima;        // [num_heads]
  float* sums;          // [num_heads]
};

// Cuts a workspace of SparseMlaWorkspaceBytes(num_heads); also says how many floats that is.
int64_t LayOut(int64_t num_heads, float* base, RowState* state) {
  int64_t used = 0;
  const auto take = [&](int64_t count) {
    float* part = base == nullptr ? nullptr : base + used;
    used += (count + kLanes - 1) / kLanes * kLanes;
    return part;
  };
  state->keys = take(kBlock * kKeyDim);
  state->queries = take(num_heads * kKeyDim);
  state->weights = take(num_heads * kBlock);
  state->accumulators = take(num_heads * kLatentDim);
  state->maxima = take(num_heads);
  state->sums = take(num_heads);
  return used;
}

// A record as the BF16 values that attention computes with: latent dims, then the rotary key.
void DecodeRecord(const LaneKernels& kernels, kvcache::KvCacheDtype dtype, const uint8_t* record, float* key) {
  if (dtype == kvcache::KvCacheDtype::kBfloat16) {
    static_assert(kvcache::LatentRopeOffset(kvcache::KvCacheDtype::kBfloat16) == kLatentDim * sizeof(Bf16));
    kernels.decode_bf16(record, key, kKeyDim);
    return;
  }
  float scales[kLatentDim / kvcache::kLatentTile];
  std::memcpy(scales, record + kvcache::kLatentScaleOffset, sizeof(scales));
  kernels.decode_e4m3(record, key, kLatentDim);
  for (int d = 0; d < kLatentDim; d += kLanes) {
    StoreLanes(key + d, RoundLanesToBf16(LoadLanes(key + d) * BroadcastLanes(scales[d / kvcache::kLatentTile])));
  }
  kernels.decode_bf16(record + kvcache::LatentRopeOffset(dtype), key + kLatentDim, kvcache::kRopeDim);
}

// Turns a head's scores of one block into p, and rescales the head's state. scores: [kBlock], count of them valid.
void SoftmaxBlock(float softmax_scale, int count, float* scores, float* maximum, float* sum, float* accumulators) {
  for (int j = count; j < kBlock; ++j) scores[j] = kMinusInfinity;
  const Lanes scale = BroadcastLanes(softmax_scale);
  Lanes largest = BroadcastLanes(*maximum);
  for (int j = 0; j < kBlock; j += kLanes) {
    const Lanes scaled = LoadLanes(scores + j) * scale;
    StoreLanes(scores + j, scaled);
    largest = MaxLanes(largest, scaled);
  }
  const float new_maximum = MaxLane(largest);
  const Lanes shift = BroadcastLanes(new_maximum);
  Lanes weight_sums = {};
  for (int j = 0; j < kBlock; j += kLanes) {
    const Lanes weights = ExpLanes(LoadLanes(scores + j) - shift);
    StoreLanes(scores + j, weights);
    weight_sums += weights;
  }
  const float correction = Exp(*maximum - new_maximum);
  *sum = *sum * correction + SumLanes(weight_sums);
  *maximum = new_maximum;
  const Lanes factor = BroadcastLanes(correction);
  for (int d = 0; d < kLatentDim; d += kLanes) StoreLanes(accumulators + d, LoadLanes(accumulators + d) * factor);
}

void AttendBlock(const SparseMlaArgs& args, int64_t row, const int32_t* positions, int count, const RowState& state) {
  const LaneKernels& kernels = BestLaneKernels();
  const int num_heads = static_cast<int>(args.q_latent.shape[1]);
  const int record_bytes = kvcache::LatentRecordBytes(args.kv_cache_dtype);
  for (int j = 0; j < count; ++j) {
    const auto [page, slot] = SlotOf(args.rows, row, positions[j]);
    DecodeRecord(kernels, args.kv_cache_dtype, args.latent_pages.Row(page) + slot * record_bytes,
                 state.keys + j * kKeyDim);
  }
  kernels.dot({state.queries, kKeyDim, num_heads}, {state.keys, kKeyDim, count}, kKeyDim, state.weights, kBlock);
  for (int head = 0; head < num_heads; ++head) {
    SoftmaxBlock(args.softmax_scale, count, state.weights + head * kBlock, state.maxima + head, state.sums + head,
                 state.accumulators + head * kLatentDim);
  }
  kernels.add_scaled_rows({state.weights, kBlock, num_heads}, {state.keys, kKeyDim, count}, kLatentDim,
                          state.accumulators, kLatentDim);
}

void AttendRow(const SparseMlaArgs& args, int64_t row, const RowState& state) {
  const LaneKernels& kernels = BestLaneKernels();
  const int64_t num_heads = args.q_latent.shape[1];
  for (int64_t head = 0; head < num_heads; ++head) {
    float* query = state.queries + head * kKeyDim;
    kernels.decode_bf16(args.q_latent.Row(row, head), query, kLatentDim);
    kernels.decode_bf16(args.q_rope.Row(row, head), query + kLatentDim, kvcache::kRopeDim);
  }
  std::fill_n(state.accumulators, num_heads * kLatentDim, 0.0f);
  std::fill_n(state.maxima, num_heads, kMinusInfinity);
  std::fill_n(state.sums, num_heads, 0.0f);

  const int32_t* list = args.indices.Row(row);
  const int32_t* list_end = std::find(list, list + args.indices.shape[1], -1);
  for (const int32_t* block = list; block < list_end; block += kBlock) {
    AttendBlock(args, row, block, static_cast<int>(std::min<int64_t>(kBlock, list_end - block)), state);
  }
  for (int64_t head = 0; head < num_heads; ++head) {
    const Lanes sum = BroadcastLanes(list == list_end ? 1.0f : state.sums[head]);
    const float* accumulators = state.accumulators + head * kLatentDim;
    Bf16* out = args.out.Row(row, head);
    for (int d = 0; d < kLatentDim; d += kLanes) StoreBf16Lanes(out + d, LoadLanes(accumulators + d) / sum);
  }
}

// Ascending positions within the context, then -1 to the end.
void CheckList(OpBorder& border, const int32_t* list, int64_t k, int64_t context) {
  int64_t previous = -1;
  int64_t j = 0;
  for (; j < k && list[j] != -1; ++j) {
    border.Require(list[j] > previous && list[j] < context, "position in indices", list[j],
                   "ascending and within the row's context");
    previous = list[j];
  }
  for (; j < k; ++j) border.Require(list[j] == -1, "position in indices behind -1", list[j], "-1");
}

}  // namespace

int64_t SparseMlaWorkspaceBytes(int64_t num_heads) {
  RowState state;
  return LayOut(num_heads, nullptr, &state) * static_cast<int64_t>(sizeof(float));
}

absl::Status SparseMla(const SparseMlaArgs& args) {
  const int64_t num_rows = args.q_latent.shape[0];
  const int64_t num_heads = args.q_latent.shape[1];
  const int64_t k = args.indices.shape[1];
  const int64_t num_pages = args.latent_pages.shape[0];
  const auto workspace_address = reinterpret_cast<uintptr_t>(args.workspace.data());
  OpBorder border("SparseMla");
  border.Shape("q_latent", args.q_latent, {num_rows, num_heads, kLatentDim})
      .Shape("q_rope", args.q_rope, {num_rows, num_heads, kvcache::kRopeDim})
      .Shape("indices", args.indices, {num_rows, k})
      .Shape("latent_pages", args.latent_pages, {num_pages, kvcache::LatentPageBytes(args.kv_cache_dtype)})
      .Shape("out", args.out, {num_rows, num_heads, kLatentDim})
      .Require(static_cast<int64_t>(args.workspace.size()) >= SparseMlaWorkspaceBytes(num_heads), "workspace bytes",
               static_cast<int64_t>(args.workspace.size()), "at least SparseMlaWorkspaceBytes")
      .Require(workspace_address % kAlignment == 0, "workspace address modulo 64",
               static_cast<int64_t>(workspace_address % kAlignment), "0");
  CheckPagedRows(border, args.rows, num_rows, num_pages);
  for (int64_t row = 0; border.ok() && row < num_rows; ++row) {
    CheckList(border, args.indices.Row(row), k, args.rows.context_length.data[row]);
  }
  RETURN_IF_ERROR(border.status());
  RowState state;
  LayOut(num_heads, reinterpret_cast<float*>(args.workspace.data()), &state);
  for (int64_t row = 0; row < num_rows; ++row) AttendRow(args, row, state);
  return absl::OkStatus();
}

}  // namespace tandem::kernels
