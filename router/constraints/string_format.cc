#include "router/constraints/string_format.h"

#include <utility>

namespace tandem::router {
namespace {

// 1 to 31 for long months, to 30 for short ones, to 28 for February.
#define TANDEM_DATE                                                                                                   \
  "(?:19|20)[0-9]{2}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[" \
  "1-9]|1[0-9]|2[0-8]))"
#define TANDEM_TIME \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define TANDEM_BYTE "(?:[1-9]?[0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"

constexpr std::pair<absl::string_view, absl::string_view> kPatterns[] = {
    {"date", "^" TANDEM_DATE "$"},
    {"time", "^" TANDEM_TIME "$"},
    {"date-time", "^" TANDEM_DATE "T" TANDEM_TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4", "^" TANDEM_BYTE "(?:\\." TANDEM_BYTE "){3}$"},
    {"email",
     "^[A-Za-z0-9_+-]{1,24}(?:\\.[A-Za-z0-9_+-]{1,24}){0,2}@[A-Za-z0-9]{1,24}(?:\\.[A-Za-z0-9]{1,24}){0,2}\\.[A-Za-z]{"
     "2,8}$"},
};

#undef TANDEM_DATE
#undef TANDEM_TIME
#undef TANDEM_BYTE

}  // namespace

absl::string_view PatternOfFormat(absl::string_view format) {
  for (const auto& [name, pattern] : kPatterns) {
    if (name == format) return pattern;
  }
  return "";
}

}  // namespace tandem::router
