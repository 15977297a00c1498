// What one router has not been told yet: a mailbox for each sequence, not a queue of messages.
//
// While the stream is busy, new tokens of a sequence join those that wait already, so what waits is bounded by the
// credit of the sequences (proto/credit.h) however many steps pass, and a slow router costs messages, not memory. An
// Ended comes after all tokens of its request; each request has one, which is its reserved slot. Of peer statuses,
// loads and heartbeats only the newest counts: one slot for each peer, one for each of the others. Of prefix updates
// more than kPrefixBytesMax are dropped, all that wait: the reader finds the gap in their numbers and asks for a
// snapshot. Messages are cut at kMessageBytesMax. Knows no stream and no thread. Tested by live_mailbox_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "proto/worker.pb.h"

namespace tandem::worker_shell {

class LiveMailbox final {
 public:
  static constexpr size_t kMessageBytesMax = size_t{256} << 10;
  static constexpr size_t kPrefixBytesMax = size_t{16} << 20;

  void Push(proto::WorkerMessage message);
  // The next message to be written; there is one while not empty().
  proto::WorkerMessage Take();
  void Clear();

  bool empty() const;
  // Of tokens and ends, as on the wire; the rest has a slot each.
  size_t bytes() const { return bytes_; }

 private:
  using SequenceKey = std::tuple<uint64_t, uint64_t, uint32_t, uint32_t>;  // request key and choice
  using Item = std::variant<proto::SequenceTokens, proto::WorkerMessage>;  // the latter: Ended
  static SequenceKey KeyOf(const proto::SequenceTokens& tokens);

  void PushTokens(proto::SequenceTokens tokens);
  proto::WorkerMessage TakeItems();

  std::deque<proto::WorkerMessage> control_;                   // hello, draining: once each
  std::map<std::string, proto::WorkerMessage> peer_statuses_;  // by bootstrap address
  std::optional<proto::WorkerMessage> heartbeat_, load_;
  std::list<Item> items_;                                               // in order of their first news
  absl::flat_hash_map<SequenceKey, std::list<Item>::iterator> newest_;  // waiting tokens that more may join
  size_t bytes_ = 0;
  std::deque<proto::WorkerMessage> prefix_updates_;
  size_t prefix_bytes_ = 0;
};

}  // namespace tandem::worker_shell
