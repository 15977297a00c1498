#include "tools/bench_serving/goodput.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem::bench_serving {

absl::Status AddGoodputLimit(absl::string_view text, GoodputLimits* limits) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  double milliseconds = 0;
  if (!absl::SimpleAtod(parts.second, &milliseconds) || !(milliseconds > 0) || std::isinf(milliseconds)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no NAME:MILLISECONDS, as in ttft:200"));
  }
  std::optional<absl::Duration>* const limit = parts.first == "ttft"                           ? &limits->ttft
                                               : parts.first == "tpot"                         ? &limits->tpot
                                               : parts.first == "itl"                          ? &limits->itl
                                               : parts.first == "e2e" || parts.first == "e2el" ? &limits->e2e
                                                                                               : nullptr;
  if (limit == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("\"", parts.first, "\" is none of ttft, tpot, itl, e2e"));
  }
  if (limit->has_value()) return absl::InvalidArgumentError(absl::StrCat("", parts.first, " is given twice"));
  *limit = absl::Milliseconds(milliseconds);
  return absl::OkStatus();
}

bool IsGood(const AnswerTimes& times, const GoodputLimits& limits) {
  const auto is_kept = [](const std::optional<absl::Duration>& limit, const std::optional<absl::Duration>& time) {
    return !limit.has_value() || !time.has_value() || *time <= *limit;
  };
  return is_kept(limits.ttft, times.ttft) && is_kept(limits.tpot, times.tpot) && is_kept(limits.itl, times.itl_max) &&
         is_kept(limits.e2e, times.e2e);
}

}  // namespace tandem::bench_serving
