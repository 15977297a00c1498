#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/cuda/device_backend.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/device_records.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"

namespace tandem::kernels::cuda {
namespace {

// Kernels' bits belong to this kind of device and this source: a change of any bit takes the next number.
constexpr char kNumericsId[] = "cuda-sm90a/2";

// Downloads under way that can be waited for one by one; of older ones a later one is waited for.
constexpr int64_t kMarks = 8;

constexpr int kCopyThreads = 256;

__global__ void __launch_bounds__(kCopyThreads) CopyKernel(const uint4* from, uint4* to, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kCopyThreads + threadIdx.x;
  if (i < count) to[i] = from[i];
}

class RecordedGraph final : public RecordedOps {
 public:
  RecordedGraph(int device, cudaStream_t stream, cudaGraphExec_t graph)
      : device_(device), stream_(stream), graph_(graph) {}
  ~RecordedGraph() override {
    cudaSetDevice(device_);
    cudaGraphExecDestroy(graph_);
  }
  absl::Status Replay() override {
    cudaSetDevice(device_);
    return CudaStatus(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
  }

 private:
  const int device_;
  const cudaStream_t stream_;
  const cudaGraphExec_t graph_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index) : index_(index), name_(absl::StrCat("cuda:", index)) {}
  ~CudaBackend() override {
    Use();
    for (cudaEvent_t mark : marks_) cudaEventDestroy(mark);
    for (cudaEvent_t event : {ops_done_, begun_, ended_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (downloads_ != nullptr) cudaStreamDestroy(downloads_);
    if (beside_ != nullptr) cudaStreamDestroy(beside_);
    if (ops_ != nullptr) cudaStreamDestroy(ops_);
  }

  absl::Status Start() {
    Use();
    cudaError_t error = cudaStreamCreateWithFlags(&ops_, cudaStreamNonBlocking);
    current_ = ops_;
    for (cudaStream_t* stream : {&beside_, &downloads_}) {
      if (error == cudaSuccess) error = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    }
    for (cudaEvent_t* event : {&ops_done_, &begun_, &ended_}) {
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    }
    for (int64_t i = 0; i < kMarks && error == cudaSuccess; ++i) {
      cudaEvent_t mark = nullptr;
      error = cudaEventCreateWithFlags(&mark, cudaEventDisableTiming);
      if (error == cudaSuccess) marks_.push_back(mark);
    }
    return Named(error, "streams");
  }

  absl::string_view name() const override { return name_; }
  absl::string_view numerics_id() const override { return kNumericsId; }
  bool is_host() const override { return false; }

  absl::StatusOr<void*> Allocate(int64_t num_bytes) override {
    Use();
    void* bytes = nullptr;
    const size_t size = num_bytes > 0 ? static_cast<size_t>(num_bytes) : 1;
    cudaError_t error = cudaMalloc(&bytes, size);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // told here, not by the next launch
      size_t free = 0, total = 0;
      if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = 0;
      return absl::ResourceExhaustedError(absl::StrCat(name_, ": ", num_bytes, " bytes of device memory are needed, ",
                                                       free, " of ", total, " are free"));
    }
    if (error == cudaSuccess) error = cudaMemsetAsync(bytes, 0, size, ops_);
    if (error != cudaSuccess) return Named(error, "cudaMalloc");
    return bytes;
  }
  void Free(void* bytes) override {
    Use();
    cudaFree(bytes);
  }

  absl::Status PinHostMemory(absl::Span<std::byte> bytes) override {
    if (bytes.empty()) return absl::OkStatus();
    Use();
    const cudaError_t error = cudaHostRegister(bytes.data(), bytes.size(), cudaHostRegisterPortable);
    if (error != cudaSuccess) cudaGetLastError();  // told here, not by the next launch
    return Named(error, "cudaHostRegister");
  }
  void UnpinHostMemory(absl::Span<std::byte> bytes) override {
    if (bytes.empty()) return;
    Use();
    cudaHostUnregister(bytes.data());
  }

  absl::Status Upload(const MemoryCopy& copy) override { return Enqueue(copy, cudaMemcpyHostToDevice, current_); }
  absl::Status Download(const MemoryCopy& copy) override { return Enqueue(copy, cudaMemcpyDeviceToHost, current_); }
  // By a kernel, where it can: a graph's copy reaches two thirds of its rate, and a kernel may start early behind it.
  absl::Status Copy(const MemoryCopy& copy) override {
    const auto bits = reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from) |
                      static_cast<uintptr_t>(copy.num_bytes);
    if (bits % sizeof(uint4) != 0 || copy.num_bytes == 0) return Enqueue(copy, cudaMemcpyDeviceToDevice, current_);
    Use();
    const int64_t count = copy.num_bytes / static_cast<int64_t>(sizeof(uint4));
    CopyKernel<<<static_cast<unsigned>((count + kCopyThreads - 1) / kCopyThreads), kCopyThreads, 0, current_>>>(
        static_cast<const uint4*>(copy.from), static_cast<uint4*>(copy.to), count);
    return LaunchStatus("a copy");
  }

  absl::Status UploadRecords(const RecordCopies& copies) override {
    Use();
    if (!ArePinned(copies, copies.from)) return Backend::UploadRecords(copies);
    return CopyRecords(ops_, copies);
  }
  absl::Status DownloadRecords(const RecordCopies& copies) override {
    Use();
    if (!ArePinned(copies, copies.to)) return Backend::DownloadRecords(copies);
    return CopyRecords(ops_, copies);
  }

  absl::StatusOr<int64_t> DownloadBeside(absl::Span<const MemoryCopy> copies) override {
    Use();
    cudaError_t error = cudaEventRecord(ops_done_, ops_);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(downloads_, ops_done_, 0);
    if (error != cudaSuccess) return Named(error, "downloads");
    for (const MemoryCopy& copy : copies) {
      const absl::Status status = Enqueue(copy, cudaMemcpyDeviceToHost, downloads_);
      if (!status.ok()) return status;
    }
    const int64_t ticket = next_ticket_++;
    error = cudaEventRecord(marks_[static_cast<size_t>(ticket % kMarks)], downloads_);
    if (error != cudaSuccess) return Named(error, "downloads");
    return ticket;
  }
  absl::Status AwaitDownloads(int64_t ticket) override {
    Use();
    return Waited(cudaEventSynchronize(marks_[static_cast<size_t>(ticket % kMarks)]));
  }
  absl::Status Synchronize() override {
    Use();
    current_ = ops_;
    for (cudaStream_t stream : {beside_, ops_, downloads_}) {
      if (absl::Status status = Waited(cudaStreamSynchronize(stream)); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status BeginBeside() override {
    Use();
    cudaError_t error = cudaEventRecord(begun_, ops_);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(beside_, begun_, 0);
    current_ = beside_;
    return Named(error, "ops beside others");
  }
  absl::Status EndBeside() override {
    Use();
    current_ = ops_;
    return Named(cudaEventRecord(ended_, beside_), "ops beside others");
  }
  absl::Status JoinBeside() override {
    Use();
    return Named(cudaStreamWaitEvent(ops_, ended_, 0), "ops beside others");
  }

  absl::StatusOr<std::unique_ptr<RecordedOps>> Record(std::function<absl::Status()> enqueue) override {
    Use();
    cudaError_t error = cudaStreamBeginCapture(ops_, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) return Named(error, "cudaStreamBeginCapture");
    const absl::Status enqueued = enqueue();
    current_ = ops_;
    cudaGraph_t graph = nullptr;
    error = cudaStreamEndCapture(ops_, &graph);  // in any case: the stream must be as before
    cudaGraphExec_t instance = nullptr;
    if (enqueued.ok() && error == cudaSuccess) error = cudaGraphInstantiate(&instance, graph, 0);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (error != cudaSuccess) cudaGetLastError();  // told here, not by the next launch
    if (!enqueued.ok()) return enqueued;
    if (error != cudaSuccess) return Named(error, "the graph");
    return std::make_unique<RecordedGraph>(index_, ops_, instance);
  }

  absl::Status GatherRows(const GatherRowsArgs& args) override {
    Use();
    return cuda::GatherRows(current_, args);
  }
  absl::Status Argmax(const ArgmaxArgs& args) override {
    Use();
    return cuda::Argmax(current_, args);
  }
  absl::Status RmsNorm(const RmsNormArgs& args) override {
    Use();
    return cuda::RmsNorm(current_, args);
  }
  absl::Status AddRmsNorm(const AddRmsNormArgs& args) override {
    Use();
    return cuda::AddRmsNorm(current_, args);
  }
  absl::Status LayerNorm(const LayerNormArgs& args) override {
    Use();
    return cuda::LayerNorm(current_, args);
  }
  absl::Status Rope(const RopeArgs& args) override {
    Use();
    return cuda::Rope(current_, args);
  }
  absl::Status Hadamard128(const Hadamard128Args& args) override {
    Use();
    return cuda::Hadamard128(current_, args);
  }
  absl::Status Quant128(const Quant128Args& args) override {
    Use();
    return cuda::Quant128(current_, args);
  }
  absl::Status DequantizeFp8Weight(const DequantizeFp8WeightArgs& args) override {
    Use();
    return cuda::DequantizeFp8Weight(current_, args);
  }
  absl::Status Fp8Linear(const Fp8LinearArgs& args) override {
    Use();
    return cuda::Fp8Linear(current_, args);
  }
  absl::Status Fp8GroupedLinear(const Fp8GroupedLinearArgs& args) override {
    Use();
    return cuda::Fp8GroupedLinear(current_, args);
  }
  absl::Status Bf16Linear(const Bf16LinearArgs& args) override {
    Use();
    return cuda::Bf16Linear(current_, args);
  }
  absl::Status Bf16LinearF32(const Bf16LinearF32Args& args) override {
    Use();
    return cuda::Bf16LinearF32(current_, args);
  }
  absl::Status WriteLatent(const WriteLatentArgs& args) override {
    Use();
    return cuda::WriteLatent(current_, args);
  }
  absl::Status WriteIndexKey(const WriteIndexKeyArgs& args) override {
    Use();
    return cuda::WriteIndexKey(current_, args);
  }
  absl::Status IndexWeights(const IndexWeightsArgs& args) override {
    Use();
    return cuda::IndexWeights(current_, args);
  }
  absl::Status IndexLogits(const IndexLogitsArgs& args) override {
    Use();
    return cuda::IndexLogits(current_, args);
  }
  absl::Status TopK(const TopKArgs& args) override {
    Use();
    return cuda::TopK(current_, args);
  }
  absl::Status MlaAbsorbQuery(const MlaAbsorbQueryArgs& args) override {
    Use();
    return cuda::MlaAbsorbQuery(current_, args);
  }
  absl::Status SparseMla(const SparseMlaArgs& args) override {
    Use();
    return cuda::SparseMla(current_, args);
  }
  absl::Status MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args) override {
    Use();
    return cuda::MlaUnabsorbOutput(current_, args);
  }
  absl::Status SwiGlu(const SwiGluArgs& args) override {
    Use();
    return cuda::SwiGlu(current_, args);
  }
  absl::Status MoeRouter(const MoeRouterArgs& args) override {
    Use();
    return cuda::MoeRouter(current_, args);
  }
  absl::Status MoeGroupRows(const MoeGroupRowsArgs& args) override {
    Use();
    return cuda::MoeGroupRows(current_, args);
  }
  absl::Status MoeCombine(const MoeCombineArgs& args) override {
    Use();
    return cuda::MoeCombine(current_, args);
  }

 private:
  // The current device is the calling thread's.
  void Use() const { cudaSetDevice(index_); }

  // Whether a kernel reaches the host's side and both lists.
  static bool ArePinned(const RecordCopies& copies, const void* host) {
    return !copies.to_records.empty() && IsPinned(host) && IsPinned(copies.to_records.data()) &&
           IsPinned(copies.from_records.data());
  }

  absl::Status Named(cudaError_t error, absl::string_view what) const {
    return CudaStatus(error, absl::StrCat(name_, ": ", what));
  }

  absl::Status Enqueue(const MemoryCopy& copy, cudaMemcpyKind kind, cudaStream_t stream) {
    if (copy.num_bytes == 0) return absl::OkStatus();
    Use();
    return Named(cudaMemcpyAsync(copy.to, copy.from, static_cast<size_t>(copy.num_bytes), kind, stream),
                 "cudaMemcpyAsync");
  }

  // What waiting brings up is a fault of something enqueued, and stays.
  absl::Status Waited(cudaError_t error) const {
    TANDEM_CHECK(error == cudaSuccess, absl::StrCat(name_, ": the device failed: ", cudaGetErrorName(error), ", ",
                                                    cudaGetErrorString(error)));
    return absl::OkStatus();
  }

  const int index_;
  const std::string name_;
  cudaStream_t ops_ = nullptr;
  cudaStream_t beside_ = nullptr;   // between BeginBeside and EndBeside
  cudaStream_t current_ = nullptr;  // one of the two
  cudaStream_t downloads_ = nullptr;
  cudaEvent_t ops_done_ = nullptr;
  cudaEvent_t begun_ = nullptr, ended_ = nullptr;  // of ops beside others
  std::vector<cudaEvent_t> marks_;
  int64_t next_ticket_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> OpenCudaBackend(int device_index) {
  const absl::StatusOr<std::vector<DeviceInfo>> devices = ListDevices();
  if (!devices.ok()) return devices.status();
  if (device_index < 0 || device_index >= static_cast<int>(devices->size())) {
    return absl::NotFoundError(
        absl::StrCat("device ", device_index, " is not there, this process sees ", devices->size(), " CUDA devices"));
  }
  const DeviceInfo& device = (*devices)[static_cast<size_t>(device_index)];
  if (!device.is_supported) {
    return absl::FailedPreconditionError(absl::StrCat(device.name, " has compute capability ", device.compute_major,
                                                      ".", device.compute_minor,
                                                      ", the kernels of this build run on 9.0 only"));
  }
  auto backend = std::make_unique<CudaBackend>(device_index);
  const absl::Status started = backend->Start();
  if (!started.ok()) return started;
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace tandem::kernels::cuda
