// What a router knows of one prefill worker's prefix cache, as the worker itself tells it (proto PrefixUpdate).
//
// It is right or it says so: a gap in the numbers, or a sum that does not come out, makes the mirror unsound until the
// next snapshot, and whoever feeds it asks for one. While it is unsound, nothing counts as cached. Its size is that of
// the worker's cache: eight bytes a page.
// Not thread-safe: a shard's thread owns it. Tested by prefix_mirror_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/worker.pb.h"
#include "router/tokenizer/token_id.h"

namespace tandem::router {

// What the keys of a worker's pages are made of.
struct PageKeyRules {
  uint64_t domain = 0;  // 0: the worker does not tell
  bool covers_next_token = false;
  bool operator==(const PageKeyRules&) const = default;
};

// Keys of the pages of this prompt that may be shared, in order.
std::vector<uint64_t> PageKeysOf(absl::Span<const TokenId> prompt, absl::string_view cache_salt,
                                 const PageKeyRules& rules);

class PrefixMirror final {
 public:
  // False: what is known cannot be right, a snapshot is wanted. Said once for each time that it happens.
  bool Take(const proto::PrefixUpdate& update);
  // A new stream: nothing is known until its first snapshot.
  void Reset();

  // How many of these pages the worker has, from the first on.
  int NumCached(absl::Span<const uint64_t> page_keys) const;
  bool is_sound() const { return is_sound_ && is_complete_; }
  size_t num_keys() const { return num_keys_; }

 private:
  bool Distrust();

  absl::flat_hash_map<uint64_t, int> keys_;  // how often: keys may collide
  uint64_t num_keys_ = 0;
  uint64_t key_sum_ = 0;
  uint64_t last_number_ = 0;
  bool is_sound_ = false;
  bool is_complete_ = false;
};

}  // namespace tandem::router
