#include "kvcache/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::kvcache {

static_assert(kPageTokens == proto::kPageKeyTokens);

PrefixIndex::PrefixIndex(const PrefixIndexOptions& options, PageAllocator& pages) : options_(options), pages_(pages) {}

PrefixIndex::~PrefixIndex() { Flush(); }

// ---- Looking ----

int64_t PrefixIndex::NumWholePages(const PrefixTokens& prefix, int64_t num_tokens_max) const {
  const auto num_tokens = static_cast<int64_t>(prefix.tokens.size());
  // The token behind the last page must be known.
  const int64_t num_known = options_.covers_next_token ? num_tokens - 1 : num_tokens;
  return std::max<int64_t>(0, std::min(num_tokens_max, num_known)) / kPageTokens;
}

PrefixIndex::PageView PrefixIndex::ViewOf(const PrefixTokens& prefix, int64_t index) const {
  const int64_t begin = index * kPageTokens;
  PageView view{.tokens = prefix.tokens.subspan(begin, kPageTokens)};
  const int64_t num_prompt_tokens = std::clamp<int64_t>(prefix.num_prompt_tokens - begin, 0, kPageTokens);
  if (num_prompt_tokens < kPageTokens) view.generated_mask = ~uint64_t{0} << num_prompt_tokens;
  if (options_.covers_next_token) view.next_token = prefix.tokens[begin + kPageTokens];
  return view;
}

const PrefixIndex::Node* PrefixIndex::FindRoot(absl::string_view salt) const {
  const auto root = roots_.find(std::string_view(salt.data(), salt.size()));
  return root == roots_.end() ? nullptr : root->second.get();
}

PrefixIndex::Node* PrefixIndex::FindChild(const Node& parent, const PageView& view) const {
  const uint64_t key = options_.page_key(parent.key, view.tokens, view.generated_mask, view.next_token);
  const auto [begin, end] = nodes_.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    Node& node = *it->second;
    if (node.parent == &parent && node.generated_mask == view.generated_mask && node.next_token == view.next_token &&
        std::equal(view.tokens.begin(), view.tokens.end(), node.tokens.begin())) {
      return &node;
    }
  }
  return nullptr;
}

std::vector<PageId> PrefixIndex::Match(const PrefixTokens& prefix, int64_t num_tokens_max) const {
  std::vector<PageId> pages;
  const Node* node = FindRoot(prefix.cache_salt);
  const int64_t num_pages = NumWholePages(prefix, num_tokens_max);
  for (int64_t i = 0; node != nullptr && i < num_pages; ++i) {
    node = FindChild(*node, ViewOf(prefix, i));
    if (node != nullptr) pages.push_back(node->page);
  }
  return pages;
}

void PrefixIndex::Touch(const PrefixTokens& prefix, int64_t num_pages) {
  const Node* parent = FindRoot(prefix.cache_salt);
  ++uses_;
  for (int64_t i = 0; parent != nullptr && i < num_pages; ++i) {
    Node* node = FindChild(*parent, ViewOf(prefix, i));
    if (node != nullptr) Use(*node);
    parent = node;
  }
}

void PrefixIndex::Use(Node& node) {
  const bool is_leaf = IsLeaf(node);
  if (is_leaf) leaves_.erase({node.last_used, &node});
  node.last_used = uses_;
  if (is_leaf) leaves_.insert({node.last_used, &node});
}

// ---- Growing ----

int64_t PrefixIndex::Add(const PrefixTokens& prefix, absl::Span<const PageId> pages, std::string_view holder) {
  TANDEM_CHECK(
      static_cast<int64_t>(pages.size()) <= NumWholePages(prefix, static_cast<int64_t>(pages.size()) * kPageTokens),
      "a page is cached before it is whole");
  if (pages.empty()) return 0;
  const int64_t num_pages_max = options_.num_pages_max > 0 ? options_.num_pages_max : pages_.num_pages();
  ++uses_;
  std::unique_ptr<Node>& root = roots_[std::string(prefix.cache_salt.data(), prefix.cache_salt.size())];
  if (root == nullptr) {
    root = std::make_unique<Node>();
    root->key = proto::RootPageKey(options_.domain, prefix.cache_salt);
    root->salt = std::string(prefix.cache_salt.data(), prefix.cache_salt.size());
  }
  root->is_growing = true;  // evictions may take all that it had
  Node* parent = root.get();
  int64_t num_added = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    const PageView view = ViewOf(prefix, static_cast<int64_t>(i));
    Node* node = FindChild(*parent, view);
    if (node == nullptr) {
      if (num_pages() >= num_pages_max && Evict(1) == 0) break;
      node = AddChild(*parent, view, pages[i]);
      ++num_added;
    } else if (pages_.num_holds_of(node->page, holder) == 0) {
      pages_.Hold({&node->page, 1}, holder);
    }
    Use(*node);
    parent = node;
  }
  root->is_growing = false;
  if (root->children.empty()) roots_.erase(std::string(root->salt));
  return num_added;
}

PrefixIndex::Node* PrefixIndex::AddChild(Node& parent, const PageView& view, PageId page) {
  if (IsLeaf(parent)) leaves_.erase({parent.last_used, &parent});
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->parent = &parent;
  node->key = options_.page_key(parent.key, view.tokens, view.generated_mask, view.next_token);
  node->page = page;
  std::copy(view.tokens.begin(), view.tokens.end(), node->tokens.begin());
  node->generated_mask = view.generated_mask;
  node->next_token = view.next_token;
  node->last_used = uses_;
  parent.children.insert(node);
  leaves_.insert({node->last_used, node});
  nodes_.emplace(node->key, std::move(owned));
  pages_.Cache(page);
  ++counters_.pages_added;
  if (options_.records_changes) changes_.push_back({.page_key = node->key, .is_added = true});
  return node;
}

// ---- Shrinking ----

int64_t PrefixIndex::Evict(int64_t num_pages) {
  int64_t num_evicted = 0;
  for (auto oldest = leaves_.begin(); oldest != leaves_.end() && num_evicted < num_pages;) {
    Node& leaf = *oldest->second;
    if (pages_.num_holds(leaf.page) > 0) {
      ++oldest;
      continue;
    }
    // Its parent may become a leaf that is older than those behind it: from the beginning again, past held ones.
    Remove(leaf);
    ++num_evicted;
    oldest = leaves_.begin();
  }
  counters_.pages_evicted += num_evicted;
  return num_evicted;
}

void PrefixIndex::Remove(Node& node) {
  TANDEM_CHECK(IsLeaf(node), "a page is removed before those that continue it");
  leaves_.erase({node.last_used, &node});
  Node& parent = *node.parent;
  parent.children.erase(&node);
  if (IsLeaf(parent)) leaves_.insert({parent.last_used, &parent});
  pages_.Uncache(node.page);
  if (options_.records_changes) changes_.push_back({.page_key = node.key, .is_added = false});
  if (parent.parent == nullptr && parent.children.empty() && !parent.is_growing) {
    roots_.erase(std::string(parent.salt));
  }
  const auto [begin, end] = nodes_.equal_range(node.key);
  nodes_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == &node; }));
}

void PrefixIndex::RemoveTree(Node& node) {
  // By hand: a chain of pages is as long as a prompt.
  std::vector<Node*> path = {&node};
  while (!path.empty()) {
    Node& last = *path.back();
    if (!last.children.empty()) {
      path.push_back(*last.children.begin());
      continue;
    }
    path.pop_back();
    Remove(last);
    ++counters_.pages_dropped;
  }
}

void PrefixIndex::Drop(const PrefixTokens& prefix) {
  const Node* root = FindRoot(prefix.cache_salt);
  if (root == nullptr || NumWholePages(prefix, kPageTokens) == 0) return;
  if (Node* first = FindChild(*root, ViewOf(prefix, 0)); first != nullptr) RemoveTree(*first);
}

void PrefixIndex::Flush() {
  while (!nodes_.empty()) {
    Node* first = nodes_.begin()->second.get();
    while (first->parent->parent != nullptr) first = first->parent;
    RemoveTree(*first);
  }
}

std::vector<uint64_t> PrefixIndex::Keys() const {
  std::vector<uint64_t> keys;
  keys.reserve(nodes_.size());
  for (const auto& [key, node] : nodes_) keys.push_back(key);
  return keys;
}

}  // namespace tandem::kvcache
