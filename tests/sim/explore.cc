// Runs the simulated cluster under given seeds: --seed=N for one, --seeds=FIRST-LAST for many, --fresh_for=SECONDS for
// as many as that gives, from one that nobody has chosen; --drafts=N instead of as many as the seed says. Prints a
// summary of each (of fresh ones: of those that were wrong) and what was wrong with it. Exit code 1 where anything was.
#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "tests/sim/sim_cluster.h"

int main(int argc, char** argv) {
  uint64_t first = 1, last = 20;
  int num_drafts = -1, fresh_seconds = 0;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool is_understood = false;
    if (absl::ConsumePrefix(&argument, "--seed=")) {
      is_understood = absl::SimpleAtoi(argument, &first);
      last = first;
    } else if (absl::ConsumePrefix(&argument, "--seeds=")) {
      const std::pair<absl::string_view, absl::string_view> range = absl::StrSplit(argument, absl::MaxSplits('-', 1));
      is_understood = absl::SimpleAtoi(range.first, &first) && absl::SimpleAtoi(range.second, &last);
    } else if (absl::ConsumePrefix(&argument, "--fresh_for=")) {
      is_understood = absl::SimpleAtoi(argument, &fresh_seconds) && fresh_seconds > 0;
    } else if (absl::ConsumePrefix(&argument, "--drafts=")) {
      is_understood = absl::SimpleAtoi(argument, &num_drafts) && num_drafts >= 0 && num_drafts <= 15;
    }
    if (!is_understood) {
      std::cerr << "usage: explore [--seed=N | --seeds=FIRST-LAST | --fresh_for=SECONDS] [--drafts=N]\n";
      return 2;
    }
  }
  if (fresh_seconds > 0) {
    first = tandem::base::RandomId() % 1'000'000'000'000;  // short enough to be typed
    last = first + 1'000'000;
  }
  const tandem::base::Clock& clock = tandem::base::RealClock();
  const absl::Duration end = fresh_seconds > 0 ? clock.Now() + absl::Seconds(fresh_seconds) : absl::InfiniteDuration();
  int64_t num_seeds = 0, num_requests = 0, num_wrong = 0;
  for (uint64_t seed = first; seed <= last && clock.Now() < end; ++seed) {
    tandem::sim::FaultPlan plan = tandem::sim::PlanOfSeed(seed);
    if (num_drafts >= 0) plan.num_drafts = num_drafts;
    const tandem::sim::RunSummary summary =
        num_drafts < 0 ? tandem::sim::SimCluster(seed).Run() : tandem::sim::SimCluster(seed, plan).Run();
    ++num_seeds;
    num_requests += summary.plan.num_requests;
    num_wrong += summary.violations.empty() ? 0 : 1;
    if (fresh_seconds > 0 && summary.violations.empty()) continue;
    std::cout << "seed " << seed << ": " << summary.ToString() << "\n";
    for (const std::string& violation : summary.violations) std::cout << "  WRONG " << violation << "\n";
  }
  std::cout << num_seeds << " seeds from " << first << ", " << num_requests << " requests, " << num_wrong << " wrong";
  if (num_wrong > 0) std::cout << "; to repeat one: bazel run //tests/sim:explore -- --seed=N";
  std::cout << std::endl;
  return num_wrong == 0 ? 0 : 1;
}
