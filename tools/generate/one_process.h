// Prefill and decode in one process and one thread: both engines, joined by queues and a loopback lane, no network.
//
// What it generates is what a cluster must generate: the same engines and model, whatever lies between them.
// Tested by one_process_test.cc and used by end-to-end tests as the oracle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "decode_worker/engine.h"
#include "decode_worker/outbox.h"
#include "kvcache/kv_pool.h"
#include "kvtransfer/lane_set.h"
#include "kvtransfer/readable_epochs.h"
#include "model/model_executor.h"
#include "prefill_worker/engine.h"
#include "prefill_worker/outbox.h"
#include "proto/common.pb.h"

namespace tandem::generate {

inline constexpr int kDecodeRowsMax = 128;  // rows of one decode step

struct OneProcessOptions {
  int chunked_prefill_size = 512;
  int64_t context_length_max = 0;
};

struct GenerateInput {
  std::vector<uint32_t> prompt_tokens;
  std::vector<uint32_t> generated_tokens;  // known already: replayed, not drawn
  proto::Sampling sampling;
  proto::Stopping stopping;
};

struct GenerateResult {
  std::vector<uint32_t> tokens;  // those known before included
  proto::FinishReason finish_reason = proto::FINISH_REASON_UNSPECIFIED;
};

class OneProcess final : private prefill::Outbox, private decode::Outbox {
 public:
  // One model and one pool for each side, of equal layout. All outlive this.
  OneProcess(const OneProcessOptions& options, const base::Clock& clock, model::ModelExecutor& prefill_model,
             const kvcache::KvPool& prefill_pool, model::ModelExecutor& decode_model,
             const kvcache::KvPool& decode_pool);
  ~OneProcess() override;

  // All inputs at once, in one batch; results in their order. The first error of any ends everything.
  absl::StatusOr<std::vector<GenerateResult>> Generate(const std::vector<GenerateInput>& inputs);

 private:
  struct FetchEnd {
    uint64_t fetch_id = 0;
    absl::Status status;
  };

  // ---- Outboxes ----
  void ToTarget(kvtransfer::SendToTarget message) override { to_decode_.push_back(std::move(message.message)); }
  void ToRouter(uint64_t stream_id, proto::WorkerMessage message) override;
  void ToPeer(kvtransfer::SendMessage message) override { to_prefill_.push_back(std::move(message.message)); }
  void Fetch(kvtransfer::StartFetch fetch) override { lanes_.Run(std::move(fetch)); }
  void Cancel(kvtransfer::CancelFetches cancel) override { lanes_.Cancel(cancel); }
  void Reset(kvtransfer::ResetPeer reset) override { failure_ = reset.status; }
  void LinkWith(const std::vector<std::string>& bootstrap_addresses) override {}

  // Carries what lies in the queues; true where there was something.
  bool Deliver(absl::Duration wait);

  const base::Clock& clock_;
  kvtransfer::ReadableEpochs readable_;
  base::Mailbox<FetchEnd> fetch_ends_;
  kvtransfer::LaneSet lanes_;
  prefill::Engine prefill_;
  decode::Engine decode_;
  std::deque<proto::TransferMessage> to_decode_;
  std::deque<proto::TransferMessage> to_prefill_;
  std::vector<GenerateResult> results_;
  size_t num_ended_ = 0;
  absl::Status failure_;
};

}  // namespace tandem::generate
