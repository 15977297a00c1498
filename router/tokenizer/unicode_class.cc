#include "router/tokenizer/unicode_class.h"

#include <iterator>
#include <map>

namespace tandem::router {
namespace {

constexpr uint32_t kRuns[] = {
#include "router/tokenizer/unicode_class_runs.inc"
};

}  // namespace

const UnicodeClasses& UnicodeClasses::Get() {
  static const UnicodeClasses* const kClasses = new UnicodeClasses;
  return *kClasses;
}

UnicodeClasses::UnicodeClasses() {
  std::map<std::vector<UnicodeClass>, uint32_t> offsets;
  size_t run = 0;
  for (uint32_t block = 0; block < kNumBlocks; ++block) {
    std::vector<UnicodeClass> classes(kBlockSize);
    for (uint32_t i = 0; i < kBlockSize; ++i) {
      while (run + 1 < std::size(kRuns) && kRuns[run + 1] >> 4 <= block * kBlockSize + i) ++run;
      classes[i] = static_cast<UnicodeClass>(kRuns[run] & 0xF);
    }
    const auto [it, is_new] = offsets.emplace(classes, static_cast<uint32_t>(classes_.size()));
    if (is_new) classes_.insert(classes_.end(), classes.begin(), classes.end());
    block_offsets_[block] = it->second;
  }
}

}  // namespace tandem::router
