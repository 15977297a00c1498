// The workers that a router is to use: two lists of addresses, and the one rule for what an address is.
//
// Addresses are host:port in one spelling (base/host_port.h), so that equal ones compare equal.
// Tested by worker_lists_test.cc.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

struct WorkerLists {
  std::set<std::string> prefill;  // host:port of the gRPC services
  std::set<std::string> decode;

  bool operator==(const WorkerLists&) const = default;
};

// Of lists as a person has written them. INVALID_ARGUMENT with the list's name and the entry: not host:port, a
// wildcard, named twice in either list. `section` stands before the lists' names: "process." or "".
absl::StatusOr<WorkerLists> CheckedWorkerLists(const std::vector<std::string>& prefill_workers,
                                               const std::vector<std::string>& decode_workers,
                                               absl::string_view section);

// The text of a worker file: YAML with both of `prefill_workers: [host:port, ...]` and `decode_workers: [...]`, either
// may be []. A file cut short lacks one of them and is refused whole. INVALID_ARGUMENT with file and line.
absl::StatusOr<WorkerLists> ParseWorkerFile(absl::string_view yaml, const std::string& file_name);

// Reads it. NOT_FOUND where the file cannot be opened.
absl::StatusOr<WorkerLists> ReadWorkerFile(const std::string& file_name);

}  // namespace tandem::router
