// The ops of kernels/ops.h on a CUDA device: the same names and args, views of device memory, enqueued on a stream.
//
// What differs from the CPU:
// - Shapes and strides are checked before the launch, as there; values in device memory (ids, positions, page tables)
//   are not: the batch plan has checked them. `threads` and `workspace` are not looked at.
// - An op returns when its kernels are enqueued: it neither waits nor allocates nor reads device memory on the host, so
//   that a sequence of ops can be captured in a graph. INTERNAL with CUDA's own words where a launch was refused.
// - A row's bits depend on that row alone here too, whatever the number of rows; they are CUDA's own, within the
//   tolerances of docs/kernels/numerics.md of those on a CPU. Ops that only move or select (GatherRows, Argmax, TopK,
//   MoeGroupRows, the cache writes) give the same bits as there.
// - Fp8GroupedLinear needs experts at equal distances in memory: weights[g] begins g * (weights[1] - weights[0]) after
//   weights[0], and so do the scales. At most 1024 experts.
// - Linear layers and the MLA projections need rows of x and of weights at multiples of 16 bytes. They may read weights
//   before earlier kernels of the stream have ended: what writes weights must be over (a Synchronize) before.
// In builds without CUDA every op is UNIMPLEMENTED. Tested by *_device_test.cc against kernels/ops.h on the host; these
// skip, saying so, where there is no device.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

absl::Status GatherRows(Stream stream, const GatherRowsArgs& args);
absl::Status Argmax(Stream stream, const ArgmaxArgs& args);
absl::Status RmsNorm(Stream stream, const RmsNormArgs& args);
absl::Status AddRmsNorm(Stream stream, const AddRmsNormArgs& args);
absl::Status LayerNorm(Stream stream, const LayerNormArgs& args);
absl::Status Rope(Stream stream, const RopeArgs& args);
absl::Status Hadamard128(Stream stream, const Hadamard128Args& args);
absl::Status Quant128(Stream stream, const Quant128Args& args);
absl::Status DequantizeFp8Weight(Stream stream, const DequantizeFp8WeightArgs& args);
absl::Status Fp8Linear(Stream stream, const Fp8LinearArgs& args);
absl::Status Fp8GroupedLinear(Stream stream, const Fp8GroupedLinearArgs& args);
absl::Status Bf16Linear(Stream stream, const Bf16LinearArgs& args);
absl::Status Bf16LinearF32(Stream stream, const Bf16LinearF32Args& args);
absl::Status WriteLatent(Stream stream, const WriteLatentArgs& args);
absl::Status WriteIndexKey(Stream stream, const WriteIndexKeyArgs& args);
absl::Status IndexWeights(Stream stream, const IndexWeightsArgs& args);
absl::Status IndexLogits(Stream stream, const IndexLogitsArgs& args);
absl::Status TopK(Stream stream, const TopKArgs& args);
absl::Status MlaAbsorbQuery(Stream stream, const MlaAbsorbQueryArgs& args);
absl::Status SparseMla(Stream stream, const SparseMlaArgs& args);
absl::Status MlaUnabsorbOutput(Stream stream, const MlaUnabsorbOutputArgs& args);
absl::Status SwiGlu(Stream stream, const SwiGluArgs& args);
absl::Status MoeRouter(Stream stream, const MoeRouterArgs& args);
absl::Status MoeGroupRows(Stream stream, const MoeGroupRowsArgs& args);
absl::Status MoeCombine(Stream stream, const MoeCombineArgs& args);

}  // namespace tandem::kernels::cuda
