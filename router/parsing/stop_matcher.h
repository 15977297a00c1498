// Finds stop strings in streamed text and never lets a byte of one through.
//
// The stop that is complete first wins, and of several complete at the same byte the longest: that is the one rule
// under which the answer does not depend on how the text was cut, and under which generation ends at the earliest
// moment. So of "ab" and "abc" it is "ab", always.
//
// An Aho-Corasick automaton over bytes. Its state is the longest suffix of the text that is a proper prefix of a stop:
// exactly the text held back. The state spells that text, so a stream keeps one integer and no buffer, and time is
// linear in the text whatever the stops. Stops start at a character, so the held text does too: where the text comes
// in whole characters, it leaves in whole characters.
// Tested by stop_matcher_test.cc: all texts over small alphabets, all splits, against a search that sees the whole
// text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem::router {

// The compiled stop strings of a request; immutable, shared by its choices.
class StopSet {
 public:
  // INVALID_ARGUMENT for an empty stop string, or for stops of more than kBytesMax bytes together.
  static absl::StatusOr<StopSet> Build(std::vector<std::string> stops);

  // Each byte may take a node of the automaton, some 30 bytes, for as long as the request lives.
  static constexpr size_t kBytesMax = size_t{1} << 16;

  absl::Span<const std::string> stops() const { return stops_; }

 private:
  friend class StopMatcher;

  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t fail = 0;         // node of the longest proper suffix that is also a prefix of a stop
    int32_t longest = -1;     // index of the longest stop that is a suffix of this node's text, -1 if none
    int32_t spelled_by = -1;  // index of a stop that begins with this node's text
    uint32_t depth = 0;       // length of this node's text
    uint8_t byte = 0;
  };

  int32_t Child(int32_t node, uint8_t byte) const;
  void Insert(int32_t stop_index);
  void LinkFailures();

  std::vector<std::string> stops_;
  std::vector<Node> nodes_;  // nodes_[0] is the empty text
};

class StopMatcher {
 public:
  // The set must outlive the matcher.
  explicit StopMatcher(const StopSet& set) : set_(&set) {}

  // Appends to *text what may be shown of the stream so far and has not been shown. Returns how many bytes of `delta`
  // were read: all of them, or those up to the end of the stop that is now complete. Once one is, nothing more is read.
  size_t Append(absl::string_view delta, std::string* text);

  // The stream has ended without the rest of a stop: appends the text held back.
  void Finish(std::string* text);

  // Index into stops() of the stop that ended the stream.
  std::optional<int> matched() const;

  // Bytes of text held back, less than the longest stop.
  size_t num_held_bytes() const;

 private:
  const StopSet* set_;
  int32_t state_ = 0;
  int32_t matched_ = -1;
};

}  // namespace tandem::router
