// What prefill holds, for people: who holds which pages, for whom, and until when.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvtransfer/transfer_source.h"

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

std::string StateOf(const SourceEpoch& epoch) {
  switch (epoch.phase) {
    case SourcePhase::kStarting:
      return "arriving";
    case SourcePhase::kAdmitting:
      return "in_line";
    case SourcePhase::kServing:
      return absl::StrCat(epoch.num_complete, "/", epoch.is_complete.size(), "_announced");
    case SourcePhase::kEnding:
      return "ended";
  }
  return "";
}

}  // namespace

std::string TransferSource::Describe() const {
  const absl::Duration now = clock_->Now();
  std::string text = "pins: request state pages age decode_worker held_until\n";
  for (const auto& [id, epoch] : epochs_) {
    const TargetLink& link = links_.at(id.target_incarnation);
    const size_t num_pages = epoch.pages.empty() ? 0 : epoch.pages[0].size();
    const std::string until = !link.is_up
                                  ? absl::StrCat("its lease lapses ", In(link.lapses_at, now), ": decode is gone")
                              : epoch.phase == SourcePhase::kEnding
                                  ? "decode acknowledges the abort"
                                  : absl::StrCat("decode says Done, else the deadline ", In(epoch.deadline, now));
    absl::StrAppendFormat(&text, "%s %s %d %s %s/%016x %s\n", NameOfRequest(epoch.key), StateOf(epoch), num_pages,
                          absl::FormatDuration(absl::Trunc(now - epoch.began, absl::Milliseconds(1))), link.instance,
                          id.target_incarnation, until);
  }
  return text;
}

absl::Duration TransferSource::OldestEpochAge() const {
  absl::Duration age;
  for (const auto& [id, epoch] : epochs_) age = std::max(age, clock_->Now() - epoch.began);
  return age;
}

}  // namespace tandem::kvtransfer
