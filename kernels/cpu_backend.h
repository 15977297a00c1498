// The host as a backend: the free functions of ops.h, with a thread pool of its own, and plain memory. Everything is
// done when a call returns. Tested by cpu_backend_test.cc.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/thread_pool.h"

namespace tandem::kernels {

// Not final: tests put its memory apart (detached_backend.h).
class CpuBackend : public Backend {
 public:
  // num_threads: how many share an op's work, the caller among them.
  explicit CpuBackend(int num_threads) : threads_(num_threads) {}

  absl::string_view name() const override { return "cpu"; }
  absl::string_view numerics_id() const override;
  bool is_host() const override { return true; }

  absl::StatusOr<void*> Allocate(int64_t num_bytes) override;
  void Free(void* bytes) override;
  absl::Status PinHostMemory(absl::Span<std::byte>) override { return absl::OkStatus(); }
  void UnpinHostMemory(absl::Span<std::byte>) override {}
  absl::Status Upload(const MemoryCopy& copy) override { return Copy(copy); }
  absl::Status Download(const MemoryCopy& copy) override { return Copy(copy); }
  absl::Status Copy(const MemoryCopy& copy) override;
  absl::StatusOr<int64_t> DownloadBeside(absl::Span<const MemoryCopy> copies) override;
  absl::Status AwaitDownloads(int64_t) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status BeginBeside() override { return absl::OkStatus(); }
  absl::Status EndBeside() override { return absl::OkStatus(); }
  absl::Status JoinBeside() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<RecordedOps>> Record(std::function<absl::Status()>) override {
    return absl::UnimplementedError("cpu: ops are done when they are called");
  }

  absl::Status GatherRows(const GatherRowsArgs& args) override;
  absl::Status Argmax(const ArgmaxArgs& args) override;
  absl::Status RmsNorm(const RmsNormArgs& args) override;
  absl::Status AddRmsNorm(const AddRmsNormArgs& args) override;
  absl::Status LayerNorm(const LayerNormArgs& args) override;
  absl::Status Rope(const RopeArgs& args) override;
  absl::Status Hadamard128(const Hadamard128Args& args) override;
  absl::Status Quant128(const Quant128Args& args) override;
  absl::Status DequantizeFp8Weight(const DequantizeFp8WeightArgs& args) override;
  absl::Status Fp8Linear(const Fp8LinearArgs& args) override;
  absl::Status Fp8GroupedLinear(const Fp8GroupedLinearArgs& args) override;
  absl::Status Bf16Linear(const Bf16LinearArgs& args) override;
  absl::Status Bf16LinearF32(const Bf16LinearF32Args& args) override;
  absl::Status WriteLatent(const WriteLatentArgs& args) override;
  absl::Status WriteIndexKey(const WriteIndexKeyArgs& args) override;
  absl::Status IndexWeights(const IndexWeightsArgs& args) override;
  absl::Status IndexLogits(const IndexLogitsArgs& args) override;
  absl::Status TopK(const TopKArgs& args) override;
  absl::Status MlaAbsorbQuery(const MlaAbsorbQueryArgs& args) override;
  absl::Status SparseMla(const SparseMlaArgs& args) override;
  absl::Status MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args) override;
  absl::Status SwiGlu(const SwiGluArgs& args) override;
  absl::Status MoeRouter(const MoeRouterArgs& args) override;
  absl::Status MoeGroupRows(const MoeGroupRowsArgs& args) override;
  absl::Status MoeCombine(const MoeCombineArgs& args) override;

 private:
  // The args with this pool's threads.
  template <typename Args>
  Args Threaded(const Args& args) {
    Args threaded = args;
    threaded.threads = &threads_;
    return threaded;
  }

  ThreadPool threads_;
};

}  // namespace tandem::kernels
