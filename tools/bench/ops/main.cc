// Times the ops at DeepSeek-V3.2's shapes and prints what share of the machine's own limits they reach, limits and ops
// measured in the same run.
//
//   bazel run //tools/bench/ops -- [--threads=N] [--level=auto] [--runs=5] [--only=TEXT] [--json=FILE]
//
// memory: of the bandwidth of plain reading, for the bytes that must come from memory. dots: of the rate of the
// processor's widest BF16 dot product with nothing to load. The nearer limit is the one that counts. Times are the
// clock's, so they want a quiet machine; with --threads=1 they are processor time, which a loaded one gives as well.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "boost/json.hpp"
#include "kernels/cpu/levels.h"
#include "tools/bench/ops/cases.h"
#include "tools/bench/ops/machine_limits.h"

namespace tandem::bench {
namespace {

struct Arguments {
  int threads = kernels::NumUsableProcessors();
  std::string level = "auto";
  int runs = 5;
  std::string only;
  std::string json;
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--threads=")) {
      if (!absl::SimpleAtoi(text, &arguments.threads) || arguments.threads < 1) return false;
    } else if (absl::ConsumePrefix(&text, "--runs=")) {
      if (!absl::SimpleAtoi(text, &arguments.runs) || arguments.runs < 1) return false;
    } else if (absl::ConsumePrefix(&text, "--level=")) {
      arguments.level = std::string(text);
    } else if (absl::ConsumePrefix(&text, "--only=")) {
      arguments.only = std::string(text);
    } else if (absl::ConsumePrefix(&text, "--json=")) {
      arguments.json = std::string(text);
    } else {
      return false;
    }
  }
  return true;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) {
    std::cerr << "usage: ops [--threads=N] [--level=auto|baseline|avx2|avx512|avx512_bf16] [--runs=5] [--only=TEXT] "
                 "[--json=FILE]\n";
    return 2;
  }
  if (const absl::Status status = kernels::cpu::UseLevel(arguments.level); !status.ok()) {
    std::cerr << "ops: " << status.message() << "\n";
    return 2;
  }
  kernels::ThreadPool threads(arguments.threads);
  const MachineLimits limits = MeasureMachineLimits(threads);
  const std::string level(kernels::cpu::LevelName(kernels::cpu::ActiveLevel()));
  std::printf("%d threads, level %s; limits: read %.1f GB/s, dots %.0f GFLOP/s\n", arguments.threads, level.c_str(),
              limits.read_gb_per_s, limits.dot_gflop_per_s);
  std::printf("%-24s %-48s %9s %8s %9s %7s %6s\n", "op", "shape", "ms", "GB/s", "GFLOP/s", "memory", "dots");
  boost::json::array rows;
  for (const Measurement& m : RunCases({&threads, arguments.runs, arguments.only})) {
    const double gb = m.bytes / m.seconds * 1e-9, gflop = m.flop / m.seconds * 1e-9;
    std::printf("%-24s %-48s %9.3f %8.1f %9.1f %6.0f%% %5.0f%%\n", m.op.c_str(), m.shape.c_str(), m.seconds * 1e3, gb,
                gflop, 100 * gb / limits.read_gb_per_s, 100 * gflop / limits.dot_gflop_per_s);
    rows.push_back(boost::json::object{
        {"op", m.op}, {"shape", m.shape}, {"seconds", m.seconds}, {"flop", m.flop}, {"bytes", m.bytes}});
  }
  if (arguments.json.empty()) return 0;
  std::ofstream out(arguments.json);
  out << boost::json::object{{"threads", arguments.threads},
                             {"level", level},
                             {"read_gb_per_s", limits.read_gb_per_s},
                             {"dot_gflop_per_s", limits.dot_gflop_per_s},
                             {"rows", rows}}
      << "\n";
  out.flush();
  if (!out) {
    std::cerr << "ops: cannot write " << arguments.json << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) { return tandem::bench::Main(argc, argv); }
