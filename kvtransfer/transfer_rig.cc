#include "kvtransfer/transfer_rig.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvtransfer {
namespace {

constexpr std::byte kStain{0xee};

std::vector<const PageMemory*> Pointers(const std::vector<std::unique_ptr<HostPageMemory>>& memories) {
  std::vector<const PageMemory*> pointers;
  for (const auto& memory : memories) pointers.push_back(memory.get());
  return pointers;
}

}  // namespace

RigPool::RigPool(const kvcache::KvLayout& layout)
    : memory_(static_cast<std::byte*>(
                  std::aligned_alloc(kvcache::kPoolAlignment, (layout.pool_bytes() + kvcache::kPoolAlignment - 1) /
                                                                  kvcache::kPoolAlignment * kvcache::kPoolAlignment)),
              [](std::byte* bytes) { std::free(bytes); }) {
  std::memset(memory_.get(), static_cast<int>(kStain), layout.pool_bytes());
  absl::StatusOr<kvcache::KvPool> pool =
      kvcache::KvPool::Over({memory_.get(), static_cast<size_t>(layout.pool_bytes())}, layout);
  TANDEM_CHECK(pool.ok(), "a pool over its own memory");
  pool_ = std::make_unique<kvcache::KvPool>(*pool);
}

TransferRig::TransferRig(const RigOptions& rig_options)
    : options(rig_options),
      target_pool({.num_layers = options.num_layers,
                   .num_pages = options.num_target_pages,
                   .kv_cache_dtype = options.kv_cache_dtype}),
      target_memory(target_pool.pool()),
      target({.incarnation = kDecode,
              .layout = target_pool.pool().layout(),
              .prompt_hidden_bytes = options.prompt_hidden_bytes,
              .lane_policy = {.window_bytes_min = options.window_bytes, .window_bytes_max = options.window_bytes}},
             &target_memory, &clock),
      source([&] {
        for (int rank = 0; rank < options.num_source_ranks; ++rank) {
          source_pools.emplace_back(kvcache::KvLayout{.num_layers = options.num_layers,
                                                      .num_pages = options.num_source_pages,
                                                      .kv_cache_dtype = options.kv_cache_dtype});
          source_memories.push_back(std::make_unique<HostPageMemory>(source_pools.back().pool()));
        }
        return TransferSource(
            {.incarnation = kPrefill, .layout = source_pools[0].pool().layout(), .lease = options.lease},
            Pointers(source_memories), &clock, &readable);
      }()) {
  source.LinkUp(kDecode, "decode-0");
  SourcePeer peer{.incarnation = kPrefill,
                  .session = 1,
                  .num_pages = options.num_source_pages,
                  .num_source_ranks = options.num_source_ranks,
                  .lanes = {}};
  for (int lane = 0; lane < options.num_lanes; ++lane) peer.lanes.push_back({.kind = absl::StrCat("lane", lane)});
  target.PeerUp(kPeer, peer);
  Drain();
}

TransferRequest TransferRig::Request(int num_tokens, int first_page) const {
  TransferRequest request;
  request.key.set_router_incarnation(1);
  request.key.set_request_id(10 + first_page);
  for (int i = 0; i < num_tokens; ++i) request.prompt_tokens.push_back(1000 + i);
  for (int page = 0; page < kvcache::PagesForTokens(num_tokens); ++page) {
    request.target_pages.push_back(first_page + 2 * page);
  }
  return request;
}

uint64_t TransferRig::Begin(TransferRequest request) {
  const absl::StatusOr<uint64_t> epoch = target.Begin(kPeer, request);
  TANDEM_CHECK(epoch.ok(), epoch.status().ToString());
  requests_[*epoch] = std::move(request);
  Drain();
  return *epoch;
}

void TransferRig::Accept(uint64_t epoch, int first_page) {
  std::vector<int32_t> pages;
  for (size_t i = 0; i < requests_.at(epoch).target_pages.size(); ++i)
    pages.push_back(first_page + static_cast<int>(i));
  first_source_page_[epoch] = first_page;
  source.Accept(Id(epoch), std::vector<std::vector<int32_t>>(options.num_source_ranks, pages));
  Drain();
}

std::byte TransferRig::ByteOf(uint64_t epoch, int rank, int layer, int page, int kind, size_t index) const {
  return static_cast<std::byte>(
      (epoch * 89 + rank * 53 + layer * 31 + page * 17 + kind * 7 + index * (index % 11 + 1)));
}

void TransferRig::Compute(uint64_t epoch, int layer_begin, int layer_end, int page_begin, int page_end, int rank) {
  for (int layer = layer_begin; layer < layer_end; ++layer) {
    for (int page = page_begin; page < page_end; ++page) {
      for (int kind = 0; kind < 2; ++kind) {
        const std::span<std::byte> bytes = source_pools[rank].pool().Page(static_cast<kvcache::RecordKind>(kind), layer,
                                                                          first_source_page_.at(epoch) + page);
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteOf(epoch, rank, layer, page, kind, i);
      }
    }
  }
  source.Complete(Id(epoch), rank, layer_begin, layer_end, page_begin, page_end);
  Drain();
}

void TransferRig::Sample(uint64_t epoch, int choice, uint32_t token) {
  proto::FirstToken first_token;
  first_token.set_choice(static_cast<uint32_t>(choice));
  first_token.set_token(token);
  first_token.set_logprob(-1.5f);
  first_token.mutable_top_logprobs()->add_tokens(token);
  first_token.mutable_top_logprobs()->add_logprobs(-1.5f);
  source.FirstToken(Id(epoch), std::move(first_token));
  Drain();
}

void TransferRig::Deliver() {
  while (!to_source.empty() || !to_target.empty()) {
    if (!to_source.empty()) {
      source.Receive(kDecode, to_source.front());
      to_source.pop_front();
    } else {
      target.Receive(kPeer, to_target.front());
      to_target.pop_front();
    }
    Drain();
  }
}

void TransferRig::CompleteFetch(const absl::Status& status, bool corrupts) {
  TANDEM_CHECK(!fetches.empty(), "a fetch to complete");
  const StartFetch fetch = std::move(fetches.front());
  fetches.pop_front();
  if (status.ok()) {
    for (const ByteRun& run : fetch.runs) {
      std::byte* const to = target_pool.pool().bytes().data() + run.target_offset;
      std::memcpy(to, source_pools[fetch.source_rank].pool().bytes().data() + run.source_offset, run.num_bytes);
      if (corrupts) to[run.num_bytes / 2] ^= std::byte{1};
    }
  }
  target.FetchDone(fetch.fetch_id, status);
  Drain();
}

void TransferRig::CompleteFetches() {
  while (!fetches.empty()) CompleteFetch();
}

void TransferRig::Advance(absl::Duration by) {
  clock.Advance(by);
  target.Tick();
  source.Tick();
  Drain();
}

void TransferRig::Drain() {
  for (TargetOutput& output : target.TakeOutputs()) {
    if (auto* send = std::get_if<SendMessage>(&output)) {
      to_source.push_back(std::move(send->message));
    } else if (auto* fetch = std::get_if<StartFetch>(&output)) {
      fetches.push_back(std::move(*fetch));
    } else if (auto* cancel = std::get_if<CancelFetches>(&output)) {
      lines.push_back(absl::StrCat("cancel fetches of ", cancel->epoch));
    } else if (auto* token = std::get_if<FirstTokenArrived>(&output)) {
      lines.push_back(absl::StrCat("token ", token->first_token.token(), " for choice ", token->first_token.choice(),
                                   " of ", token->epoch));
      first_tokens.push_back(token->first_token);
    } else if (auto* ready = std::get_if<TransferReady>(&output)) {
      lines.push_back(absl::StrCat("ready ", ready->epoch));
      if (!ready->prompt_hidden.empty()) absl::StrAppend(&lines.back(), " with hidden ", ready->prompt_hidden);
      last_times = ready->times;
    } else if (auto* failed = std::get_if<TransferFailed>(&output)) {
      lines.push_back(absl::StrCat("failed ", failed->epoch, " ", failed->status.ToString()));
    } else if (auto* released = std::get_if<PagesReleased>(&output)) {
      lines.push_back(absl::StrCat("released ", released->epoch));
    } else if (auto* closed = std::get_if<EpochClosed>(&output)) {
      lines.push_back(absl::StrCat("closed ", closed->epoch));
    } else if (auto* wrong = std::get_if<WrongSum>(&output)) {
      lines.push_back(absl::StrCat("wrong sum: ", wrong->detail));
    } else if (auto* quarantined = std::get_if<LaneQuarantined>(&output)) {
      lines.push_back(absl::StrCat("quarantined lane ", quarantined->lane));
    } else if (auto* reset = std::get_if<ResetPeer>(&output)) {
      lines.push_back(absl::StrCat("reset session ", reset->session));
    }
  }
  for (SourceOutput& output : source.TakeOutputs()) {
    if (auto* send = std::get_if<SendToTarget>(&output)) {
      to_target.push_back(std::move(send->message));
    } else if (auto* admit = std::get_if<AdmitRequest>(&output)) {
      lines.push_back(absl::StrCat("admit ", admit->id.epoch));
      admitted[admit->id.epoch] = std::move(admit->start);
    } else if (auto* end = std::get_if<EndRequest>(&output)) {
      lines.push_back(absl::StrCat("end ", end->id.epoch, " ", end->status.ToString()));
    }
  }
}

bool TransferRig::HoldsPrompt(uint64_t epoch, int rank_of_layer0, int rank_of_layer1) const {
  const TransferRequest& request = requests_.at(epoch);
  const auto num_tokens = static_cast<int64_t>(request.prompt_tokens.size());
  for (int layer = 0; layer < options.num_layers; ++layer) {
    for (size_t page = request.num_prefix_tokens_held / kvcache::kPageTokens; page < request.target_pages.size();
         ++page) {
      for (int kind = 0; kind < 2; ++kind) {
        const auto record = static_cast<kvcache::RecordKind>(kind);
        const std::span<std::byte> bytes = target_pool.pool().Page(record, layer, request.target_pages[page]);
        for (size_t i = 0; i < bytes.size(); ++i) {
          // Latent records lie one behind the other; of an index page the keys come first, then the scales.
          const size_t token =
              record == kvcache::RecordKind::kLatent ? i / kvcache::LatentRecordBytes(options.kv_cache_dtype)
              : i < static_cast<size_t>(kvcache::kIndexScaleOffset) ? i / kvcache::kIndexDim
                                                                    : (i - kvcache::kIndexScaleOffset) / 4;
          const bool is_prompt = static_cast<int64_t>(page * kvcache::kPageTokens + token) < num_tokens;
          const int rank = layer == 0 ? rank_of_layer0 : rank_of_layer1;
          const std::byte expected =
              is_prompt ? ByteOf(epoch, rank, layer, static_cast<int>(page), kind, i) : std::byte{0};
          if (bytes[i] != expected) return false;
        }
      }
    }
  }
  return true;
}

bool TransferRig::IsAtRest() const {
  return target.ledger() == TargetLedger{} && source.ledger() == SourceLedger{} && readable.size() == 0 &&
         to_source.empty() && to_target.empty() && fetches.empty();
}

std::string NameOf(const proto::TransferMessage& message) {
  const auto* field = proto::TransferMessage::descriptor()->FindFieldByNumber(message.message_case());
  return field == nullptr ? "nothing" : field->name();
}

}  // namespace tandem::kvtransfer
