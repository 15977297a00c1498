// step_workers: fake workers for measuring a router, with probes of what it adds to a request's way.
//
//   step_workers --prefill_port=N --decode_port=N --step_ms=N [--router_port=N --model=NAME --probes=N]
//
// Prints "listening" once it does. The probes begin when stdin has a line and end at SIGTERM or SIGINT: then it prints
// one line of JSON, their times in microseconds. tools/bench/router_cost.py starts it; tests/e2e/router_cost_test.py
// runs both.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/shutdown.h"
#include "base/status_macros.h"
#include "tools/bench/router_cost/latency_probe.h"
#include "tools/bench/router_cost/step_workers.h"

namespace tandem::router_cost {
namespace {

constexpr int kPromptWords = 200;
constexpr uint64_t kFirstSeed = uint64_t{1} << 40;  // no seed that a client of the load sends

struct Arguments {
  StepWorkers::Options workers;
  LatencyProbe::Options probe;
  int num_probes = 0;
};

absl::StatusOr<Arguments> ParseArguments(int argc, char** argv) {
  std::map<std::string, int> numbers = {
      {"--prefill_port", 0}, {"--decode_port", 0}, {"--step_ms", 0}, {"--router_port", 0}, {"--probes", 0}};
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> argument = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto number = numbers.find(argument.first);
    if (argument.first == "--model") {
      arguments.probe.model = argument.second;
    } else if (number == numbers.end() || !absl::SimpleAtoi(argument.second, &number->second)) {
      return absl::InvalidArgumentError(absl::StrCat("argument not understood: ", argv[i]));
    }
  }
  for (const char* name : {"--prefill_port", "--decode_port", "--step_ms"}) {
    if (numbers[name] < 1) return absl::InvalidArgumentError(absl::StrCat(name, " is at least 1"));
  }
  arguments.workers = {.prefill_port = numbers["--prefill_port"],
                       .decode_port = numbers["--decode_port"],
                       .step_interval = absl::Milliseconds(numbers["--step_ms"])};
  arguments.probe.router_port = numbers["--router_port"];
  for (int i = 0; i < kPromptWords; ++i) absl::StrAppend(&arguments.probe.prompt, i == 0 ? "" : " ", "the");
  arguments.num_probes = numbers["--probes"];
  return arguments;
}

std::string Quantiles(const char* name, std::vector<absl::Duration> times) {
  if (times.empty()) return absl::StrCat("\"", name, "\":null");
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double q) {
    return absl::ToDoubleMicroseconds(times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))]);
  };
  return absl::StrCat("\"", name, "\":{\"count\":", times.size(), ",\"p50_us\":", quantile(0.5),
                      ",\"p99_us\":", quantile(0.99), "}");
}

// All probes of a run, from several threads.
class Probes {
 public:
  Probes(const Arguments& arguments, StepWorkers& workers) {
    for (int i = 0; i < arguments.num_probes; ++i) {
      threads_.emplace_back([this, &arguments, &workers, i] { RunOne(arguments, workers, i); });
    }
  }
  // A line of JSON, once every probe has its answer.
  std::string End() {
    is_ending_ = true;
    for (std::thread& thread : threads_) thread.join();
    absl::MutexLock lock(&mutex_);
    return absl::StrCat("{", Quantiles("before", before_), ",", Quantiles("after_a_token", after_), ",",
                        Quantiles("before_and_first_token", both_), ",\"failures\":", num_failures_, "}");
  }

 private:
  // One probe after the other, at least one.
  void RunOne(const Arguments& arguments, StepWorkers& workers, int index) {
    std::optional<LatencyProbe> probe;
    uint64_t seed = kFirstSeed + index;
    do {
      if (!probe.has_value()) probe.emplace(arguments.probe, workers, base::RealClock());
      const absl::StatusOr<Added> added = probe->Run(seed);
      seed += arguments.num_probes;
      absl::MutexLock lock(&mutex_);
      if (!added.ok()) {
        if (num_failures_++ == 0) std::fprintf(stderr, "%s\n", std::string(added.status().message()).c_str());
        probe.reset();  // its connection is in an unknown state
        continue;
      }
      before_.push_back(added->before);
      after_.insert(after_.end(), added->after.begin(), added->after.end());
      both_.push_back(added->before + added->after.front());
    } while (!is_ending_);
  }

  std::atomic<bool> is_ending_ = false;
  absl::Mutex mutex_;
  std::vector<absl::Duration> before_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Duration> after_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Duration> both_ ABSL_GUARDED_BY(mutex_);
  int num_failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

absl::Status Run(const Arguments& arguments, base::ShutdownSignal& shutdown) {
  StepWorkers workers(arguments.workers, base::RealClock());
  if (!workers.is_listening()) return absl::UnavailableError("cannot listen on the given ports");
  std::puts("listening");
  std::fflush(stdout);
  std::string line;
  if (arguments.num_probes > 0) std::getline(std::cin, line);  // the router is ready
  Probes probes(arguments, workers);
  shutdown.Started();
  shutdown.Wait();
  std::printf("%s\n", probes.End().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::router_cost

int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  tandem::base::ShutdownSignal shutdown;
  const auto arguments = tandem::router_cost::ParseArguments(argc, argv);
  const absl::Status status = arguments.ok() ? tandem::router_cost::Run(*arguments, shutdown) : arguments.status();
  if (!status.ok()) std::fprintf(stderr, "step_workers: %s\n", std::string(status.message()).c_str());
  return tandem::base::ExitCode(status);
}
