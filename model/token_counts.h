// Which tokens a sequence has, and how often: what repetition, frequency and presence penalties look at.
//
// Kept by token id, once for each different token, so that penalties cost as much as a sequence has different tokens,
// whatever the vocabulary. A window of drafts adds each draft before the row behind it is drawn, and removes those that
// were not accepted.
// Invariant: no memory is taken after construction as long as no more than the promised number of tokens is added.
// Tested by token_counts_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::model {

class TokenCounts final {
 public:
  struct Entry {
    int32_t token = 0;
    int32_t num_generated = 0;
    bool is_in_prompt = false;
    bool operator==(const Entry&) const = default;
  };

  // Nothing counted: all that is needed where there are no penalties.
  TokenCounts() = default;
  // The tokens of a prompt, and room for num_generated_max more.
  TokenCounts(absl::Span<const uint32_t> prompt, size_t num_generated_max);

  // One more token of the answer. O(different tokens): they are kept in order.
  void Add(int32_t token);
  // Takes back an Add of the same token.
  void Remove(int32_t token);

  // Ascending by token; none twice. A token whose every Add was taken back may be listed with num_generated 0.
  absl::Span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace tandem::model
