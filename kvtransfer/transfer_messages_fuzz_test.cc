// Input: what a peer gone mad says, a line each, to a decode and a prefill worker with a transfer under way.
//   < MESSAGE   to decode, in protobuf's text form; identities, request and epoch are the transfer's where it has none
//   > MESSAGE   to prefill
//   f           the oldest fetch completes
//   d           what the two machines have said is delivered
//   t           a second passes
// Whatever comes: decode fetches only into pages that it reserved, and reads only what the peer's pool has; after the
// peer is gone and time has passed, neither side holds anything.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "kvtransfer/transfer_rig.h"

namespace {

using namespace tandem::kvtransfer;

constexpr int kPromptTokens = 150;  // three pages, the last one partial
constexpr int kMessagesMax = 64;

void Require(bool condition) {
  if (!condition) std::abort();
}

// Errors are no news here.
class Silence final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

bool Parse(absl::string_view text, tandem::proto::TransferMessage& message) {
  Silence silence;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silence);
  parser.SetRecursionLimit(20);
  return parser.ParseFromString(std::string(text), &message);
}

void Address(tandem::proto::TransferMessage& message, uint64_t sender, uint64_t receiver,
             const tandem::proto::TransferMessage& start) {
  if (message.sender_incarnation() == 0) message.set_sender_incarnation(sender);
  if (message.receiver_incarnation() == 0) message.set_receiver_incarnation(receiver);
  if (message.epoch() == 0) message.set_epoch(start.epoch());
  if (!message.has_key()) *message.mutable_key() = start.key();
}

void CheckFetches(const TransferRig& rig) {
  const size_t pool = rig.target_pool.pool().bytes().size();
  for (const StartFetch& fetch : rig.fetches) {
    Require(fetch.source_rank >= 0 && fetch.source_rank < static_cast<int>(rig.source_pools.size()));
    const size_t source_pool = rig.source_pools[fetch.source_rank].pool().bytes().size();
    for (const auto& run : fetch.runs) {
      Require(run.num_bytes > 0 && run.num_bytes <= pool);
      Require(run.target_offset <= pool - run.num_bytes);
      Require(run.num_bytes <= source_pool && run.source_offset <= source_pool - run.num_bytes);
    }
  }
}

// Pages 0, 2, 4 are the transfer's; every byte of the others is as it was.
void CheckOthersUntouched(const TransferRig& rig, const std::string& before) {
  const auto& pool = rig.target_pool.pool();
  for (int layer = 0; layer < rig.options.num_layers; ++layer) {
    for (const int page : {1, 3, 5}) {
      for (const auto kind : {tandem::kvcache::RecordKind::kLatent, tandem::kvcache::RecordKind::kIndex}) {
        const auto bytes = pool.Page(kind, layer, page);
        Require(std::memcmp(bytes.data(), before.data() + (bytes.data() - pool.bytes().data()), bytes.size()) == 0);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  TransferRig rig({.num_target_pages = 6});
  const auto pool = rig.target_pool.pool().bytes();
  const std::string before(reinterpret_cast<const char*>(pool.data()), pool.size());
  const uint64_t epoch = rig.Begin(rig.Request(kPromptTokens));
  const tandem::proto::TransferMessage start = rig.to_source.front();
  rig.Deliver();
  rig.Accept(epoch);
  rig.Compute(epoch, 0, rig.options.num_layers, 0, 2);
  int num_messages = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(bytes), size), '\n')) {
    if (line.empty() || ++num_messages > kMessagesMax) continue;
    tandem::proto::TransferMessage message;
    if (line[0] == '<' && Parse(line.substr(1), message)) {
      Address(message, kPrefill, kDecode, start);
      rig.target.Receive(kPeer, message);
      rig.Drain();
    } else if (line[0] == '>' && Parse(line.substr(1), message)) {
      Address(message, kDecode, kPrefill, start);
      rig.source.Receive(kDecode, message);
      rig.Drain();
    } else if (line[0] == 'f' && !rig.fetches.empty()) {
      rig.CompleteFetch();
    } else if (line[0] == 'd') {
      rig.Deliver();
    } else if (line[0] == 't') {
      rig.Advance(absl::Seconds(1));
    }
    CheckFetches(rig);
  }
  rig.CompleteFetches();
  CheckOthersUntouched(rig, before);
  rig.target.PeerDown(kPeer, absl::UnavailableError("the input is over"));
  rig.source.LinkDown(kDecode);
  rig.Drain();
  rig.CompleteFetches();
  rig.Advance(absl::Minutes(1));
  rig.to_source.clear();  // nobody is there
  rig.to_target.clear();
  Require(rig.IsAtRest());
  return 0;
}
