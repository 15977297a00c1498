// The words that both sides of a transfer describe what they hold with. Tested by transfer_protocol_test.cc.
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/common.pb.h"

namespace tandem::kvtransfer {

inline std::string NameOfRequest(const proto::RequestKey& key) {
  return absl::StrFormat("%016x/%d", key.request_id(), key.attempt());
}

// In whole milliseconds.
inline std::string DurationText(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

// When a point of the clock comes; one that has passed comes now.
inline std::string WhenText(absl::Duration point, absl::Duration now) {
  if (point == absl::InfiniteDuration()) return "never";
  return absl::StrCat("in ", DurationText(std::max(point - now, absl::ZeroDuration())));
}

}  // namespace tandem::kvtransfer
