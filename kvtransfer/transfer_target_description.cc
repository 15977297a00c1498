// What decode holds of transfers, for people: which pages wait for whom, and until when.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvtransfer/transfer_target.h"

namespace tandem::kvtransfer {
namespace {

std::string NameOfRequest(const proto::RequestKey& key) {
  return absl::StrFormat("%016x/%d", key.request_id(), key.attempt());
}

std::string In(absl::Duration point, absl::Duration now) {
  if (point == absl::InfiniteDuration()) return "never";
  return absl::StrCat(
      "in ", absl::FormatDuration(absl::Trunc(std::max(point - now, absl::ZeroDuration()), absl::Milliseconds(1))));
}

std::string StateOf(const TargetEpoch& epoch) {
  switch (epoch.phase) {
    case TargetPhase::kOpen:
      return "arriving";
    case TargetPhase::kReady:
      return "ready";
    case TargetPhase::kEnding:
      return "ending";
  }
  return "";
}

std::string WhatEnds(const TargetEpoch& epoch, absl::Duration now) {
  if (epoch.phase == TargetPhase::kReady) return "prefill's word that it has let go";
  if (epoch.outstanding_fetches > 0 && epoch.phase == TargetPhase::kEnding) return "its own fetches";
  if (epoch.phase == TargetPhase::kEnding) return "prefill's word that it has let go";
  return absl::StrCat("pages and sums, else the deadline ", In(epoch.deadline, now));
}

}  // namespace

std::string TransferTarget::Describe() const {
  const absl::Duration now = clock_->Now();
  std::string text = "transfers: request state pages fetches age prefill_worker held_until\n";
  for (const auto& [id, epoch] : epochs_) {
    absl::StrAppendFormat(&text, "%s %s %d %d %s %s %s\n", NameOfRequest(epoch.key), StateOf(epoch),
                          epoch.target_pages.size(), epoch.outstanding_fetches,
                          absl::FormatDuration(absl::Trunc(now - epoch.times.started, absl::Milliseconds(1))),
                          epoch.peer, WhatEnds(epoch, now));
  }
  return text;
}

absl::Duration TransferTarget::OldestEpochAge() const {
  absl::Duration age;
  for (const auto& [id, epoch] : epochs_) age = std::max(age, clock_->Now() - epoch.times.started);
  return age;
}

}  // namespace tandem::kvtransfer
