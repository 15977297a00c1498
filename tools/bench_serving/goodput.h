// Which answers were good enough: the bounds that a service promises its clients, as --goodput names them.
// Tested by goodput_test.cc.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::bench_serving {

// Unset: any time will do.
struct GoodputLimits {
  std::optional<absl::Duration> ttft;
  std::optional<absl::Duration> tpot;
  std::optional<absl::Duration> itl;  // of every gap of an answer, not of their mean
  std::optional<absl::Duration> e2e;

  bool any() const { return ttft.has_value() || tpot.has_value() || itl.has_value() || e2e.has_value(); }
};

// One of "ttft:200", "tpot:50", "itl:100", "e2e:5000" ("e2el" is read too), in milliseconds, into *limits.
absl::Status AddGoodputLimit(absl::string_view text, GoodputLimits* limits);

struct AnswerTimes {
  absl::Duration ttft;
  std::optional<absl::Duration> tpot;  // unset of one token
  absl::Duration itl_max;              // 0 of one chunk
  absl::Duration e2e;
};

// A bound is kept where the time is equal to it.
bool IsGood(const AnswerTimes& times, const GoodputLimits& limits);

}  // namespace tandem::bench_serving
