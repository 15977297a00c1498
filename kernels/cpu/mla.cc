// MlaAbsorbQuery and MlaUnabsorbOutput: kv_b_proj's two halves, applied per head around the latent attention. Heads are
// spread over threads; the arithmetic is in attention_level.cc and linear_level.cc.
// Tested by mla_test.cc, levels_test.cc.
#include <algorithm>

#include "base/status_macros.h"
#include "kernels/cpu/levels.h"
#include "kernels/flush_subnormals.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kLatentDim = kvcache::kLatentDim;

const uint16_t* Bits(const Bf16* values) { return reinterpret_cast<const uint16_t*>(values); }
uint16_t* Bits(Bf16* values) { return reinterpret_cast<uint16_t*>(values); }

// Calls head_task(head) for every head, as many heads to a task as make it worth a thread.
template <typename HeadTask>
void RunHeads(ThreadPool* threads, int64_t num_heads, int64_t macs_of_head, const HeadTask& head_task) {
  constexpr int64_t kTaskMacs = 1 << 20;
  const int64_t heads = std::max<int64_t>(1, kTaskMacs / std::max<int64_t>(macs_of_head, 1));
  RunTasks(threads, (num_heads + heads - 1) / heads, [&](int64_t task) {
    const FlushSubnormals flush;
    for (int64_t head = task * heads; head < std::min(num_heads, (task + 1) * heads); ++head) head_task(head);
  });
}

}  // namespace

absl::Status MlaAbsorbQuery(const MlaAbsorbQueryArgs& args) {
  const int64_t num_rows = args.q_nope.shape[0], num_heads = args.q_nope.shape[1], nope_dim = args.q_nope.shape[2];
  OpBorder border("MlaAbsorbQuery");
  border.Require(nope_dim > 0 && nope_dim % 16 == 0, "nope_dim", nope_dim, "a positive multiple of 16")
      .Shape("q_nope", args.q_nope, {num_rows, num_heads, nope_dim})
      .Shape("w_uk", args.w_uk, {num_heads, nope_dim, kLatentDim})
      .Shape("q_latent", args.q_latent, {num_rows, num_heads, kLatentDim});
  RETURN_IF_ERROR(border.status());
  const cpu::LevelOps& ops = cpu::ActiveLevelOps();
  RunHeads(args.threads, num_heads, num_rows * nope_dim * kLatentDim, [&](int64_t head) {
    ops.mla_absorb({.q = Bits(args.q_nope.Row(0, head)),
                    .q_stride = args.q_nope.strides[0],
                    .num_rows = num_rows,
                    .w = Bits(args.w_uk.Row(head, 0)),
                    .w_stride = args.w_uk.strides[1],
                    .nope_dim = nope_dim,
                    .y = Bits(args.q_latent.Row(0, head)),
                    .y_stride = args.q_latent.strides[0]},
                   0, kLatentDim);
  });
  return absl::OkStatus();
}

absl::Status MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args) {
  const int64_t num_rows = args.latent_out.shape[0], num_heads = args.latent_out.shape[1];
  const int64_t v_dim = args.w_uv.shape[1];
  OpBorder border("MlaUnabsorbOutput");
  border.Shape("latent_out", args.latent_out, {num_rows, num_heads, kLatentDim})
      .Shape("w_uv", args.w_uv, {num_heads, v_dim, kLatentDim})
      .Shape("out", args.out, {num_rows, num_heads, v_dim});
  RETURN_IF_ERROR(border.status());
  const cpu::LevelOps& ops = cpu::ActiveLevelOps();
  RunHeads(args.threads, num_heads, num_rows * v_dim * kLatentDim, [&](int64_t head) {
    ops.linear({.x = Bits(args.latent_out.Row(0, head)),
                .x_stride = args.latent_out.strides[0],
                .in_dim = kLatentDim,
                .w_bf16 = Bits(args.w_uv.Row(head, 0)),
                .w_stride = args.w_uv.strides[1],
                .y_bf16 = Bits(args.out.Row(0, head)),
                .y_stride = args.out.strides[0]},
               0, num_rows, 0, v_dim);
  });
  return absl::OkStatus();
}

}  // namespace tandem::kernels
