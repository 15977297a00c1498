// Runs the simulated cluster under given seeds: --seed=N for one, --seeds=FIRST-LAST for many; --drafts=N instead of as
// many as the seed says. Prints a summary of each and what was wrong with it. Exit code 1 where anything was.
#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/sim/sim_cluster.h"

int main(int argc, char** argv) {
  uint64_t first = 1, last = 20;
  int num_drafts = -1;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool is_understood = false;
    if (absl::ConsumePrefix(&argument, "--seed=")) {
      is_understood = absl::SimpleAtoi(argument, &first);
      last = first;
    } else if (absl::ConsumePrefix(&argument, "--seeds=")) {
      const std::pair<absl::string_view, absl::string_view> range = absl::StrSplit(argument, absl::MaxSplits('-', 1));
      is_understood = absl::SimpleAtoi(range.first, &first) && absl::SimpleAtoi(range.second, &last);
    } else if (absl::ConsumePrefix(&argument, "--drafts=")) {
      is_understood = absl::SimpleAtoi(argument, &num_drafts) && num_drafts >= 0 && num_drafts <= 15;
    }
    if (!is_understood) {
      std::cerr << "usage: explore [--seed=N | --seeds=FIRST-LAST] [--drafts=N]\n";
      return 2;
    }
  }
  int num_wrong = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    tandem::sim::FaultPlan plan = tandem::sim::PlanOfSeed(seed);
    plan.num_drafts = num_drafts;
    const tandem::sim::RunSummary summary =
        num_drafts < 0 ? tandem::sim::SimCluster(seed).Run() : tandem::sim::SimCluster(seed, plan).Run();
    std::cout << "seed " << seed << ": " << summary.ToString() << "\n";
    for (const std::string& violation : summary.violations) std::cout << "  WRONG " << violation << "\n";
    num_wrong += summary.violations.empty() ? 0 : 1;
  }
  std::cout << (last - first + 1) << " seeds, " << num_wrong << " wrong" << std::endl;
  return num_wrong == 0 ? 0 : 1;
}
