#include "router/constraints/char_class.h"

#include <algorithm>
#include <utility>

namespace tandem::router {
namespace {

constexpr uint32_t kCharMax = 0x10FFFF;
constexpr CharClass::Range kSurrogates = {0xD800, 0xDFFF};

}  // namespace

CharClass::CharClass(std::vector<Range> ranges) {
  std::vector<Range> split;
  for (const Range& range : ranges) {
    const Range below = {range.first, std::min(range.last, kSurrogates.first - 1)};
    const Range above = {std::max(range.first, kSurrogates.last + 1), std::min(range.last, kCharMax)};
    if (below.first <= below.last) split.push_back(below);
    if (above.first <= above.last) split.push_back(above);
  }
  std::sort(split.begin(), split.end());
  for (const Range& range : split) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharClass CharClass::AnyOf(absl::string_view text) {
  std::vector<Range> ranges;
  for (const uint32_t c : CharsOf(text)) ranges.push_back({c, c});
  return CharClass(std::move(ranges));
}

CharClass CharClass::Union(const CharClass& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharClass(std::move(ranges));
}

CharClass CharClass::Intersect(const CharClass& other) const {
  std::vector<Range> ranges;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const Range common = {std::max(a->first, b->first), std::min(a->last, b->last)};
    if (common.first <= common.last) ranges.push_back(common);
    a->last < b->last ? ++a : ++b;
  }
  return CharClass(std::move(ranges));
}

CharClass CharClass::Complement() const {
  std::vector<Range> ranges;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCharMax) ranges.push_back({next, kCharMax});
  return CharClass(std::move(ranges));
}

bool CharClass::Contains(uint32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [c](const Range& r) { return r.first <= c && c <= r.last; });
}

std::vector<uint32_t> CharsOf(absl::string_view utf8) {
  std::vector<uint32_t> chars;
  for (size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t c = length == 1 ? lead : lead & (0x7F >> length);
    for (size_t j = 1; j < length && i + j < utf8.size(); ++j) {
      c = c << 6 | (static_cast<unsigned char>(utf8[i + j]) & 0x3F);
    }
    chars.push_back(c);
    i += length;
  }
  return chars;
}

}  // namespace tandem::router
