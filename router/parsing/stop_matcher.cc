#include "router/parsing/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::router {

absl::StatusOr<StopSet> StopSet::Build(std::vector<std::string> stops) {
  size_t num_bytes = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return absl::InvalidArgumentError(absl::StrCat("stop string ", i, " is empty"));
    num_bytes += stops[i].size();
  }
  if (num_bytes > kBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop strings have ", num_bytes, " bytes together, more than the limit of ", kBytesMax));
  }
  StopSet set;
  set.stops_ = std::move(stops);
  set.nodes_.reserve(num_bytes + 1);
  set.nodes_.emplace_back();
  for (size_t i = 0; i < set.stops_.size(); ++i) set.Insert(static_cast<int32_t>(i));
  set.LinkFailures();
  return set;
}

int32_t StopSet::Child(int32_t node, uint8_t byte) const {
  int32_t child = nodes_[node].first_child;
  while (child != -1 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

void StopSet::Insert(int32_t stop_index) {
  int32_t node = 0;
  for (const char c : stops_[stop_index]) {
    const uint8_t byte = static_cast<uint8_t>(c);
    int32_t child = Child(node, byte);
    if (child == -1) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child,
                        .spelled_by = stop_index,
                        .depth = nodes_[node].depth + 1,
                        .byte = byte});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  if (nodes_[node].longest == -1) nodes_[node].longest = stop_index;
}

void StopSet::LinkFailures() {
  // By depth, so that every shorter text is linked before the longer ones that fail to it.
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t parent = order[i];
    for (int32_t node = nodes_[parent].first_child; node != -1; node = nodes_[node].next_sibling) {
      order.push_back(node);
      if (parent == 0) continue;  // a single byte fails to the empty text
      int32_t suffix = nodes_[parent].fail;
      int32_t target = Child(suffix, nodes_[node].byte);
      while (target == -1 && suffix != 0) {
        suffix = nodes_[suffix].fail;
        target = Child(suffix, nodes_[node].byte);
      }
      nodes_[node].fail = target == -1 ? 0 : target;
      if (nodes_[node].longest == -1) nodes_[node].longest = nodes_[nodes_[node].fail].longest;
    }
  }
}

size_t StopMatcher::Append(absl::string_view delta, std::string* text) {
  if (matched_ != -1) return 0;
  size_t shown = 0;                 // bytes of delta that are in *text
  size_t older = num_held_bytes();  // bytes held that came before delta: the state spells them, delta does not
  for (size_t at = 0; at < delta.size(); ++at) {
    const uint8_t byte = static_cast<uint8_t>(delta[at]);
    const int32_t before = state_;
    int32_t child = set_->Child(state_, byte);
    while (child == -1 && state_ != 0) {
      state_ = set_->nodes_[state_].fail;
      child = set_->Child(state_, byte);
    }
    state_ = child == -1 ? 0 : child;
    const int32_t stop = set_->nodes_[state_].longest;
    // Held until now is what `before` spells and this byte; held from now on is its tail.
    const size_t held = stop == -1 ? set_->nodes_[state_].depth : set_->stops_[stop].size();
    size_t released = set_->nodes_[before].depth + 1 - held;
    if (older > 0) {
      const size_t num_older = std::min(released, older);
      text->append(set_->stops_[set_->nodes_[before].spelled_by], 0, num_older);
      older -= num_older;
      released -= num_older;
    }
    absl::StrAppend(text, delta.substr(shown, released));
    shown += released;
    if (stop != -1) {
      matched_ = stop;
      state_ = 0;
      return at + 1;
    }
  }
  return delta.size();
}

void StopMatcher::Finish(std::string* text) {
  if (state_ != 0) text->append(set_->stops_[set_->nodes_[state_].spelled_by], 0, set_->nodes_[state_].depth);
  state_ = 0;
}

std::optional<int> StopMatcher::matched() const {
  if (matched_ == -1) return std::nullopt;
  return matched_;
}

size_t StopMatcher::num_held_bytes() const { return set_->nodes_[state_].depth; }

}  // namespace tandem::router
