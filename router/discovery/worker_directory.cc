#include "router/discovery/worker_directory.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace tandem::router {
namespace {

constexpr char kByHand[] = "an operator";

// Those of `a` that are not in `b`.
std::string Without(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::vector<std::string> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return absl::StrJoin(rest, ",");
}

bool Lists(const WorkerLists& lists, const std::string& address) {
  return lists.prefill.contains(address) || lists.decode.contains(address);
}

absl::Status NotListed(const std::string& address) {
  return absl::NotFoundError(absl::StrCat("no worker \"", address, "\" is listed"));
}

}  // namespace

void WorkerDirectory::Report(const std::string& source, const absl::StatusOr<WorkerLists>& lists) {
  absl::MutexLock lock(&mutex_);
  if (!lists.ok()) return Fail(source, lists.status());
  if (const absl::Status status = Take(source, *lists); !status.ok()) Fail(source, status);
}

absl::Status WorkerDirectory::Add(WorkerRole role, const std::string& address) {
  absl::MutexLock lock(&mutex_);
  WorkerLists lists = sources_[kByHand].lists;
  (role == WorkerRole::kPrefill ? lists.prefill : lists.decode).insert(address);
  RETURN_IF_ERROR(UnionWith(kByHand, lists).status());
  drained_.erase(address);
  return Take(kByHand, lists);
}

absl::Status WorkerDirectory::Remove(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  bool is_by_hand = false;
  for (const auto& [name, source] : sources_) {
    if (!Lists(source.lists, address)) continue;
    if (name != kByHand) {
      return absl::InvalidArgumentError(
          absl::StrCat(address, " is listed by ", name, ": take it off there, or drain it"));
    }
    is_by_hand = true;
  }
  if (!is_by_hand) return NotListed(address);
  WorkerLists lists = sources_[kByHand].lists;
  lists.prefill.erase(address);
  lists.decode.erase(address);
  return Take(kByHand, lists);
}

absl::Status WorkerDirectory::Drain(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<WorkerLists> all = UnionWith(kByHand, sources_[kByHand].lists);
  if (!all.ok()) return all.status();
  if (!Lists(*all, address)) return NotListed(address);
  drained_.insert(address);
  Publish(kByHand, *std::move(all));
  return absl::OkStatus();
}

void WorkerDirectory::LeaveToOthers(const std::string& name, const WorkerLists& lists) {
  for (auto& [other, source] : sources_) {
    if (other == name || source.errors.empty()) continue;
    std::erase_if(source.lists.prefill, [&](const std::string& address) { return lists.decode.contains(address); });
    std::erase_if(source.lists.decode, [&](const std::string& address) { return lists.prefill.contains(address); });
  }
}

absl::Status WorkerDirectory::Take(const std::string& name, const WorkerLists& lists) {
  LeaveToOthers(name, lists);
  ASSIGN_OR_RETURN(WorkerLists all, UnionWith(name, lists));
  Source& source = sources_[name];
  if (!source.errors.empty()) {
    LOG_INFO("workers are found again", {"source", name});
    source.errors.clear();
    PublishFailures();
  }
  source.lists = lists;
  Publish(name, std::move(all));
  return absl::OkStatus();
}

void WorkerDirectory::Publish(const std::string& cause, WorkerLists all) {
  std::erase_if(drained_, [&](const std::string& address) { return !Lists(all, address); });
  for (const std::string& address : drained_) {
    all.prefill.erase(address);
    all.decode.erase(address);
  }
  if (all == published_) return;
  const WorkerLists before = std::exchange(published_, std::move(all));
  LOG_INFO("worker lists changed", {"source", cause}, {"prefill_added", Without(published_.prefill, before.prefill)},
           {"prefill_removed", Without(before.prefill, published_.prefill)},
           {"decode_added", Without(published_.decode, before.decode)},
           {"decode_removed", Without(before.decode, published_.decode)});
  if (subscriber_ != nullptr) subscriber_(published_);
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
  if (source.errors.size() >= kErrorsLoggedMax || !source.errors.insert(std::string(error.message())).second) return;
  LOG_WARNING("workers are not found", {"source", name}, {"cause", error},
              {"prefill_kept", source.lists.prefill.size()}, {"decode_kept", source.lists.decode.size()});
  PublishFailures();
}

void WorkerDirectory::PublishFailures() {
  if (failure_subscriber_ == nullptr) return;
  failure_subscriber_(static_cast<int>(
      std::count_if(sources_.begin(), sources_.end(), [](const auto& entry) { return !entry.second.errors.empty(); })));
}

WorkerLists WorkerDirectory::lists() const {
  absl::MutexLock lock(&mutex_);
  return published_;
}

void WorkerDirectory::Subscribe(Subscriber subscriber) {
  absl::MutexLock lock(&mutex_);
  subscriber_ = std::move(subscriber);
  if (subscriber_ != nullptr) subscriber_(published_);
}

void WorkerDirectory::SubscribeFailures(std::function<void(int)> subscriber) {
  absl::MutexLock lock(&mutex_);
  failure_subscriber_ = std::move(subscriber);
  PublishFailures();
}

}  // namespace tandem::router
