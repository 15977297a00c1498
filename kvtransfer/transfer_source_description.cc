// What prefill holds, for people: who holds which pages, for whom, and until when.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvtransfer/description_words.h"
#include "kvtransfer/transfer_source.h"

namespace tandem::kvtransfer {
namespace {

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
                                  ? absl::StrCat("its lease lapses ", WhenText(link.lapses_at, now), ": decode is gone")
                              : epoch.phase == SourcePhase::kEnding
                                  ? "decode acknowledges the abort"
                                  : absl::StrCat("decode says Done, else the deadline ", WhenText(epoch.deadline, now));
    absl::StrAppendFormat(&text, "%s %s %d %s %s/%016x %s\n", NameOfRequest(epoch.key), StateOf(epoch), num_pages,
                          DurationText(now - epoch.began), link.instance, id.target_incarnation, until);
  }
  return text;
}

absl::Duration TransferSource::OldestEpochAge() const {
  absl::Duration age;
  for (const auto& [id, epoch] : epochs_) age = std::max(age, clock_->Now() - epoch.began);
  return age;
}

}  // namespace tandem::kvtransfer
