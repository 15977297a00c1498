#include "router/discovery/endpoint_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::router {

EndpointWatch::EndpointWatch(const Options& options) : options_(options), random_(options.seed) {}

// 0 at first, then from kBackoffMin doubling to kBackoffMax, each shortened by up to a half.
absl::Duration EndpointWatch::Backoff(int num_failures) {
  if (num_failures <= 0) return absl::ZeroDuration();
  const absl::Duration whole = std::min(kBackoffMin * (1 << std::min(num_failures - 1, 10)), kBackoffMax);
  return whole - whole * (static_cast<double>(random_() % 1024) / 2048);
}

EndpointWatch::Ask EndpointWatch::Next(absl::Duration now) {
  Ask ask;
  const bool lists = needs_list_ || now >= list_at_;
  ask.kind = lists ? Ask::Kind::kList : Ask::Kind::kWatch;
  ask.wait = lists ? Backoff(std::max(num_failed_lists_, num_failed_watches_ - 1)) : Backoff(num_failed_watches_);
  ask.wait = std::max(ask.wait, retry_at_ - now);
  if (lists) return ask;
  ask.resource_version = resource_version_;
  ask.length = std::max(list_at_ - now - ask.wait, absl::Seconds(1));
  return ask;
}

void EndpointWatch::OnListed(absl::Duration now, absl::StatusOr<EndpointSliceList> list, absl::Duration retry_after) {
  retry_at_ = now + std::min(retry_after, kRetryAfterMax);
  size_t num_listed = 0;
  if (list.ok()) {
    for (const EndpointSlice& slice : list->slices) num_listed += slice.ready.size();
  }
  list_status_ = num_listed > kEndpointsMax
                     ? absl::ResourceExhaustedError(
                           absl::StrCat("the list has ", num_listed, " ready endpoints, at most ", kEndpointsMax))
                     : list.status();
  if (!list_status_.ok()) {
    ++num_failed_lists_;
    return;
  }
  num_failed_lists_ = 0;
  needs_list_ = false;
  // Spread by a tenth, so that routers that started together do not ask together for ever.
  list_at_ = now + options_.list_interval * (1 - static_cast<double>(random_() % 1024) / 10240);
  resource_version_ = list->resource_version;
  slices_.clear();
  for (EndpointSlice& slice : list->slices) Put(std::move(slice));
}

absl::Status EndpointWatch::OnEvent(const absl::StatusOr<EndpointSliceEvent>& event) {
  if (!event.ok()) return event.status();
  if (event->kind == EndpointSliceEvent::Kind::kError) return event->error;
  heard_event_ = true;
  WatchIsGood();
  if (!event->resource_version.empty()) resource_version_ = event->resource_version;
  if (event->kind == EndpointSliceEvent::Kind::kDeleted) slices_.erase(event->slice.name);
  if (event->kind == EndpointSliceEvent::Kind::kPut) Put(event->slice);
  if (num_endpoints() <= kEndpointsMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("more than ", kEndpointsMax, " ready endpoints"));
}

void EndpointWatch::OnWatchEnded(absl::Duration now, bool is_begun, const absl::Status& status,
                                 absl::Duration retry_after) {
  retry_at_ = now + std::min(retry_after, kRetryAfterMax);
  const bool was_in_use = std::exchange(heard_event_, false) || (is_begun && now >= list_at_);
  const bool is_cut = is_begun && (status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status));
  if (was_in_use && is_cut) return WatchIsGood();
  ++num_failed_watches_;
  if (is_cut) return;
  needs_list_ = true;
  // Once is usual: a version that is gone, a server that restarts. Between two of them a list has succeeded.
  if (++num_refused_watches_ > 1) watch_fault_ = status;
}

void EndpointWatch::WatchIsGood() {
  num_failed_watches_ = 0;
  num_refused_watches_ = 0;
  watch_fault_ = absl::OkStatus();
}

void EndpointWatch::Put(EndpointSlice slice) {
  std::string name = slice.name;
  slices_.insert_or_assign(std::move(name), std::move(slice));
}

size_t EndpointWatch::num_endpoints() const {
  size_t count = 0;
  for (const auto& [name, slice] : slices_) count += slice.ready.size();
  return count;
}

std::set<std::string> EndpointWatch::ready() const {
  std::set<std::string> addresses;
  std::set<std::string> pods_by_ipv4;
  for (const bool is_ipv6 : {false, true}) {
    for (const auto& [name, slice] : slices_) {
      for (const EndpointSlice::Endpoint& endpoint : slice.ready) {
        if (endpoint.is_ipv6 != is_ipv6 || (is_ipv6 && pods_by_ipv4.contains(endpoint.pod))) continue;
        addresses.insert(endpoint.address);
        if (!is_ipv6 && !endpoint.pod.empty()) pods_by_ipv4.insert(endpoint.pod);
      }
    }
  }
  return addresses;
}

absl::StatusOr<WorkerLists> EndpointWatch::workers() const {
  if (!list_status_.ok()) return list_status_;
  if (slices_.empty()) {
    return absl::NotFoundError(absl::StrCat("no EndpointSlice has the labels ", options_.selector));
  }
  WorkerLists lists;
  std::set<std::string> addresses = ready();
  if (addresses.empty()) {
    for (const auto& [name, slice] : slices_) {
      if (!slice.lacks_port) continue;
      return absl::NotFoundError(
          absl::StrCat("EndpointSlice ", name, " has no TCP port named \"", options_.port_name, "\""));
    }
    return absl::NotFoundError(absl::StrCat("no endpoint is ready of those with the labels ", options_.selector));
  }
  (options_.role == WorkerRole::kPrefill ? lists.prefill : lists.decode) = std::move(addresses);
  return lists;
}

}  // namespace tandem::router
