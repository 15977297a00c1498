// Times ops on a CUDA device and prints what share of the device's own limits they reach; limits and ops are measured
// in the same run, limits first.
//
//   int main(int argc, char** argv) {
//     return DeviceBenchmarkMain(argc, argv, [](DeviceBenchmark& benchmark) {
//       const int64_t bytes = ...;                                   // what one launch reads and writes
//       const int num_sets = DeviceBenchmark::NumSets(bytes);
//       const auto x = DeviceArray<Bf16>::Normal(benchmark, num_sets * rows * dim, 1.0f);
//       benchmark.Measure({.op = "RmsNorm", .shape = "4096 x 7168", .bytes = bytes, .num_sets = num_sets,
//                          .launch = [&](Stream stream, int64_t set) { return cuda::RmsNorm(stream, ...); }});
//     });
//   }
//
// Method: a CUDA graph of so many launches that one replay takes about 2 ms; each launch works on the next of num_sets
// sets of data, together larger than the L2 cache; events around each replay. The time of one launch includes the gap
// between two nodes of a graph, about half a microsecond.
// - burst: after an idle pause, the median of the replays of the first 10 ms (at least four).
// - sustained: replays without a pause for 0.6 s (1.5 s where the tensor cores are the limit), the median of the second
//   half and the clock then: at the power limit, where tensor cores end up. Measured where they are the limit, and on
//   demand.
// Compare burst with burst and sustained with sustained. Data are random: zeros take less power.
// Options: --only=TEXT (of "op shape"), --sustained (of every case), --json=FILE (one object a line; - is stdout).
// Tested by running it; without a device it says why and ends with status 0.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/device_clock.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/dtypes.h"

namespace tandem::kernels::cuda {

// The limit that a case is compared with besides memory.
enum class TensorRate { kNone, kBf16, kFp8 };

struct BenchmarkCase {
  std::string op;
  std::string shape;
  double bytes = 0;  // read and written by one launch, each once
  double flops = 0;
  TensorRate tensor_rate = TensorRate::kNone;
  int num_sets = 1;
  std::function<absl::Status(Stream stream, int64_t set)> launch;  // set in [0, num_sets)
  std::string peer;  // what to compare with, printed as it is: "DeepGEMM 61.4 us"
};

// Of this device, in this run. Rates of one kernel each that does nothing else.
struct DeviceLimits {
  double read_bytes_per_s = 0;  // 16-byte loads of 1 GiB
  double copy_bytes_per_s = 0;  // read and written, together
  double launch_seconds = 0;    // an empty node of a graph
  // wgmma on tiles in shared memory, random data: [burst, sustained] FLOP/s.
  double bf16_flops[2] = {};
  double fp8_flops[2] = {};
};

class DeviceBenchmark final {
 public:
  // Input sets of a case whose launch touches so many bytes: together 160 MB, at least 3, at most 512.
  static int NumSets(int64_t bytes_per_launch);

  explicit DeviceBenchmark(Stream stream) : stream_(stream) {}

  // Reads the options, then measures the limits and prints them. INVALID_ARGUMENT where an option is unknown.
  absl::Status Start(int argc, char** argv);
  // Prints one line. A case that fails says so and makes Finish answer 1.
  void Measure(const BenchmarkCase& benchmark_case);
  // Whether Measure would run it: to spare the preparation of what is left out.
  bool Wants(absl::string_view op, absl::string_view shape) const;
  int Finish() const { return has_failed_ ? 1 : 0; }

  // Done when a case first asks for that rate: it takes seconds.
  absl::Status MeasureTensorLimit(TensorRate tensor_rate);

  Stream stream() const { return stream_; }
  const DeviceLimits& limits() const { return limits_; }
  uint64_t NextSeed() { return ++seed_; }
  void Fail(const std::string& what);

 private:
  struct Times {
    double burst = 0;
    double sustained = 0;  // 0: not measured
    int megahertz = 0;     // of the multiprocessors, at the end of the sustained replays; 0: not known
  };
  absl::StatusOr<Times> Time(const BenchmarkCase& benchmark_case, bool sustained);
  absl::Status MeasureLimits();
  absl::Status MeasureLimit(const BenchmarkCase& limit, double amount, bool sustained, double* rates);
  void PrintLine(const BenchmarkCase& benchmark_case, const Times& times);

  Stream stream_;
  const DeviceClock clock_;
  DeviceLimits limits_;
  std::string only_;
  bool all_sustained_ = false;
  std::string json_;
  std::ofstream json_file_;
  bool has_failed_ = false;
  bool is_warm_ = false;  // a case at the tensor cores' limit has just run
  uint64_t seed_ = 0;
};

// Finds the device, calls cases(benchmark), answers the status to exit with.
int DeviceBenchmarkMain(int argc, char** argv, const std::function<void(DeviceBenchmark&)>& cases);

// Fills device memory with random values; asynchronous.
absl::Status FillNormal(Stream stream, Bf16* data, int64_t count, uint64_t seed, float deviation);
absl::Status FillNormal(Stream stream, float* data, int64_t count, uint64_t seed, float deviation);
// Rounded to E4M3 and saturated; never NaN.
absl::Status FillNormal(Stream stream, E4m3* data, int64_t count, uint64_t seed, float deviation);
absl::Status FillUniform(Stream stream, float* data, int64_t count, uint64_t seed, float low, float high);
// Powers of two from 2^low to 2^high.
absl::Status FillPowersOfTwo(Stream stream, float* data, int64_t count, uint64_t seed, int low, int high);
absl::Status FillZeros(Stream stream, void* data, int64_t num_bytes);

// An array in device memory that a benchmark fills once. Failures go to the benchmark.
template <typename T>
class DeviceArray final {
 public:
  static DeviceArray Zeros(DeviceBenchmark& benchmark, int64_t count) {
    return DeviceArray(benchmark, count, [](Stream stream, T* data, int64_t count, uint64_t) {
      return FillZeros(stream, data, count * int64_t{sizeof(T)});
    });
  }
  static DeviceArray Normal(DeviceBenchmark& benchmark, int64_t count, float deviation) {
    return DeviceArray(benchmark, count, [=](Stream stream, T* data, int64_t count, uint64_t seed) {
      return FillNormal(stream, data, count, seed, deviation);
    });
  }
  static DeviceArray Uniform(DeviceBenchmark& benchmark, int64_t count, float low, float high) {
    return DeviceArray(benchmark, count, [=](Stream stream, T* data, int64_t count, uint64_t seed) {
      return FillUniform(stream, data, count, seed, low, high);
    });
  }
  static DeviceArray PowersOfTwo(DeviceBenchmark& benchmark, int64_t count, int low, int high) {
    return DeviceArray(benchmark, count, [=](Stream stream, T* data, int64_t count, uint64_t seed) {
      return FillPowersOfTwo(stream, data, count, seed, low, high);
    });
  }
  static DeviceArray Of(DeviceBenchmark& benchmark, const std::vector<T>& values) {
    return DeviceArray(benchmark, static_cast<int64_t>(values.size()),
                       [&](Stream stream, T* data, int64_t count, uint64_t) {
                         return CopyToDevice(stream, data, values.data(), count * int64_t{sizeof(T)});
                       });
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }

 private:
  template <typename Fill>
  DeviceArray(DeviceBenchmark& benchmark, int64_t count, const Fill& fill) {
    absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(count * int64_t{sizeof(T)});
    if (!memory.ok()) {
      benchmark.Fail(memory.status().ToString());
      return;
    }
    memory_ = *std::move(memory);
    const absl::Status status = fill(benchmark.stream(), data(), count, benchmark.NextSeed());
    if (!status.ok()) benchmark.Fail(status.ToString());
  }

  DeviceMemory memory_;
};

}  // namespace tandem::kernels::cuda
