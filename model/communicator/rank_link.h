// How ranks reach each other: one operation, in which every rank gives every rank bytes, and the end of a group.
//
// Two implementations: in_process_group.h (threads of one process) and tcp_group.h (processes, on several hosts).
// communicator.h makes collectives of it. Every rank makes the same calls in the same order; a call returns when this
// rank has what it was sent and its own bytes may be reused.
//
// A group ends as a whole: once a rank has failed, every call of every rank, those under way included, returns the
// first failure's status, whose message names that rank and its cause. Nothing brings a group back.
// Tested by communicator_test.cc, over both.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace tandem::model {

using ConstBytes = absl::Span<const std::byte>;
using MutableBytes = absl::Span<std::byte>;

class RankLink {
 public:
  virtual ~RankLink() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // send[q] goes to rank q, receive[q] comes from rank q; both have size() entries, which live until the call returns.
  // Nothing that is sent overlaps anything that is received, but send[rank()] and receive[rank()], which may be the
  // same bytes. Where a rank sends another number of bytes than is received, the group ends with INTERNAL.
  virtual absl::Status Exchange(absl::Span<const ConstBytes> send, absl::Span<const MutableBytes> receive) = 0;

  // Ends the group because this rank cannot go on. cause: not OK. Where the group has ended already, nothing changes.
  // Not during this rank's own Exchange.
  virtual void Fail(const absl::Status& cause) = 0;
  // OK while the group lives.
  virtual absl::Status status() const = 0;
};

// What every rank of a group is told once `rank` has failed.
inline absl::Status RankFailure(int rank, const absl::Status& cause) {
  return absl::Status(cause.code(), absl::StrCat("rank ", rank, " failed: ", cause.message()));
}

}  // namespace tandem::model
