// Builds without CUDA have the same ops, and each says what is missing.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.cuh"

namespace tandem::kernels::cuda {
namespace {

absl::Status NoCuda() { return absl::UnimplementedError("this build has no CUDA"); }

}  // namespace

absl::Status GatherRows(Stream, const GatherRowsArgs&) { return NoCuda(); }
absl::Status Argmax(Stream, const ArgmaxArgs&) { return NoCuda(); }
absl::Status RmsNorm(Stream, const RmsNormArgs&) { return NoCuda(); }
absl::Status AddRmsNorm(Stream, const AddRmsNormArgs&) { return NoCuda(); }
absl::Status LayerNorm(Stream, const LayerNormArgs&) { return NoCuda(); }
absl::Status Rope(Stream, const RopeArgs&) { return NoCuda(); }
absl::Status Hadamard128(Stream, const Hadamard128Args&) { return NoCuda(); }
absl::Status Quant128(Stream, const Quant128Args&) { return NoCuda(); }
absl::Status DequantizeFp8Weight(Stream, const DequantizeFp8WeightArgs&) { return NoCuda(); }
absl::Status Fp8Linear(Stream, const Fp8LinearArgs&) { return NoCuda(); }
absl::Status Fp8GroupedLinear(Stream, const Fp8GroupedLinearArgs&) { return NoCuda(); }
absl::Status Bf16Linear(Stream, const Bf16LinearArgs&) { return NoCuda(); }
absl::Status Bf16LinearF32(Stream, const Bf16LinearF32Args&) { return NoCuda(); }
absl::Status WriteLatent(Stream, const WriteLatentArgs&) { return NoCuda(); }
absl::Status WriteIndexKey(Stream, const WriteIndexKeyArgs&) { return NoCuda(); }
absl::Status IndexWeights(Stream, const IndexWeightsArgs&) { return NoCuda(); }
absl::Status IndexLogits(Stream, const IndexLogitsArgs&) { return NoCuda(); }
absl::Status TopK(Stream, const TopKArgs&) { return NoCuda(); }
absl::Status MlaAbsorbQuery(Stream, const MlaAbsorbQueryArgs&) { return NoCuda(); }
absl::Status SparseMla(Stream, const SparseMlaArgs&) { return NoCuda(); }
absl::Status MlaUnabsorbOutput(Stream, const MlaUnabsorbOutputArgs&) { return NoCuda(); }
absl::Status SwiGlu(Stream, const SwiGluArgs&) { return NoCuda(); }
absl::Status MoeRouter(Stream, const MoeRouterArgs&) { return NoCuda(); }
absl::Status MoeGroupRows(Stream, const MoeGroupRowsArgs&) { return NoCuda(); }
absl::Status MoeCombine(Stream, const MoeCombineArgs&) { return NoCuda(); }
absl::Status LaunchProduct(Stream, absl::string_view, ProductKind, ProductTask) { return NoCuda(); }

}  // namespace tandem::kernels::cuda
