// The collectives of a group of ranks, over any RankLink. Every rank of the group makes the same calls in the same
// order with sizes that fit; a call returns when this rank's result is there.
//
// Sums of several ranks are one fixed binary tree over neighbours, ((0+1)+(2+3))+((4+5)+(6+7)), on every rank the same
// bits: what kernels/segments.h does with the segments of one rank, so that a rank that owns a whole subtree and one
// that owns everything agree (docs/architecture.md, Numerics).
// After a failure anywhere in the group every call returns it (rank_link.h).
// Tested by communicator_test.cc: against plain loops, over both kinds of links, and with failures at every point.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "model/communicator/rank_link.h"

namespace tandem::model {

enum class Collective { kBarrier, kBroadcast, kAllGather, kReduceScatter, kAllReduce, kAllToAll };
inline constexpr std::array<absl::string_view, 6> kCollectiveNames = {"barrier",        "broadcast",  "all_gather",
                                                                      "reduce_scatter", "all_reduce", "all_to_all"};

// Of one rank since it began. Bytes are those that it sent to other ranks; time is the caller's, waiting for the slower
// ranks included.
struct CollectiveCounters {
  int64_t num_calls = 0;
  int64_t bytes_sent = 0;
  absl::Duration time = absl::ZeroDuration();
};

// Values [begin, begin + count) that `rank` of `size` holds after a reduce-scatter of `num_values`: equal parts, the
// first ranks one more.
struct ValueShare {
  int64_t begin = 0;
  int64_t count = 0;
};
ValueShare ShareOf(int64_t num_values, int rank, int size);

class Communicator final {
 public:
  // The clock outlives this. One thread at a time, but for counters().
  Communicator(std::unique_ptr<RankLink> link, const base::Clock& clock);

  int rank() const { return link_->rank(); }
  int size() const { return link_->size(); }

  // Returns when every rank is here: what they wrote before is seen by all.
  absl::Status Barrier();
  // On `root` given, elsewhere received; as many bytes on every rank.
  absl::Status Broadcast(int root, MutableBytes bytes);
  // mine goes to every rank; pieces[q], as long as rank q's, gets that of rank q. pieces[rank()] may be mine itself.
  absl::Status AllGather(ConstBytes mine, absl::Span<const MutableBytes> pieces);
  // send[q] goes to rank q, receive[q] comes from rank q.
  absl::Status AllToAll(absl::Span<const ConstBytes> send, absl::Span<const MutableBytes> receive);
  // The sums of every rank's values: `mine` gets ShareOf(values.size(), rank(), size()) of them.
  absl::Status ReduceScatter(absl::Span<const float> values, absl::Span<float> mine);
  // All of them, in place of the values.
  absl::Status AllReduce(absl::Span<float> values);

  // Ends the group: this rank cannot go on.
  void Fail(const absl::Status& cause) { link_->Fail(cause); }
  // OK while the group lives.
  absl::Status status() const { return link_->status(); }

  // From any thread, at any time.
  CollectiveCounters counters(Collective op) const;

 private:
  struct Counters {
    std::atomic<int64_t> num_calls = 0;
    std::atomic<int64_t> bytes_sent = 0;
    std::atomic<int64_t> nanoseconds = 0;
  };

  void CountCall(Collective op) { counters_[static_cast<size_t>(op)].num_calls += 1; }
  // The exchange of send_ and receive_.
  absl::Status Exchange(Collective op);
  // The exchange of a reduce-scatter, and the sums.
  absl::Status SumShares(Collective op, absl::Span<const float> values, absl::Span<float> mine);

  const std::unique_ptr<RankLink> link_;
  const base::Clock& clock_;
  std::vector<ConstBytes> send_;       // by rank
  std::vector<MutableBytes> receive_;  // by rank
  std::vector<float> partials_;        // [ranks, values of a share]; grows to the largest sum asked for
  std::array<Counters, kCollectiveNames.size()> counters_;
};

}  // namespace tandem::model
