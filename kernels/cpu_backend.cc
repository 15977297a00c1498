#include "kernels/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

// Sixteen virtual lanes and their tree at every instruction level (docs/kernels/numerics.md); a change of any bit takes
// the next number.
absl::string_view CpuBackend::numerics_id() const { return "cpu-lanes16/2"; }

absl::StatusOr<void*> CpuBackend::Allocate(int64_t num_bytes) {
  const int64_t rounded = (std::max<int64_t>(num_bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* bytes = std::aligned_alloc(kAlignment, rounded);
  if (bytes == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cpu: ", num_bytes, " bytes of memory are not to be had"));
  }
  std::memset(bytes, 0, rounded);
  return bytes;
}

void CpuBackend::Free(void* bytes) { std::free(bytes); }

absl::Status CpuBackend::Copy(const MemoryCopy& copy) {
  if (copy.num_bytes > 0) std::memcpy(copy.to, copy.from, copy.num_bytes);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CpuBackend::DownloadBeside(absl::Span<const MemoryCopy> copies) {
  for (const MemoryCopy& copy : copies) (void)Copy(copy);
  return 0;
}

absl::Status CpuBackend::GatherRows(const GatherRowsArgs& args) { return kernels::GatherRows(args); }
absl::Status CpuBackend::Argmax(const ArgmaxArgs& args) { return kernels::Argmax(args); }
absl::Status CpuBackend::RmsNorm(const RmsNormArgs& args) { return kernels::RmsNorm(args); }
absl::Status CpuBackend::AddRmsNorm(const AddRmsNormArgs& args) { return kernels::AddRmsNorm(args); }
absl::Status CpuBackend::LayerNorm(const LayerNormArgs& args) { return kernels::LayerNorm(args); }
absl::Status CpuBackend::Rope(const RopeArgs& args) { return kernels::Rope(args); }
absl::Status CpuBackend::Hadamard128(const Hadamard128Args& args) { return kernels::Hadamard128(args); }
absl::Status CpuBackend::Quant128(const Quant128Args& args) { return kernels::Quant128(args); }
absl::Status CpuBackend::DequantizeFp8Weight(const DequantizeFp8WeightArgs& args) {
  return kernels::DequantizeFp8Weight(args);
}
absl::Status CpuBackend::Fp8Linear(const Fp8LinearArgs& args) { return kernels::Fp8Linear(Threaded(args)); }
absl::Status CpuBackend::Fp8GroupedLinear(const Fp8GroupedLinearArgs& args) {
  return kernels::Fp8GroupedLinear(Threaded(args));
}
absl::Status CpuBackend::Bf16Linear(const Bf16LinearArgs& args) { return kernels::Bf16Linear(Threaded(args)); }
absl::Status CpuBackend::Bf16LinearF32(const Bf16LinearF32Args& args) { return kernels::Bf16LinearF32(Threaded(args)); }
absl::Status CpuBackend::WriteLatent(const WriteLatentArgs& args) { return kernels::WriteLatent(args); }
absl::Status CpuBackend::WriteIndexKey(const WriteIndexKeyArgs& args) { return kernels::WriteIndexKey(args); }
absl::Status CpuBackend::IndexWeights(const IndexWeightsArgs& args) { return kernels::IndexWeights(args); }
absl::Status CpuBackend::IndexLogits(const IndexLogitsArgs& args) { return kernels::IndexLogits(Threaded(args)); }
absl::Status CpuBackend::TopK(const TopKArgs& args) { return kernels::TopK(Threaded(args)); }
absl::Status CpuBackend::MlaAbsorbQuery(const MlaAbsorbQueryArgs& args) {
  return kernels::MlaAbsorbQuery(Threaded(args));
}
absl::Status CpuBackend::SparseMla(const SparseMlaArgs& args) { return kernels::SparseMla(Threaded(args)); }
absl::Status CpuBackend::MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args) {
  return kernels::MlaUnabsorbOutput(Threaded(args));
}
absl::Status CpuBackend::SwiGlu(const SwiGluArgs& args) { return kernels::SwiGlu(args); }
absl::Status CpuBackend::MoeRouter(const MoeRouterArgs& args) { return kernels::MoeRouter(args); }
absl::Status CpuBackend::MoeGroupRows(const MoeGroupRowsArgs& args) { return kernels::MoeGroupRows(args); }
absl::Status CpuBackend::MoeCombine(const MoeCombineArgs& args) { return kernels::MoeCombine(args); }

}  // namespace tandem::kernels
