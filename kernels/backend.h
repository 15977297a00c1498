// Where the model runs: the ops of ops.h together with the memory that they work on. Two implementations: CpuBackend on
// the host, and a CUDA device (cuda/device_backend.h).
//
// Ops and copies are done in the order of the calls. On the host they are done when a call returns. A device does them
// later: what a call was given must stay as it is, and what it gives may be looked at, only after Synchronize(); its
// memory is never read or written by the caller itself. An error that shows later comes back from a later call.
// One thread at a time. `threads` of args are the backend's own business: callers leave them out.
// Tested by cpu_backend_test.cc and cuda/device_backend_device_test.cc, and through the model's tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ops.h"

namespace tandem::kernels {

// num_bytes from `from` to `to`.
struct MemoryCopy {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t num_bytes = 0;
};

// Records of two arrays of equal records, one on the host: to[to_records[i]] = from[from_records[i]].
struct RecordCopies {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t record_bytes = 0;  // a multiple of 16
  absl::Span<const int32_t> to_records;
  absl::Span<const int32_t> from_records;  // as many

  MemoryCopy Copy(size_t i) const {
    return {static_cast<std::byte*>(to) + to_records[i] * record_bytes,
            static_cast<const std::byte*>(from) + from_records[i] * record_bytes, record_bytes};
  }
};

// Ops that were recorded once and are enqueued again as a whole.
class RecordedOps {
 public:
  virtual ~RecordedOps() = default;
  virtual absl::Status Replay() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu", "cuda:0".
  virtual absl::string_view name() const = 0;
  // Equal on two workers iff the same rows give the same bits on both: part of what they compare when they meet.
  virtual absl::string_view numerics_id() const = 0;
  // Whether its memory is the host's: then callers may read and write it between the calls, and ops read any memory.
  virtual bool is_host() const = 0;

  // ---- Memory ----
  // Zeroed and aligned to at least 256 bytes. RESOURCE_EXHAUSTED naming both sizes where there is not so much.
  virtual absl::StatusOr<void*> Allocate(int64_t num_bytes) = 0;
  virtual void Free(void* bytes) = 0;
  // Makes copies from and to this host memory fast and truly asynchronous, until it is unpinned. Nothing else changes.
  virtual absl::Status PinHostMemory(absl::Span<std::byte> bytes) = 0;
  virtual void UnpinHostMemory(absl::Span<std::byte> bytes) = 0;

  virtual absl::Status Upload(const MemoryCopy& copy) = 0;    // from the host
  virtual absl::Status Download(const MemoryCopy& copy) = 0;  // to the host
  virtual absl::Status Copy(const MemoryCopy& copy) = 0;      // within the backend's memory
  // Many small pieces at once. Fast where the host's side and both lists are pinned.
  virtual absl::Status UploadRecords(const RecordCopies& copies) {
    for (size_t i = 0; i < copies.to_records.size(); ++i) {
      if (absl::Status status = Upload(copies.Copy(i)); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  virtual absl::Status DownloadRecords(const RecordCopies& copies) {
    for (size_t i = 0; i < copies.to_records.size(); ++i) {
      if (absl::Status status = Download(copies.Copy(i)); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // Downloads that begin when everything enqueued so far is done and go on beside what follows. Gives a ticket for
  // AwaitDownloads. Later ops must leave the sources alone until then.
  virtual absl::StatusOr<int64_t> DownloadBeside(absl::Span<const MemoryCopy> copies) = 0;
  // Returns when the downloads of this ticket, and of all before it, are done.
  virtual absl::Status AwaitDownloads(int64_t ticket) = 0;
  // Returns when everything enqueued is done.
  virtual absl::Status Synchronize() = 0;

  // What is enqueued from BeginBeside to EndBeside may run beside what is enqueued from EndBeside to JoinBeside. Both
  // begin when all before BeginBeside is done, and what follows JoinBeside when both are; neither may write what the
  // other touches. Not nested. Where ops are done at once these do nothing. Synchronize ends what an error left open.
  virtual absl::Status BeginBeside() = 0;
  virtual absl::Status EndBeside() = 0;
  virtual absl::Status JoinBeside() = 0;

  // Calls `enqueue`, which calls nothing but ops, Copy and the three above, and records what it enqueues instead of
  // doing it. Each Replay does it once, with the same memory and shapes and whatever the memory then holds; launches of
  // single ops cost more. `enqueue` may be called again by a Replay. Where ops are done at once there is nothing to
  // record: UNIMPLEMENTED.
  virtual absl::StatusOr<std::unique_ptr<RecordedOps>> Record(std::function<absl::Status()> enqueue) = 0;

  // ---- The ops of ops.h ----
  virtual absl::Status GatherRows(const GatherRowsArgs& args) = 0;
  virtual absl::Status Argmax(const ArgmaxArgs& args) = 0;
  virtual absl::Status RmsNorm(const RmsNormArgs& args) = 0;
  virtual absl::Status AddRmsNorm(const AddRmsNormArgs& args) = 0;
  virtual absl::Status LayerNorm(const LayerNormArgs& args) = 0;
  virtual absl::Status Rope(const RopeArgs& args) = 0;
  virtual absl::Status Hadamard128(const Hadamard128Args& args) = 0;
  virtual absl::Status Quant128(const Quant128Args& args) = 0;
  virtual absl::Status DequantizeFp8Weight(const DequantizeFp8WeightArgs& args) = 0;
  virtual absl::Status Fp8Linear(const Fp8LinearArgs& args) = 0;
  virtual absl::Status Fp8GroupedLinear(const Fp8GroupedLinearArgs& args) = 0;
  virtual absl::Status Bf16Linear(const Bf16LinearArgs& args) = 0;
  virtual absl::Status Bf16LinearF32(const Bf16LinearF32Args& args) = 0;
  virtual absl::Status WriteLatent(const WriteLatentArgs& args) = 0;
  virtual absl::Status WriteIndexKey(const WriteIndexKeyArgs& args) = 0;
  virtual absl::Status IndexWeights(const IndexWeightsArgs& args) = 0;
  virtual absl::Status IndexLogits(const IndexLogitsArgs& args) = 0;
  virtual absl::Status TopK(const TopKArgs& args) = 0;
  virtual absl::Status MlaAbsorbQuery(const MlaAbsorbQueryArgs& args) = 0;
  virtual absl::Status SparseMla(const SparseMlaArgs& args) = 0;
  virtual absl::Status MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args) = 0;
  virtual absl::Status SwiGlu(const SwiGluArgs& args) = 0;
  virtual absl::Status MoeRouter(const MoeRouterArgs& args) = 0;
  virtual absl::Status MoeGroupRows(const MoeGroupRowsArgs& args) = 0;
  virtual absl::Status MoeCombine(const MoeCombineArgs& args) = 0;
};

}  // namespace tandem::kernels
