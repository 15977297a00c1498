// Which pages of a pool hold which beginnings of prompts, so that a request joins pages that are computed already.
//
// A forest of pages: a page continues the page before it. A page is found by its key (proto/page_key.h), and its
// tokens, forms and salt are compared, so that two prompts whose keys collide never share a page. Cached pages are kept
// in the allocator without a holder; requests that use them hold them.
//
// The first page with a given content wins: a request that computed the same beside it keeps its own, and holds the
// indexed ones as well. So whoever holds a page of the index holds all pages before it, every page that nobody holds
// has only such pages behind it, and the least recently used ones can be evicted from their ends until none is left.
// With an MTP layer a page is one thing together with the token behind it (covers_next_token): the layer's record of
// the page's last token is made of that token, too. A page is then joined only where the prompt goes on with it.
//
// Invariants: pages that somebody holds are never evicted; a page is in the index once; what is dropped, flushed or
// evicted while it is held is free with its last hold.
// Not thread-safe: the engine's thread owns it. Tested by prefix_index_test.cc (against brute force).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcache/kv_layout.h"
#include "kvcache/page_allocator.h"
#include "proto/page_key.h"

namespace tandem::kvcache {

struct PrefixIndexOptions {
  int64_t num_pages_max = 0;       // 0: as many as the pool has
  bool covers_next_token = false;  // the pool has a layer whose records depend on the next token (MTP)
  uint64_t domain = 0;             // of the keys: model, numerics, layout of the records
  bool records_changes = false;    // for TakeChanges()
  uint64_t (*page_key)(uint64_t parent, absl::Span<const uint32_t> tokens, uint64_t generated_mask,
                       uint32_t next_token) = &proto::PageKey;
};

// A sequence whose beginning is looked for or has been computed.
struct PrefixTokens {
  absl::Span<const uint32_t> tokens;
  int64_t num_prompt_tokens = 0;  // tokens from here on were generated
  absl::string_view cache_salt;   // sequences with different ones share nothing
};

// What has happened since the start; never goes back.
struct PrefixCounters {
  int64_t pages_added = 0;
  int64_t pages_evicted = 0;
  int64_t pages_dropped = 0;  // flushed, or not to be trusted
};

// For those who follow what is held. Changes come in order.
struct PrefixChange {
  uint64_t page_key = 0;
  bool is_added = false;  // else removed
  bool operator==(const PrefixChange&) const = default;
};

class PrefixIndex final {
 public:
  // `pages` outlives the index.
  PrefixIndex(const PrefixIndexOptions& options, PageAllocator& pages);
  // Cached pages that nobody holds become free.
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The pages of the longest cached beginning, whole pages of the first `num_tokens_max` tokens only. Nobody holds them
  // for that: they stay until the next call that evicts, drops or flushes.
  std::vector<PageId> Match(const PrefixTokens& prefix, int64_t num_tokens_max) const;
  // Pages that a request has just joined count as used now.
  void Touch(const PrefixTokens& prefix, int64_t num_pages);
  // The first pages.size() whole pages of the sequence are final in these pages, all held by `holder`. Those that the
  // index knows by other pages stay `holder`'s own, and `holder` holds the known ones, too. Stops early where
  // num_pages_max is reached and nothing can be evicted. Returns how many pages were added.
  // Where covers_next_token is set, the sequence goes on behind its last page.
  int64_t Add(const PrefixTokens& prefix, absl::Span<const PageId> pages, std::string_view holder);

  // Frees the least recently used pages that nobody holds until `num_pages` are freed or none is left. Returns how
  // many.
  int64_t Evict(int64_t num_pages);
  // Forgets the first page of this sequence and all that continues it: their bytes are not to be trusted.
  void Drop(const PrefixTokens& prefix);
  void Flush();

  int64_t num_pages() const { return static_cast<int64_t>(nodes_.size()); }
  const PrefixCounters& counters() const { return counters_; }
  // All keys, in no order.
  std::vector<uint64_t> Keys() const;
  // What has changed since the last call; nothing without records_changes.
  std::vector<PrefixChange> TakeChanges() { return std::exchange(changes_, {}); }

 private:
  struct Node {
    Node* parent = nullptr;  // null: a root, which has no page
    uint64_t key = 0;
    PageId page = -1;
    std::array<uint32_t, kPageTokens> tokens = {};
    uint64_t generated_mask = 0;
    uint32_t next_token = proto::kNoToken;
    uint64_t last_used = 0;
    absl::flat_hash_set<Node*> children;
    std::string salt;         // of roots
    bool is_growing = false;  // of roots: a page is about to be added
  };
  // Logical page `index` of a sequence, as a node holds it.
  struct PageView {
    absl::Span<const uint32_t> tokens;
    uint64_t generated_mask = 0;
    uint32_t next_token = proto::kNoToken;
  };
  using ByAge = std::set<std::pair<uint64_t, Node*>>;

  int64_t NumWholePages(const PrefixTokens& prefix, int64_t num_tokens_max) const;
  PageView ViewOf(const PrefixTokens& prefix, int64_t index) const;
  const Node* FindRoot(absl::string_view salt) const;
  Node* FindChild(const Node& parent, const PageView& view) const;
  Node* AddChild(Node& parent, const PageView& view, PageId page);
  void Use(Node& node);
  void Remove(Node& node);  // a leaf
  void RemoveTree(Node& node);
  static bool IsLeaf(const Node& node) { return node.parent != nullptr && node.children.empty(); }

  const PrefixIndexOptions options_;
  PageAllocator& pages_;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;  // by salt
  std::unordered_multimap<uint64_t, std::unique_ptr<Node>> nodes_;   // by key
  ByAge leaves_;
  uint64_t uses_ = 0;
  PrefixCounters counters_;
  std::vector<PrefixChange> changes_;
};

}  // namespace tandem::kvcache
