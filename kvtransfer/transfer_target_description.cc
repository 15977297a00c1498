// What decode holds of transfers, for people and for metrics: which pages wait for whom, and until when.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvtransfer/description_words.h"
#include "kvtransfer/transfer_target.h"

namespace tandem::kvtransfer {
namespace {

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
  return absl::StrCat("pages and sums, else the deadline ", WhenText(epoch.deadline, now));
}

}  // namespace

std::string TransferTarget::Describe() const {
  const absl::Duration now = clock_->Now();
  std::string text = "transfers: request state pages fetches age prefill_worker held_until\n";
  for (const auto& [id, epoch] : epochs_) {
    absl::StrAppendFormat(&text, "%s %s %d %d %s %s %s\n", NameOfRequest(epoch.key), StateOf(epoch),
                          epoch.target_pages.size(), epoch.outstanding_fetches, DurationText(now - epoch.times.started),
                          epoch.peer, WhatEnds(epoch, now));
  }
  return text;
}

absl::Duration TransferTarget::OldestEpochAge() const {
  absl::Duration age;
  for (const auto& [id, epoch] : epochs_) age = std::max(age, clock_->Now() - epoch.times.started);
  return age;
}

TargetLedger TransferTarget::ledger() const {
  TargetLedger ledger{.open_epochs = static_cast<int64_t>(epochs_.size()),
                      .outstanding_fetches = static_cast<int64_t>(fetches_.size())};
  for (const auto& [id, epoch] : epochs_) {
    if (epoch.phase != TargetPhase::kReady && !epoch.is_released) {
      ledger.held_pages += static_cast<int64_t>(epoch.target_pages.size());
    }
    if (epoch.phase == TargetPhase::kOpen) {
      ledger.announced_unfetched_bytes +=
          (epoch.grid.num_announced() - epoch.grid.num_landed()) * options_.layout.page_bytes();
    }
  }
  for (const auto& [id, fetch] : fetches_) ledger.outstanding_bytes += fetch.bytes;
  return ledger;
}

double TransferTarget::LaneRate(std::string_view peer_name, int lane) const {
  const auto peer = peers_.find(peer_name);
  if (peer == peers_.end() || lane < 0 || lane >= peer->second.lanes.size()) return 0;
  return peer->second.lanes.bytes_per_second(lane);
}

}  // namespace tandem::kvtransfer
