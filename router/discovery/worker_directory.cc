#include "router/discovery/worker_directory.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"

namespace tandem::router {
namespace {

// Those of `a` that are not in `b`.
std::string Without(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::vector<std::string> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return absl::StrJoin(rest, ",");
}

}  // namespace

void WorkerDirectory::Report(const std::string& source, const absl::StatusOr<WorkerLists>& lists) {
  absl::MutexLock lock(&mutex_);
  if (!lists.ok()) return Fail(source, lists.status());
  Take(source, *lists);
}

void WorkerDirectory::Take(const std::string& name, const WorkerLists& lists) {
  absl::StatusOr<WorkerLists> all = UnionWith(name, lists);
  if (!all.ok()) return Fail(name, all.status());
  Source& source = sources_[name];
  if (!source.error.empty()) LOG_INFO("workers are found again", {"source", name});
  source.error.clear();
  source.lists = lists;
  if (*all == union_) return;
  const WorkerLists before = std::exchange(union_, *std::move(all));
  LOG_INFO("worker lists changed", {"source", name}, {"prefill_added", Without(union_.prefill, before.prefill)},
           {"prefill_removed", Without(before.prefill, union_.prefill)},
           {"decode_added", Without(union_.decode, before.decode)},
           {"decode_removed", Without(before.decode, union_.decode)});
  if (subscriber_ != nullptr) subscriber_(union_);
}

absl::StatusOr<WorkerLists> WorkerDirectory::UnionWith(const std::string& name, const WorkerLists& lists) const {
  WorkerLists all = lists;
  for (const auto& [other, source] : sources_) {
    if (other == name) continue;
    all.prefill.insert(source.lists.prefill.begin(), source.lists.prefill.end());
    all.decode.insert(source.lists.decode.begin(), source.lists.decode.end());
  }
  for (const std::string& address : all.prefill) {
    if (all.decode.contains(address)) {
      return absl::InvalidArgumentError(absl::StrCat(address, " is listed as a prefill and as a decode worker"));
    }
  }
  return all;
}

void WorkerDirectory::Fail(const std::string& name, const absl::Status& error) {
  Source& source = sources_[name];
  if (source.error == error.message()) return;
  source.error = std::string(error.message());
  LOG_WARNING("workers are not found", {"source", name}, {"cause", error},
              {"prefill_kept", source.lists.prefill.size()}, {"decode_kept", source.lists.decode.size()});
}

WorkerLists WorkerDirectory::lists() const {
  absl::MutexLock lock(&mutex_);
  return union_;
}

void WorkerDirectory::Subscribe(Subscriber subscriber) {
  absl::MutexLock lock(&mutex_);
  subscriber_ = std::move(subscriber);
  if (subscriber_ != nullptr) subscriber_(union_);
}

}  // namespace tandem::router
