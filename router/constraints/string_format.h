// Values of JSON Schema's `format` that are enforced, as patterns. All others are annotations.
// Tested by string_format_test.cc.
#pragma once

#include "absl/strings/string_view.h"

namespace tandem::router {

// date, time, date-time, uuid, ipv4, email; "" for any other. Only what every reader of the format takes: dates exist
// in every year, seconds end at 59, addresses of mail have a plain name and a domain with a dot.
absl::string_view PatternOfFormat(absl::string_view format);

}  // namespace tandem::router
