// The ops of ops.h that no other file here defines yet: each answers UNIMPLEMENTED with its name, so that whatever
// calls the border links. Who adds an op deletes its line here in the same commit; the file goes with its last line.
#include "absl/strings/str_cat.h"
#include "kernels/cuda/ops.h"

namespace tandem::kernels::cuda {
namespace {

absl::Status Pending(absl::string_view op) {
  return absl::UnimplementedError(absl::StrCat(op, ": there is no CUDA kernel for this op yet"));
}

}  // namespace

absl::Status Argmax(Stream, const ArgmaxArgs&) { return Pending("Argmax"); }
absl::Status RmsNorm(Stream, const RmsNormArgs&) { return Pending("RmsNorm"); }
absl::Status AddRmsNorm(Stream, const AddRmsNormArgs&) { return Pending("AddRmsNorm"); }
absl::Status LayerNorm(Stream, const LayerNormArgs&) { return Pending("LayerNorm"); }
absl::Status Rope(Stream, const RopeArgs&) { return Pending("Rope"); }
absl::Status Hadamard128(Stream, const Hadamard128Args&) { return Pending("Hadamard128"); }
absl::Status Quant128(Stream, const Quant128Args&) { return Pending("Quant128"); }
absl::Status DequantizeFp8Weight(Stream, const DequantizeFp8WeightArgs&) { return Pending("DequantizeFp8Weight"); }
absl::Status WriteLatent(Stream, const WriteLatentArgs&) { return Pending("WriteLatent"); }
absl::Status WriteIndexKey(Stream, const WriteIndexKeyArgs&) { return Pending("WriteIndexKey"); }
absl::Status IndexWeights(Stream, const IndexWeightsArgs&) { return Pending("IndexWeights"); }
absl::Status IndexLogits(Stream, const IndexLogitsArgs&) { return Pending("IndexLogits"); }
absl::Status TopK(Stream, const TopKArgs&) { return Pending("TopK"); }
absl::Status SparseMla(Stream, const SparseMlaArgs&) { return Pending("SparseMla"); }
absl::Status SwiGlu(Stream, const SwiGluArgs&) { return Pending("SwiGlu"); }
absl::Status MoeRouter(Stream, const MoeRouterArgs&) { return Pending("MoeRouter"); }
absl::Status MoeGroupRows(Stream, const MoeGroupRowsArgs&) { return Pending("MoeGroupRows"); }
absl::Status MoeCombine(Stream, const MoeCombineArgs&) { return Pending("MoeCombine"); }

}  // namespace tandem::kernels::cuda
