#include "router/discovery/worker_lists.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/config.h"
#include "base/host_port.h"
#include "base/status_macros.h"

namespace tandem::router {
namespace {

constexpr char kNotGiven[] = "\n";  // no address can be this

absl::StatusOr<std::set<std::string>> CheckedAddresses(const std::vector<std::string>& addresses,
                                                       const std::string& name, std::set<std::string>* seen) {
  std::set<std::string> checked;
  for (const std::string& address : addresses) {
    const absl::StatusOr<base::HostPort> parsed = base::ParseHostPort(address);
    if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", parsed.status().message()));
    if (base::IsWildcard(parsed->host)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", address, " cannot be connected to"));
    }
    if (!seen->insert(parsed->ToString()).second) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", address, " is named twice"));
    }
    checked.insert(parsed->ToString());
  }
  return checked;
}

}  // namespace

absl::StatusOr<WorkerLists> CheckedWorkerLists(const std::vector<std::string>& prefill_workers,
                                               const std::vector<std::string>& decode_workers,
                                               absl::string_view section) {
  WorkerLists lists;
  std::set<std::string> seen;
  ASSIGN_OR_RETURN(lists.prefill, CheckedAddresses(prefill_workers, absl::StrCat(section, "prefill_workers"), &seen));
  ASSIGN_OR_RETURN(lists.decode, CheckedAddresses(decode_workers, absl::StrCat(section, "decode_workers"), &seen));
  return lists;
}

absl::StatusOr<WorkerLists> ParseWorkerFile(absl::string_view yaml, const std::string& file_name) {
  std::vector<std::string> prefill = {kNotGiven}, decode = {kNotGiven};
  base::ConfigSchema schema("router");
  schema.StringList("prefill_workers", &prefill, "host:port of every prefill worker.");
  schema.StringList("decode_workers", &decode, "host:port of every decode worker.");
  if (absl::Status status = schema.Apply(yaml, file_name, {}); !status.ok()) {
    // Several faults come as several lines; who reads this writes one line to a log.
    return absl::InvalidArgumentError(absl::StrReplaceAll(status.message(), {{"\n", "; "}}));
  }
  for (const auto& [list, name] : {std::pair(&prefill, "prefill_workers"), std::pair(&decode, "decode_workers")}) {
    if (*list == std::vector<std::string>{kNotGiven}) {
      return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", name, " is missing; [] says that there is none"));
    }
  }
  return CheckedWorkerLists(prefill, decode, absl::StrCat(file_name, ": "));
}

absl::StatusOr<WorkerLists> ReadWorkerFile(const std::string& file_name) {
  std::ifstream file(file_name, std::ios::binary);
  if (!file.is_open()) return absl::NotFoundError(absl::StrCat("cannot read the worker file ", file_name));
  const std::string yaml((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read ", file_name, " to its end"));
  return ParseWorkerFile(yaml, file_name);
}

}  // namespace tandem::router
