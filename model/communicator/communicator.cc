#include "model/communicator/communicator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem::model {
namespace {

ConstBytes BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}
MutableBytes BytesOf(absl::Span<float> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
}

// Of ranks [begin, begin + count): a rank's value lies stride behind that of the one before.
float SumRanks(const float* value, int64_t stride, int count) {
  if (count == 1) return *value;
  int half = 1;
  while (half * 2 < count) half *= 2;
  return SumRanks(value, stride, half) + SumRanks(value + half * stride, stride, count - half);
}

}  // namespace

ValueShare ShareOf(int64_t num_values, int rank, int size) {
  const int64_t each = num_values / size, left = num_values % size;
  return {.begin = rank * each + std::min<int64_t>(rank, left), .count = each + (rank < left ? 1 : 0)};
}

Communicator::Communicator(std::unique_ptr<RankLink> link, const base::Clock& clock)
    : link_(std::move(link)), clock_(clock), send_(link_->size()), receive_(link_->size()) {}

absl::Status Communicator::Exchange(Collective op) {
  Counters& counters = counters_[static_cast<size_t>(op)];
  int64_t bytes_sent = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) bytes_sent += static_cast<int64_t>(send_[peer].size());
  }
  const absl::Duration begin = clock_.Now();
  absl::Status status = link_->Exchange(send_, receive_);
  counters.nanoseconds += absl::ToInt64Nanoseconds(clock_.Now() - begin);
  counters.bytes_sent += bytes_sent;
  return status;
}

absl::Status Communicator::Barrier() {
  CountCall(Collective::kBarrier);
  std::fill(send_.begin(), send_.end(), ConstBytes());
  std::fill(receive_.begin(), receive_.end(), MutableBytes());
  return Exchange(Collective::kBarrier);
}

absl::Status Communicator::Broadcast(int root, MutableBytes bytes) {
  TANDEM_CHECK(0 <= root && root < size(), "a broadcast's root is a rank");
  CountCall(Collective::kBroadcast);
  std::fill(send_.begin(), send_.end(), rank() == root ? ConstBytes(bytes) : ConstBytes());
  std::fill(receive_.begin(), receive_.end(), MutableBytes());
  receive_[root] = bytes;
  return Exchange(Collective::kBroadcast);
}

absl::Status Communicator::AllGather(ConstBytes mine, absl::Span<const MutableBytes> pieces) {
  CountCall(Collective::kAllGather);
  std::fill(send_.begin(), send_.end(), mine);
  receive_.assign(pieces.begin(), pieces.end());
  return Exchange(Collective::kAllGather);
}

absl::Status Communicator::AllToAll(absl::Span<const ConstBytes> send, absl::Span<const MutableBytes> receive) {
  CountCall(Collective::kAllToAll);
  send_.assign(send.begin(), send.end());
  receive_.assign(receive.begin(), receive.end());
  return Exchange(Collective::kAllToAll);
}

absl::Status Communicator::SumShares(Collective op, absl::Span<const float> values, absl::Span<float> mine) {
  const auto num_values = static_cast<int64_t>(values.size());
  const auto count = static_cast<int64_t>(mine.size());
  if (static_cast<int64_t>(partials_.size()) < size() * count) partials_.resize(size() * count);
  for (int peer = 0; peer < size(); ++peer) {
    const ValueShare share = ShareOf(num_values, peer, size());
    send_[peer] = BytesOf(values.subspan(share.begin, share.count));
    receive_[peer] = BytesOf(absl::MakeSpan(partials_).subspan(peer * count, count));
  }
  RETURN_IF_ERROR(Exchange(op));
  for (int64_t i = 0; i < count; ++i) mine[i] = SumRanks(&partials_[i], count, size());
  return absl::OkStatus();
}

absl::Status Communicator::ReduceScatter(absl::Span<const float> values, absl::Span<float> mine) {
  TANDEM_CHECK(static_cast<int64_t>(mine.size()) == ShareOf(static_cast<int64_t>(values.size()), rank(), size()).count,
               "a reduce-scatter gives a rank its share");
  CountCall(Collective::kReduceScatter);
  return SumShares(Collective::kReduceScatter, values, mine);
}

// Sums of a share each, then everybody gets everybody's.
absl::Status Communicator::AllReduce(absl::Span<float> values) {
  CountCall(Collective::kAllReduce);
  const auto num_values = static_cast<int64_t>(values.size());
  const auto share_of = [&](int peer) {
    const ValueShare share = ShareOf(num_values, peer, size());
    return values.subspan(share.begin, share.count);
  };
  const absl::Span<float> mine = share_of(rank());
  RETURN_IF_ERROR(SumShares(Collective::kAllReduce, values, mine));
  for (int peer = 0; peer < size(); ++peer) {
    send_[peer] = BytesOf(absl::Span<const float>(mine));
    receive_[peer] = BytesOf(share_of(peer));
  }
  return Exchange(Collective::kAllReduce);
}

CollectiveCounters Communicator::counters(Collective op) const {
  const Counters& counters = counters_[static_cast<size_t>(op)];
  return {.num_calls = counters.num_calls,
          .bytes_sent = counters.bytes_sent,
          .time = absl::Nanoseconds(counters.nanoseconds.load())};
}

}  // namespace tandem::model
