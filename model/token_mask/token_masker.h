// Which tokens may follow in a constrained answer: exactly those behind which some answer can still be completed.
//
// A token is allowed iff the automaton lives on behind its last byte, since every place it is kept in can reach an end
// (constraint.h, need). To try every token costs milliseconds, so work is shared:
// - Walks. A trie of the vocabulary is walked once, not token by token; a dead branch is left at its first byte.
// - Marks of a state. What a state allows hardly depends on who called it. A walk that begins with unknown callers
//   gives the tokens that any caller would allow, and the few nodes of the trie where the automaton returned to its
//   caller and tokens go on. This is done once for a state and kept; for a position the masks of its places are put
//   together, and only behind those nodes is walked with the callers that are really there.
// - Plain runs. Where a state takes any plain character, as inside a string, plain tokens are not walked at all.
// Kept masks are bounded in bytes, the least recently used go first; they are shared by all answers to equal
// constraints. One thread. Tested by token_masker_test.cc: against a matcher that tries every token.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/token_mask/token_mask.h"
#include "model/token_mask/token_matcher.h"

namespace tandem::model {

class TokenMasker final {
 public:
  explicit TokenMasker(size_t kept_bytes_max) : kept_bytes_max_(kept_bytes_max) {}

  // Overwrites *mask, of the constraint's vocabulary. No token at all: the vocabulary cannot spell what must come.
  void MaskAfter(const TokenMatcher& matcher, TokenMask* mask);

  size_t kept_bytes() const { return kept_bytes_; }
  int64_t num_walks() const { return num_walks_; }  // of whole tries, so far

 private:
  // What a state allows, whoever called it.
  struct StateMask {
    struct Return {  // to the caller, inside of tokens
      bool is_plain = false;
      uint32_t node = 0;  // of that trie
    };
    TokenMask allowed;
    std::vector<Return> returns;
    int reach = 0;  // calls nest so deep below the state, at most
    size_t num_bytes() const { return allowed.num_bytes() + returns.size() * sizeof(Return) + 256; }
  };
  struct Key {
    const Constraint* constraint = nullptr;
    uint32_t state = 0;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.constraint, key.state);
    }
  };
  struct Kept {
    Key key;
    std::shared_ptr<const Constraint> constraint;  // so that no other takes its address
    StateMask mask;
  };
  struct Walk;

  const StateMask& MaskOf(const std::shared_ptr<const Constraint>& constraint, uint32_t state);
  StateMask Compute(const Constraint& constraint, uint32_t state);
  void DropOldest();
  void AllowBehindReturns(const Constraint& constraint, const Place& place, const StateMask& of_state, TokenMask* mask);

  const size_t kept_bytes_max_;
  size_t kept_bytes_ = 0;
  int64_t num_walks_ = 0;
  std::list<Kept> kept_;  // the most recently used first
  absl::flat_hash_map<Key, std::list<Kept>::iterator> by_key_;
  // Of a walk: a set for each byte on the way, and the nodes they stand on.
  std::vector<PlaceSet> sets_;
  CallArena arena_;
};

}  // namespace tandem::model
