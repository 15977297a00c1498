// Input: a byte that says how to cut, then stop strings and the text, separated by line feeds. The automaton must give
// what a search over the whole text gives.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "router/parsing/stop_matcher.h"

namespace {

// Enough to meet every kind of overlap; the search below is quadratic.
constexpr size_t kInputBytesMax = 4096;

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using tandem::router::StopMatcher;
  using tandem::router::StopSet;
  if (size < 2 || size > kInputBytesMax) return 0;
  std::vector<std::string> lines(1);
  for (size_t i = 1; i < size; ++i) {
    if (bytes[i] == '\n') {
      lines.emplace_back();
    } else {
      lines.back().push_back(static_cast<char>(bytes[i]));
    }
  }
  const std::string text = lines.back();
  lines.pop_back();
  const std::vector<std::string> stops = lines;
  absl::StatusOr<StopSet> set = StopSet::Build(stops);
  if (!set.ok()) return 0;

  size_t shown_by_search = text.size();
  bool is_matched = false;
  for (size_t end = 1; end <= text.size() && !is_matched; ++end) {
    for (const std::string& stop : stops) {
      if (end < stop.size() || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      is_matched = true;
      shown_by_search = std::min(shown_by_search, end - stop.size());
    }
  }

  StopMatcher matcher(*set);
  std::string shown;
  uint32_t state = bytes[0];
  for (size_t at = 0; at < text.size();) {
    state = state * 1664525 + 1013904223;
    const size_t length = std::min<size_t>(1 + (state >> 16) % (1 + bytes[0] % 16), text.size() - at);
    matcher.Append(absl::string_view(text).substr(at, length), &shown);
    at += length;
  }
  matcher.Finish(&shown);
  Require(matcher.matched().has_value() == is_matched);
  Require(shown == text.substr(0, shown_by_search));
  return 0;
}
