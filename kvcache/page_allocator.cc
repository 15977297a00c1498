#include "kvcache/page_allocator.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvcache {

PageAllocator::PageAllocator(int64_t num_pages) : num_free_(num_pages) {
  TANDEM_CHECK(num_pages >= 0 && num_pages <= std::numeric_limits<PageId>::max(), absl::StrCat(num_pages, " pages"));
  pages_.resize(num_pages);
}

absl::StatusOr<std::vector<PageId>> PageAllocator::Allocate(int64_t count, std::string_view owner) {
  TANDEM_CHECK(count >= 0, "a negative number of pages");
  if (count > num_free_) {
    return absl::ResourceExhaustedError(absl::StrCat("kv pool: ", count, " pages wanted by ", std::string(owner), ", ",
                                                     num_free_, " of ", num_pages(), " are free"));
  }
  std::vector<PageId> taken;
  if (count == 0) return taken;
  taken.reserve(count);
  HoldCounts& holds = HoldsOf(owner);
  for (PageId page = std::max(FindFreeRun(count), 0); static_cast<int64_t>(taken.size()) < count; ++page) {
    if (!pages_[page].is_free()) continue;
    pages_[page].num_holds = 1;
    holds[page] = 1;
    taken.push_back(page);
  }
  num_free_ -= count;
  return taken;
}

void PageAllocator::Hold(std::span<const PageId> pages, std::string_view owner) {
  if (pages.empty()) return;
  HoldCounts& holds = HoldsOf(owner);
  for (const PageId page : pages) {
    TANDEM_CHECK(!at(page).is_free(), absl::StrCat("hold on the free page ", page, " by ", std::string(owner)));
    if (pages_[page].num_holds++ == 0) --num_idle_;
    ++holds[page];
  }
}

int64_t PageAllocator::Release(std::span<const PageId> pages, std::string_view owner) {
  if (pages.empty()) return 0;
  const auto of_owner = holds_by_owner_.find(owner);
  TANDEM_CHECK(of_owner != holds_by_owner_.end(), absl::StrCat(std::string(owner), " holds nothing"));
  int64_t num_freed = 0;
  for (const PageId page : pages) {
    const auto hold = of_owner->second.find(page);
    TANDEM_CHECK(hold != of_owner->second.end(), absl::StrCat(std::string(owner), " does not hold page ", page));
    if (--hold->second == 0) of_owner->second.erase(hold);
    if (DropHold(page)) ++num_freed;
  }
  if (of_owner->second.empty()) holds_by_owner_.erase(of_owner);
  return num_freed;
}

int64_t PageAllocator::ReleaseAll(std::string_view owner) {
  const auto of_owner = holds_by_owner_.find(owner);
  if (of_owner == holds_by_owner_.end()) return 0;
  int64_t num_freed = 0;
  for (const auto& [page, count] : of_owner->second) {
    for (int64_t i = 0; i < count; ++i) {
      if (DropHold(page)) ++num_freed;
    }
  }
  holds_by_owner_.erase(of_owner);
  return num_freed;
}

void PageAllocator::Cache(PageId page) {
  TANDEM_CHECK(at(page).num_holds > 0 && !at(page).is_cached, absl::StrCat("page ", page, " cannot be cached"));
  pages_[page].is_cached = true;
}

bool PageAllocator::Uncache(PageId page) {
  TANDEM_CHECK(at(page).is_cached, absl::StrCat("page ", page, " is not cached"));
  pages_[page].is_cached = false;
  if (pages_[page].num_holds > 0) return false;
  --num_idle_;
  Free(pages_[page]);
  return true;
}

std::vector<PageId> PageAllocator::PagesOf(std::string_view owner) const {
  std::vector<PageId> pages;
  const auto of_owner = holds_by_owner_.find(owner);
  if (of_owner == holds_by_owner_.end()) return pages;
  for (const auto& [page, count] : of_owner->second) pages.push_back(page);
  std::sort(pages.begin(), pages.end());
  return pages;
}

std::vector<PageHolder> PageAllocator::Holders() const {
  std::vector<PageHolder> holders;
  for (const auto& [owner, holds] : holds_by_owner_) {
    PageHolder holder = {.owner = owner, .num_pages = static_cast<int64_t>(holds.size())};
    for (const auto& [page, count] : holds) holder.num_holds += count;
    holders.push_back(std::move(holder));
  }
  return holders;
}

const PageAllocator::Page& PageAllocator::at(PageId page) const {
  TANDEM_CHECK(page >= 0 && page < num_pages(), absl::StrCat("page ", page, " of ", num_pages()));
  return pages_[page];
}

PageAllocator::HoldCounts& PageAllocator::HoldsOf(std::string_view owner) {
  const auto found = holds_by_owner_.find(owner);
  return found != holds_by_owner_.end() ? found->second : holds_by_owner_[std::string(owner)];
}

bool PageAllocator::DropHold(PageId page) {
  if (--pages_[page].num_holds > 0) return false;
  if (pages_[page].is_cached) {
    ++num_idle_;
    return false;
  }
  Free(pages_[page]);
  return true;
}

void PageAllocator::Free(Page& page) {
  ++page.generation;
  ++num_free_;
}

int64_t PageAllocator::num_holds_of(PageId page, std::string_view owner) const {
  const auto of_owner = holds_by_owner_.find(owner);
  if (of_owner == holds_by_owner_.end()) return 0;
  const auto hold = of_owner->second.find(page);
  return hold == of_owner->second.end() ? 0 : hold->second;
}

// A scan of the pool once per admitted request: about a microsecond per thousand pages, beside a prefill.
PageId PageAllocator::FindFreeRun(int64_t count) const {
  int64_t length = 0;
  for (int64_t page = 0; page < num_pages(); ++page) {
    length = pages_[page].is_free() ? length + 1 : 0;
    if (length == count) return static_cast<PageId>(page - count + 1);
  }
  return -1;
}

}  // namespace tandem::kvcache
