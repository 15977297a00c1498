#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/device_limits.h"
#include "kernels/cuda/device_random.cuh"
#include "kernels/cuda/launch.h"

namespace tandem::kernels::cuda {
namespace {

constexpr double kReplaySeconds = 2e-3;
constexpr int kLaunchesMax = 2000;
constexpr double kBurstSeconds = 10e-3;
constexpr int kBurstReplaysMin = 4;

template <typename T>
struct Normal {
  uint64_t seed;
  float deviation;
  __device__ T operator()(int64_t i) const {
    const float value = RandomNormal(seed, i) * deviation;
    if constexpr (std::is_same_v<T, Bf16>) {
      return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
    } else if constexpr (std::is_same_v<T, E4m3>) {
      return E4m3{__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)};
    } else {
      return value;
    }
  }
};
struct Uniform {
  uint64_t seed;
  float low, high;
  __device__ float operator()(int64_t i) const {
    return low + (high - low) * (static_cast<float>(RandomBits(seed, i) >> 40) * 0x1p-24f);
  }
};
struct PowersOfTwo {
  uint64_t seed;
  int low, high;
  __device__ float operator()(int64_t i) const {
    return ldexpf(1.0f, low + static_cast<int>((RandomBits(seed, i) >> 33) % static_cast<uint64_t>(high - low + 1)));
  }
};

template <typename T, typename Value>
__global__ void FillKernel(T* data, int64_t count, Value value) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) data[i] = value(i);
}

template <typename T, typename Value>
absl::Status Fill(Stream stream, T* data, int64_t count, const Value& value) {
  if (count == 0) return absl::OkStatus();
  FillKernel<<<static_cast<int>(std::min<int64_t>((count + 255) / 256, 4096)), 256, 0, stream>>>(data, count, value);
  return LaunchStatus("fill");
}

// Launches of a case, recorded to be replayed.
class Graph final {
 public:
  static absl::StatusOr<Graph> Record(const BenchmarkCase& benchmark_case, Stream stream, int num_launches) {
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
    const absl::Status launched = [&] {
      for (int i = 0; i < num_launches; ++i) {
        RETURN_IF_ERROR(benchmark_case.launch(stream, i % benchmark_case.num_sets));
      }
      return absl::OkStatus();
    }();
    cudaGraph_t recorded = nullptr;
    const absl::Status ended = CudaStatus(cudaStreamEndCapture(stream, &recorded), "cudaStreamEndCapture");
    RETURN_IF_ERROR(launched);
    RETURN_IF_ERROR(ended);
    Graph graph;
    const absl::Status made = CudaStatus(cudaGraphInstantiate(&graph.graph_, recorded, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(recorded);
    RETURN_IF_ERROR(made);
    return graph;
  }
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  ~Graph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  // Seconds of one replay.
  absl::StatusOr<double> Replay(Stream stream, cudaEvent_t begin, cudaEvent_t end) const {
    RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin, stream), "cudaEventRecord"));
    RETURN_IF_ERROR(CudaStatus(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"));
    RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end, stream), "cudaEventRecord"));
    RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end), "cudaEventSynchronize"));
    float milliseconds = 0;
    RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime"));
    return milliseconds * 1e-3;
  }

 private:
  Graph() = default;

  cudaGraphExec_t graph_ = nullptr;
};

struct Events {
  Events() {
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
  }
  ~Events() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  cudaEvent_t begin = nullptr, end = nullptr;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Replays for so many seconds of device time, at least so often; the time of each.
absl::StatusOr<std::vector<double>> ReplayFor(const Graph& graph, Stream stream, const Events& events, double seconds,
                                              int count_min) {
  std::vector<double> times;
  for (double spent = 0; spent < seconds || static_cast<int>(times.size()) < count_min; spent += times.back()) {
    ASSIGN_OR_RETURN(const double time, graph.Replay(stream, events.begin, events.end));
    times.push_back(time);
  }
  return times;
}

}  // namespace

absl::Status FillNormal(Stream stream, Bf16* data, int64_t count, uint64_t seed, float deviation) {
  return Fill(stream, data, count, Normal<Bf16>{seed, deviation});
}
absl::Status FillNormal(Stream stream, float* data, int64_t count, uint64_t seed, float deviation) {
  return Fill(stream, data, count, Normal<float>{seed, deviation});
}
absl::Status FillNormal(Stream stream, E4m3* data, int64_t count, uint64_t seed, float deviation) {
  return Fill(stream, data, count, Normal<E4m3>{seed, deviation});
}
absl::Status FillUniform(Stream stream, float* data, int64_t count, uint64_t seed, float low, float high) {
  return Fill(stream, data, count, Uniform{seed, low, high});
}
absl::Status FillPowersOfTwo(Stream stream, float* data, int64_t count, uint64_t seed, int low, int high) {
  return Fill(stream, data, count, PowersOfTwo{seed, low, high});
}
absl::Status FillZeros(Stream stream, void* data, int64_t num_bytes) {
  return CudaStatus(cudaMemsetAsync(data, 0, static_cast<size_t>(num_bytes), stream), "cudaMemsetAsync");
}

int DeviceBenchmark::NumSets(int64_t bytes_per_launch) {
  return static_cast<int>(std::clamp<int64_t>(160'000'000 / std::max<int64_t>(bytes_per_launch, 1) + 1, 3, 512));
}

absl::Status DeviceBenchmark::Start(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--only=")) {
      only_ = std::string(text);
    } else if (absl::ConsumePrefix(&text, "--json=")) {
      json_ = std::string(text);
    } else if (text == "--sustained") {
      all_sustained_ = true;
    } else {
      return absl::InvalidArgumentError(absl::StrCat(text, " is no option: --only=TEXT --sustained --json=FILE"));
    }
  }
  if (!json_.empty() && json_ != "-") {
    json_file_.open(json_);
    if (!json_file_) return absl::InvalidArgumentError(absl::StrCat("--json: cannot write ", json_));
  }
  return MeasureLimits();
}

bool DeviceBenchmark::Wants(absl::string_view op, absl::string_view shape) const {
  return only_.empty() || absl::StrContains(absl::StrCat(op, " ", shape), only_);
}

void DeviceBenchmark::Fail(const std::string& what) {
  std::printf("FAILED %s\n", what.c_str());
  has_failed_ = true;
}

absl::StatusOr<DeviceBenchmark::Times> DeviceBenchmark::Time(const BenchmarkCase& benchmark_case, bool sustained) {
  // Outside a graph first: what is wrong with the op shows here, and lazily loaded code is loaded.
  RETURN_IF_ERROR(benchmark_case.launch(stream_, 0));
  RETURN_IF_ERROR(Synchronize(stream_));
  const Events events;
  int num_launches = std::min(benchmark_case.num_sets, 4);
  for (int round = 0; round < 2; ++round) {  // the second one starts from a better estimate
    ASSIGN_OR_RETURN(const Graph graph, Graph::Record(benchmark_case, stream_, num_launches));
    ASSIGN_OR_RETURN(const std::vector<double> times, ReplayFor(graph, stream_, events, 0, 2));
    num_launches =
        static_cast<int>(std::clamp(kReplaySeconds * num_launches / times.back(), 1.0, double{kLaunchesMax}));
  }
  ASSIGN_OR_RETURN(const Graph graph, Graph::Record(benchmark_case, stream_, num_launches));
  ASSIGN_OR_RETURN(std::vector<double> times, ReplayFor(graph, stream_, events, 0, 1));

  const bool is_heavy = benchmark_case.tensor_rate != TensorRate::kNone;
  absl::SleepFor(is_heavy || is_warm_ ? absl::Milliseconds(400) : absl::Milliseconds(20));
  is_warm_ = is_heavy || sustained;
  Times result;
  ASSIGN_OR_RETURN(times, ReplayFor(graph, stream_, events, kBurstSeconds, kBurstReplaysMin));
  result.burst = Median(times) / num_launches;
  if (sustained) {
    ASSIGN_OR_RETURN(times, ReplayFor(graph, stream_, events, is_heavy ? 1.5 : 0.6, 8));
    result.megahertz = clock_.Megahertz();
    result.sustained = Median({times.begin() + times.size() / 2, times.end()}) / num_launches;
  }
  return result;
}

void DeviceBenchmark::Measure(const BenchmarkCase& benchmark_case) {
  if (!Wants(benchmark_case.op, benchmark_case.shape)) return;
  const bool sustained = all_sustained_ || benchmark_case.tensor_rate != TensorRate::kNone;
  if (const absl::Status status = MeasureTensorLimit(benchmark_case.tensor_rate); !status.ok()) {
    return Fail(status.ToString());
  }
  const absl::StatusOr<Times> times = Time(benchmark_case, sustained);
  if (!times.ok()) {
    Fail(absl::StrCat(benchmark_case.op, " ", benchmark_case.shape, ": ", times.status().ToString()));
    return;
  }
  PrintLine(benchmark_case, *times);
}

void DeviceBenchmark::PrintLine(const BenchmarkCase& benchmark_case, const Times& times) {
  const bool has_tensor = benchmark_case.tensor_rate != TensorRate::kNone;
  const double* peak = benchmark_case.tensor_rate == TensorRate::kFp8 ? limits_.fp8_flops : limits_.bf16_flops;
  const double memory = limits_.launch_seconds + benchmark_case.bytes / limits_.read_bytes_per_s;
  std::string line = absl::StrFormat("%-20s %-44s", benchmark_case.op, benchmark_case.shape);
  const double seconds[2] = {times.burst, times.sustained};
  for (int i = 0; i < 2; ++i) {
    if (seconds[i] == 0) continue;
    absl::StrAppendFormat(&line, " %s %9.2f us %6.0f GB/s %3.0f%% mem", i == 0 ? "burst" : "sustained",
                          seconds[i] * 1e6, benchmark_case.bytes / seconds[i] * 1e-9, 100 * memory / seconds[i]);
    if (has_tensor) {
      absl::StrAppendFormat(&line, " %6.0f TFLOPS %3.0f%%", benchmark_case.flops / seconds[i] * 1e-12,
                            100 * benchmark_case.flops / seconds[i] / peak[i]);
    }
  }
  if (times.megahertz != 0) absl::StrAppend(&line, " at ", times.megahertz, " MHz");
  if (!benchmark_case.peer.empty()) absl::StrAppend(&line, "  [", benchmark_case.peer, "]");
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  if (json_.empty()) return;
  const std::string object = absl::StrFormat(
      R"({"op": "%s", "shape": "%s", "bytes": %.0f, "flops": %.0f, "burst_us": %.4f, "sustained_us": %.4f, "sustained_mhz": %d})",
      benchmark_case.op, benchmark_case.shape, benchmark_case.bytes, benchmark_case.flops, times.burst * 1e6,
      times.sustained * 1e6, times.megahertz);
  (json_ == "-" ? std::cout : json_file_) << object << std::endl;
}

absl::Status DeviceBenchmark::MeasureLimit(const BenchmarkCase& limit, double amount, bool sustained, double* rates) {
  const absl::StatusOr<Times> times = Time(limit, sustained);
  if (!times.ok()) return absl::Status(times.status().code(), absl::StrCat(limit.op, ": ", times.status().message()));
  rates[0] = amount / times->burst;
  if (sustained) rates[1] = amount / times->sustained;
  return absl::OkStatus();
}

absl::Status DeviceBenchmark::MeasureTensorLimit(TensorRate tensor_rate) {
  double* peak = tensor_rate == TensorRate::kFp8 ? limits_.fp8_flops : limits_.bf16_flops;
  if (tensor_rate == TensorRate::kNone || peak[0] != 0) return absl::OkStatus();
  const char* name = tensor_rate == TensorRate::kFp8 ? "fp8" : "bf16";
  const absl::Status status = MeasureLimit(
      {.op = absl::StrCat(name, " wgmma"),
       .tensor_rate = tensor_rate,
       .launch = [&](Stream stream, int64_t) { return LimitTensor(stream, tensor_rate == TensorRate::kFp8); }},
      LimitTensorFlops(tensor_rate == TensorRate::kFp8), true, peak);
  if (status.ok()) {
    std::printf("limits: %s wgmma from shared memory %.0f TFLOPS burst, %.0f sustained\n", name, peak[0] * 1e-12,
                peak[1] * 1e-12);
  }
  return status;
}

absl::Status DeviceBenchmark::MeasureLimits() {
  constexpr int64_t kBytes = int64_t{1} << 30;
  ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::Allocate(2 * kBytes));
  std::byte* data = memory.data();
  RETURN_IF_ERROR(FillNormal(stream_, reinterpret_cast<float*>(data), 2 * kBytes / 4, 1, 1));
  RETURN_IF_ERROR(
      MeasureLimit({.op = "read", .launch = [&](Stream stream, int64_t) { return LimitRead(stream, data, kBytes); }},
                   kBytes, false, &limits_.read_bytes_per_s));
  RETURN_IF_ERROR(MeasureLimit(
      {.op = "copy", .launch = [&](Stream stream, int64_t) { return LimitCopy(stream, data, data + kBytes, kBytes); }},
      2 * kBytes, false, &limits_.copy_bytes_per_s));
  double launches_per_s = 0;
  RETURN_IF_ERROR(MeasureLimit(
      {.op = "empty", .num_sets = 512, .launch = [](Stream stream, int64_t) { return LimitEmpty(stream); }}, 1, false,
      &launches_per_s));
  limits_.launch_seconds = 1 / launches_per_s;
  std::printf("limits: read %.0f GB/s, copy %.0f GB/s (read and written), graph node %.2f us\n",
              limits_.read_bytes_per_s * 1e-9, limits_.copy_bytes_per_s * 1e-9, limits_.launch_seconds * 1e6);
  return absl::OkStatus();
}

int DeviceBenchmarkMain(int argc, char** argv, const std::function<void(DeviceBenchmark&)>& cases) {
  if (const absl::Status status = UseFirstSupportedDevice(); !status.ok()) {
    std::printf("no device to measure: %s\n", status.ToString().c_str());
    return 0;
  }
  const absl::StatusOr<OwnedStream> stream = OwnedStream::Create();
  if (!stream.ok()) {
    std::printf("%s\n", stream.status().ToString().c_str());
    return 1;
  }
  DeviceBenchmark benchmark(stream->get());
  if (const absl::Status status = benchmark.Start(argc, argv); !status.ok()) {
    std::printf("%s\n", status.ToString().c_str());
    return 1;
  }
  cases(benchmark);
  return benchmark.Finish();
}

}  // namespace tandem::kernels::cuda
