#include "router/tokenizer/added_token_finder.h"

namespace tandem::router {

AddedTokenFinder::AddedTokenFinder(absl::Span<const AddedToken> tokens) {
  for (const AddedToken& token : tokens) {
    (token.is_normalized ? second_pass_ : first_pass_).Insert(token.content, token.id);
    ids_[token.content] = token.id;
  }
}

std::optional<TokenId> AddedTokenFinder::IdOf(absl::string_view content) const {
  const auto it = ids_.find(content);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::vector<AddedTokenFinder::Occurrence> AddedTokenFinder::Find(absl::string_view text,
                                                                 absl::Span<const MarkedText::Run> runs) const {
  std::vector<Occurrence> first;
  if (!first_pass_.empty()) {
    for (const MarkedText::Run& run : runs) {
      if (run.is_markup) first_pass_.Find(text, run.begin, run.end, &first);
    }
  }
  if (second_pass_.empty()) return first;
  std::vector<Occurrence> all;
  size_t next_first = 0;
  for (const MarkedText::Run& run : runs) {
    if (!run.is_markup) continue;
    size_t begin = run.begin;
    for (; next_first < first.size() && first[next_first].begin < run.end; ++next_first) {
      second_pass_.Find(text, begin, first[next_first].begin, &all);
      all.push_back(first[next_first]);
      begin = first[next_first].end;
    }
    second_pass_.Find(text, begin, run.end, &all);
  }
  return all;
}

void AddedTokenFinder::Trie::Insert(absl::string_view content, TokenId id) {
  begins_[static_cast<unsigned char>(content[0])] = true;
  int node = 0;
  for (const char c : content) {
    const unsigned char byte = static_cast<unsigned char>(c);
    const int* child = Child(node, byte);
    if (child != nullptr) {
      node = *child;
      continue;
    }
    const int added = static_cast<int>(nodes_.size());
    nodes_[node].children.emplace_back(byte, added);
    nodes_.emplace_back();
    node = added;
  }
  nodes_[node].id = id;
}

const int* AddedTokenFinder::Trie::Child(int node, unsigned char byte) const {
  for (const auto& [child_byte, child] : nodes_[node].children) {
    if (child_byte == byte) return &child;
  }
  return nullptr;
}

void AddedTokenFinder::Trie::Find(absl::string_view text, size_t begin, size_t end,
                                  std::vector<Occurrence>* found) const {
  while (begin < end) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) {
      ++begin;
      continue;
    }
    Occurrence longest{begin, begin, 0};
    int node = 0;
    for (size_t at = begin; at < end;) {
      const int* child = Child(node, static_cast<unsigned char>(text[at]));
      if (child == nullptr) break;
      node = *child;
      ++at;
      if (nodes_[node].id != kNoToken) longest = {begin, at, static_cast<TokenId>(nodes_[node].id)};
    }
    if (longest.end == begin) {
      ++begin;
    } else {
      found->push_back(longest);
      begin = longest.end;
    }
  }
}

}  // namespace tandem::router
