// Who holds which pages of a pool.
//
// A page is free or held. It is held by named owners ("seq 7f02", "epoch 12 fetches", "prefix cache"), each any number
// of times: Allocate gives every page its first hold, Hold adds one (a shared prefix, an outstanding fetch), Release
// takes one away, and with its last hold the page becomes free. A pin is a hold under a label of its own, so /statusz
// can say who keeps a page from being freed.
// A cached page (prefix_index.h) does not become free with its last hold: it is idle until it is held again, or no
// longer cached.
// Invariants, checked in every build: free + used + idle pages = all pages; only free pages are allocated; nobody
// releases what he does not hold; a page's generation grows each time it becomes free, so that whoever kept a page id
// can tell that it has a new tenant.
// Not thread-safe: the engine's thread owns it, other threads get Holders() by message.
// Tested by page_allocator_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace tandem::kvcache {

using PageId = int32_t;  // in [0, num_pages) of one pool

struct PageHolder {
  std::string owner;
  int64_t num_pages = 0;  // distinct pages
  int64_t num_holds = 0;
};

class PageAllocator final {
 public:
  explicit PageAllocator(int64_t num_pages);

  // All `count` pages, each held once by `owner`, or none: RESOURCE_EXHAUSTED with wanted, free and total counts.
  // Ascending; contiguous where a free run is long enough, since contiguous pages move as one piece.
  absl::StatusOr<std::vector<PageId>> Allocate(int64_t count, std::string_view owner);
  // One more hold on each page, all of which are held or cached.
  void Hold(std::span<const PageId> pages, std::string_view owner);
  // One hold of `owner` less on each page. Returns how many pages became free.
  int64_t Release(std::span<const PageId> pages, std::string_view owner);
  // Every hold of `owner`, whatever it is; an unknown owner holds nothing. Returns how many pages became free.
  int64_t ReleaseAll(std::string_view owner);

  // A held page that is not cached yet is kept beyond its last hold.
  void Cache(PageId page);
  // No longer. True where nobody held it: it has become free.
  bool Uncache(PageId page);

  int64_t num_pages() const { return static_cast<int64_t>(pages_.size()); }
  int64_t num_free() const { return num_free_; }
  int64_t num_idle() const { return num_idle_; }  // cached pages that nobody holds
  int64_t num_used() const { return num_pages() - num_free_ - num_idle_; }
  int64_t num_holds(PageId page) const { return at(page).num_holds; }
  int64_t num_holds_of(PageId page, std::string_view owner) const;
  bool is_cached(PageId page) const { return at(page).is_cached; }
  uint64_t generation(PageId page) const { return at(page).generation; }
  // Pages that `owner` holds, ascending.
  std::vector<PageId> PagesOf(std::string_view owner) const;
  // Everybody who holds a page, by name: a row each for /statusz. O(holds).
  std::vector<PageHolder> Holders() const;

 private:
  struct Page {
    int64_t num_holds = 0;
    uint64_t generation = 0;
    bool is_cached = false;

    bool is_free() const { return num_holds == 0 && !is_cached; }
  };
  using HoldCounts = absl::flat_hash_map<PageId, int64_t>;

  const Page& at(PageId page) const;
  HoldCounts& HoldsOf(std::string_view owner);  // made where it is missing
  bool DropHold(PageId page);                   // true where the page became free
  void Free(Page& page);
  PageId FindFreeRun(int64_t count) const;  // first page of the first long enough run, -1 where there is none

  std::vector<Page> pages_;
  int64_t num_free_;
  int64_t num_idle_ = 0;
  std::map<std::string, HoldCounts, std::less<>> holds_by_owner_;
};

}  // namespace tandem::kvcache
