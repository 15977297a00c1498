// A prefill worker reduced to its contract, for tests of decode alone: the real transfer source and a hash model that
// computes each prompt as a whole. Tests decide when it computes, what it refuses and which bytes go bad.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "kvcache/kv_pool.h"
#include "kvcache/page_allocator.h"
#include "kvtransfer/page_memory.h"
#include "kvtransfer/transfer_source.h"
#include "model/sampler.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/pool_memory.h"
#include "worker_shell/answer_constraints.h"

namespace tandem::sim {

class WholePromptPrefill final {
 public:
  WholePromptPrefill(const kvcache::KvLayout& layout, const HashModelOptions& model, uint64_t incarnation,
                     const base::Clock& clock);

  void LinkUp(uint64_t target_incarnation) { transfer_.LinkUp(target_incarnation, "decode"); }
  void LinkDown(uint64_t target_incarnation) { transfer_.LinkDown(target_incarnation); }
  void Receive(uint64_t target_incarnation, const proto::TransferMessage& message) {
    transfer_.Receive(target_incarnation, message);
  }
  // Computes what it may and returns the messages for decode.
  std::vector<kvtransfer::SendToTarget> Run();

  // While true, first tokens are sampled and sent but pages are not announced.
  void HoldAnnouncements(bool hold) { holds_announcements_ = hold; }
  void RefuseNext(absl::Status status) { refusals_.push_back(std::move(status)); }
  // Samples for no more than the first `count` choices: the others' first tokens never come.
  void SampleOnly(int count) { num_choices_to_sample_ = count; }
  // Flips a bit of the next prompts' first pages, behind the back of their sums.
  void CorruptNextPrompts(int count) { num_to_corrupt_ = count; }

  kvcache::KvPool pool() { return memory_.pool(); }
  const kvtransfer::TransferSource& transfer() const { return transfer_; }
  int64_t num_pages_used() const { return pages_.num_used(); }
  // Prompts computed, by their generated tokens: how often it was asked, and with what.
  const std::vector<std::vector<uint32_t>>& generated_of_starts() const { return generated_of_starts_; }

 private:
  struct Request {
    std::vector<int32_t> pages;
    int num_prompt_pages = 0;
    bool is_announced = false;
  };
  void Compute(const kvtransfer::AdmitRequest& admit);
  void RunMtp(const kvtransfer::EpochId& id, const Request& request, absl::Span<const int32_t> prompt,
              absl::Span<const kernels::Bf16> hidden);
  void Announce(const kvtransfer::EpochId& id, Request& request);

  PoolMemory memory_;
  HashModel executor_;
  worker_shell::AnswerConstraints constraints_;
  model::Sampler sampler_;
  kvcache::PageAllocator pages_;
  kvtransfer::HostPageMemory page_memory_;
  kvtransfer::TransferSource transfer_;
  std::map<kvtransfer::EpochId, Request> requests_;
  std::deque<absl::Status> refusals_;
  std::vector<std::vector<uint32_t>> generated_of_starts_;
  bool holds_announcements_ = false;
  int num_to_corrupt_ = 0;
  int num_choices_to_sample_ = std::numeric_limits<int>::max();
};

}  // namespace tandem::sim
