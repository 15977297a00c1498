#include "tools/generate/one_process.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kvtransfer/loopback_lane.h"

namespace tandem::generate {
namespace {

constexpr uint64_t kPrefillIncarnation = 1, kDecodeIncarnation = 2, kRouterIncarnation = 3;
constexpr uint64_t kStreamId = 1, kSession = 1;
constexpr char kPeer[] = "one-process:1";
constexpr int kSequencesMax = 64;
static_assert(kSequencesMax <= kDecodeRowsMax);

}  // namespace

OneProcess::OneProcess(const OneProcessOptions& options, const base::Clock& clock, model::ModelExecutor& prefill_model,
                       const kvcache::KvPool& prefill_pool, model::ModelExecutor& decode_model,
                       const kvcache::KvPool& decode_pool)
    : clock_(clock),
      fetch_ends_(0),
      lanes_([this](uint64_t fetch_id, absl::Status status) {
        fetch_ends_.PushReserved({.fetch_id = fetch_id, .status = std::move(status)});
      }),
      prefill_({.chunks = {.num_tokens_max = options.chunked_prefill_size, .num_chunks_max = kSequencesMax},
                .num_waiting_max = std::numeric_limits<int>::max(),
                .transfer = {.incarnation = kPrefillIncarnation, .layout = prefill_pool.layout()}},
               clock, prefill_model, prefill_pool, &readable_, *this),
      decode_({.batch = {.num_sequences_max = kSequencesMax, .num_rows_max = kDecodeRowsMax},
               .num_waiting_max = std::numeric_limits<int>::max(),
               .context_length_max = options.context_length_max,
               .transfer = {.incarnation = kDecodeIncarnation, .layout = decode_pool.layout(), .lane_policy = {}}},
              clock, decode_model, decode_pool, *this) {
  kvtransfer::RankLanes lanes(1);
  lanes[0].push_back(kvtransfer::OpenLoopbackLane(
      prefill_pool.bytes(), decode_pool.bytes(), kDecodeIncarnation,
      [this](const kvtransfer::FetchOrigin& origin) { return readable_.IsReadable(origin); }));
  lanes_.Add(kPeer, std::move(lanes));
  prefill_.TargetUp(kDecodeIncarnation, "one-process");
  proto::Identity router;
  router.set_instance("one-process");
  router.set_incarnation(kRouterIncarnation);
  decode_.RouterAttached(kStreamId, router);
  proto::RouterMessage nothing_yet;
  nothing_yet.mutable_reattach()->set_is_last(true);
  decode_.RouterMessage(kStreamId, nothing_yet);
  decode_.PeerUp(kPeer, {.incarnation = kPrefillIncarnation,
                         .session = kSession,
                         .num_pages = prefill_pool.layout().num_pages,
                         .lanes = {{.kind = "loopback"}}});
}

OneProcess::~OneProcess() = default;

void OneProcess::ToRouter(uint64_t stream_id, proto::WorkerMessage message) {
  for (const proto::SequenceTokens& tokens : message.tokens().sequences()) {
    GenerateResult& result = results_[tokens.key().request_id()];
    TANDEM_CHECK(tokens.first_position() == result.tokens.size(), "tokens came out of order");
    result.tokens.insert(result.tokens.end(), tokens.tokens().begin(), tokens.tokens().end());
    result.finish_reason = tokens.finish_reason();
  }
  if (!message.has_ended()) return;
  ++num_ended_;
  if (message.ended().has_error() && failure_.ok()) {
    failure_ =
        absl::Status(static_cast<absl::StatusCode>(message.ended().error().code()), message.ended().error().message());
  }
}

bool OneProcess::Deliver(absl::Duration wait) {
  bool moved = false;
  for (auto messages = std::exchange(to_prefill_, {}); const proto::TransferMessage& message : messages) {
    prefill_.TargetMessage(kDecodeIncarnation, message);
    moved = true;
  }
  for (auto messages = std::exchange(to_decode_, {}); const proto::TransferMessage& message : messages) {
    decode_.PeerMessage(kPeer, message);
    moved = true;
  }
  for (const FetchEnd& end : fetch_ends_.TakeAll(moved ? absl::ZeroDuration() : wait)) {
    decode_.FetchDone(end.fetch_id, end.status);
    moved = true;
  }
  return moved;
}

absl::StatusOr<std::vector<GenerateResult>> OneProcess::Generate(const std::vector<GenerateInput>& inputs) {
  results_.assign(inputs.size(), {});
  num_ended_ = 0;
  failure_ = absl::OkStatus();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const GenerateInput& input = inputs[i];
    results_[i].tokens = input.generated_tokens;
    decode::GenerateRequest request;
    request.key = {.router_incarnation = kRouterIncarnation, .request_id = i, .attempt = 1};
    request.prompt_tokens = input.prompt_tokens;
    request.head.set_prefill_address(kPeer);
    *request.head.mutable_sampling() = input.sampling;
    *request.head.mutable_stopping() = input.stopping;
    if (!input.generated_tokens.empty()) {
      request.head.add_resumed()->set_num_tokens(static_cast<uint32_t>(input.generated_tokens.size()));
      request.generated_tokens = input.generated_tokens;
    }
    decode_.Generate(std::move(request));
  }
  decode_.Step();  // inputs are dealt with in the step after them
  constexpr absl::Duration kSleepMax = absl::Milliseconds(10);
  while (num_ended_ < inputs.size() || !prefill_.IsAtRest()) {
    const absl::Duration wake = std::min(prefill_.NextWake(), decode_.NextWake());
    const bool moved = Deliver(std::clamp(wake - clock_.Now(), absl::ZeroDuration(), kSleepMax));
    if (moved || wake <= clock_.Now()) {
      prefill_.Step();
      decode_.Step();
    }
  }
  if (!failure_.ok()) return failure_;
  return std::exchange(results_, {});
}

}  // namespace tandem::generate
