// SparseMla: rows, and groups of heads of a row, are spread over threads; the arithmetic is in attention_level.cc,
// whose state of a row lies on the stack (kSparseMlaHeadsMax heads: 0.4 MB). Tested by sparse_mla_test.cc,
// levels_test.cc.
#include <algorithm>

#include "base/status_macros.h"
#include "kernels/cpu/levels.h"
#include "kernels/flush_subnormals.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/paged_rows.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kHeadsMin = 8;  // of a task: every task decodes the records for itself

// Positions within the context, then -1 to the end.
void CheckList(OpBorder& border, const int32_t* list, int64_t k, int64_t context) {
  int64_t j = 0;
  for (; j < k && list[j] != -1; ++j) {
    border.Require(list[j] >= 0 && list[j] < context, "position in indices", list[j], "within the row's context");
  }
  for (; j < k; ++j) border.Require(list[j] == -1, "position in indices behind -1", list[j], "-1");
}

const uint16_t* Bits(const Bf16* values) { return reinterpret_cast<const uint16_t*>(values); }

}  // namespace

absl::Status SparseMla(const SparseMlaArgs& args) {
  const int64_t num_rows = args.q_latent.shape[0];
  const int64_t num_heads = args.q_latent.shape[1];
  const int64_t k = args.indices.shape[1];
  const int64_t num_pages = args.latent_pages.shape[0];
  OpBorder border("SparseMla");
  border.Shape("q_latent", args.q_latent, {num_rows, num_heads, kvcache::kLatentDim})
      .Shape("q_rope", args.q_rope, {num_rows, num_heads, kvcache::kRopeDim})
      .Shape("indices", args.indices, {num_rows, k})
      .Shape("latent_pages", args.latent_pages, {num_pages, kvcache::LatentPageBytes(args.kv_cache_dtype)})
      .Shape("out", args.out, {num_rows, num_heads, kvcache::kLatentDim});
  CheckPagedRows(border, args.rows, num_rows, num_pages);
  for (int64_t row = 0; border.ok() && row < num_rows; ++row) {
    CheckList(border, args.indices.Row(row), k, args.rows.context_length.data[row]);
  }
  RETURN_IF_ERROR(border.status());
  if (num_rows == 0 || num_heads == 0) return absl::OkStatus();

  // As few groups of heads as keep all threads busy.
  const int64_t num_threads = args.threads == nullptr ? 1 : args.threads->num_threads();
  const int64_t groups_wanted = std::max((num_threads + num_rows - 1) / num_rows,
                                         (num_heads + cpu::kSparseMlaHeadsMax - 1) / cpu::kSparseMlaHeadsMax);
  const int64_t heads = std::max((num_heads + groups_wanted - 1) / groups_wanted, std::min(kHeadsMin, num_heads));
  const int64_t groups = (num_heads + heads - 1) / heads;
  const cpu::LevelOps& ops = cpu::ActiveLevelOps();
  RunTasks(args.threads, num_rows * groups, [&](int64_t task) {
    const FlushSubnormals flush;
    const int64_t row = task / groups, head = task % groups * heads;
    const int32_t* list = args.indices.Row(row);
    ops.sparse_mla({.q_latent = Bits(args.q_latent.Row(row, head)),
                    .q_latent_stride = args.q_latent.strides[1],
                    .q_rope = Bits(args.q_rope.Row(row, head)),
                    .q_rope_stride = args.q_rope.strides[1],
                    .num_heads = static_cast<int>(std::min(heads, num_heads - head)),
                    .softmax_scale = args.softmax_scale,
                    .positions = list,
                    .num_positions = std::find(list, list + k, -1) - list,
                    .page_table = args.rows.page_tables.Row(args.rows.sequence.data[row]),
                    .latent_pages = args.latent_pages.data,
                    .page_stride = args.latent_pages.strides[0],
                    .is_bf16 = args.kv_cache_dtype == kvcache::KvCacheDtype::kBfloat16,
                    .record_bytes = kvcache::LatentRecordBytes(args.kv_cache_dtype),
                    .rope_offset = kvcache::LatentRopeOffset(args.kv_cache_dtype),
                    .out = reinterpret_cast<uint16_t*>(args.out.Row(row, head)),
                    .out_stride = args.out.strides[1]});
  });
  return absl::OkStatus();
}

}  // namespace tandem::kernels
