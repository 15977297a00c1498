// A run's figures for people and for programs: SGLang's block of lines and its JSON keys, with what is ours behind
// them. Tested by report_test.cc; the keys are held to a list in the end-to-end test.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/bench_serving/flags.h"
#include "tools/bench_serving/metrics.h"
#include "tools/bench_serving/outcome.h"

namespace tandem::bench_serving {

struct RunReport {
  BenchMetrics metrics;
  std::string server_info = "null";     // the body of /server_info, JSON
  std::optional<double> accept_length;  // of drafts, from there
  double client_cpu_share = 0;          // of one core: this program's own
  size_t num_unsent = 0;                // requests that an interruption left out
};

std::string ReportText(const Flags& flags, const RunReport& run);

// One line of JSON with its line's end. outcomes: for --output-details.
std::string ReportLine(const Flags& flags, const RunReport& run, const std::vector<Outcome>& outcomes);

// internal_states[0].avg_spec_accept_length; of the first of `decode` where there is such a list.
std::optional<double> FindAcceptLength(absl::string_view server_info);

}  // namespace tandem::bench_serving
