// What is wrong, in words: what the dashboard shows first.
//
// A pure function of what the router knows at one moment, with the thresholds of the alerts
// (deploy/k8s/monitoring/alerts.yaml) where there is an alert for the same. Each names the metric to look at and its
// section of the runbook (docs/operations.md). Tested by troubles_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/cluster_view.h"

namespace tandem::router {

enum class Severity {
  kPage,     // clients notice: somebody has to act
  kWarning,  // it can become so
  kNote,     // it is meant to be, as a rule
};

struct Trouble {
  Severity severity;
  std::string what;
  const char* metric;   // static storage
  const char* runbook;  // the anchor of its section
};

// A request that ended with 5xx.
struct FailedRequest {
  int http_status = 0;
  std::string id;
  std::string error;
};

struct TroubleFacts {
  const ClusterView* view = nullptr;
  absl::Status ready;          // of all shards
  bool is_draining = false;    // this router
  int num_in_line = 0;         // of all shards
  int in_line_max = 0;         // of all shards
  int num_without_worker = 0;  // requests whose workers have failed
  int num_sources_failing = 0;
  int64_t num_breaches = 0;              // of the token stream by workers, since the start
  int64_t num_unconfirmed_releases = 0;  // since the start
  std::vector<absl::Duration> silences;  // of the shards, by number: since their last word
  std::vector<FailedRequest> failed;     // of kFailureWindow, latest first
  size_t num_recent = 0;                 // requests of kFailureWindow that are remembered
};

inline constexpr absl::Duration kFailureWindow = absl::Minutes(5);
inline constexpr absl::Duration kShardSilenceMax = absl::Seconds(5);
// Workers, pairs and shards that one trouble names before it counts the others.
inline constexpr size_t kNamedMax = 4;

// The worst first. At most one of each kind, however many workers have it.
std::vector<Trouble> TroublesOf(const TroubleFacts& facts);
const char* SeverityName(Severity severity);
// At most so many bytes, cut between characters.
std::string CutText(absl::string_view text, size_t bytes_max);

}  // namespace tandem::router
