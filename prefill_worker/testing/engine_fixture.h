// A prefill engine and decode's real transfer machine, joined by queues that the test drains, and what decode must get:
// the KV bytes and the first token of a prompt computed alone and whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"
#include "kvtransfer/transfer_target.h"
#include "prefill_worker/engine.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pool_memory.h"

namespace tandem::prefill {

inline constexpr uint64_t kDecode = 0xD, kPrefill = 0xF;
inline constexpr char kPeer[] = "prefill:8998";
inline constexpr sim::HashModelOptions kModel{.vocab_size = 97, .weights_seed = 42};
inline constexpr int kNumLayers = 3;
inline constexpr std::byte kFormerTenant{0xA5};

// Tells the test what happens around it.
class SpiedModel final : public model::ModelExecutor {
 public:
  SpiedModel(const kvcache::KvPool& pool, const sim::HashModelOptions& options) : model_(pool, options) {}
  absl::Status Forward(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                       absl::Span<float> logits) override {
    rows_per_step.push_back(static_cast<int>(batch.tokens.size()));
    if (!next_error.ok()) return std::exchange(next_error, absl::OkStatus());
    return model_.Forward(
        batch,
        [&](int layer) {
          layer_done(layer);
          if (after_layer) after_layer(layer);
        },
        logits);
  }
  absl::Status ForwardWithHidden(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                 absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) override {
    rows_per_step.push_back(static_cast<int>(batch.tokens.size()));
    if (!next_error.ok()) return std::exchange(next_error, absl::OkStatus());
    return model_.ForwardWithHidden(
        batch,
        [&](int layer) {
          layer_done(layer);
          if (after_layer) after_layer(layer);
        },
        logits, hidden);
  }
  absl::Status RunMtp(const model::RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                      absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                      absl::Span<kernels::Bf16> out_hidden) override {
    if (!next_mtp_error.ok()) return std::exchange(next_mtp_error, absl::OkStatus());
    return model_.RunMtp(batch, hidden, layer_done, logits, out_hidden);
  }
  absl::Status PagesArrived(absl::Span<const int32_t> pages) override { return model_.PagesArrived(pages); }
  int vocab_size() const override { return model_.vocab_size(); }
  int num_layers() const override { return model_.num_layers(); }
  bool has_mtp() const override { return model_.has_mtp(); }
  int hidden_size() const override { return model_.hidden_size(); }

  std::vector<int> rows_per_step;
  absl::Status next_error, next_mtp_error;
  std::function<void(int layer)> after_layer;

 private:
  sim::HashModel model_;
};

struct Transfer {
  std::vector<uint32_t> prompt;
  proto::Sampling sampling;
  std::vector<int32_t> pages;  // of decode's pool
  proto::Stopping stopping;
  int num_choices = 1;
  std::string cache_salt;
  int num_prefix_tokens_held = 0;
  int priority = 0;
  std::vector<proto::FirstToken> first_tokens;  // by choice
  bool is_ready = false;
  std::string prompt_hidden;
  absl::Status failure;
};

// A prefill engine and decode's transfer machine, joined by queues that the test drains.
class EngineTest : public ::testing::Test, public Outbox {
 protected:
  void Start(int num_pages, int chunked_prefill_size, int num_waiting_max = 16) {
    const kvcache::KvLayout layout{.num_layers = kNumLayers, .num_pages = num_pages};
    transfers_.clear();
    next_decode_page_ = 0;
    memory_ = std::make_unique<sim::PoolMemory>(layout);
    // Bytes of former tenants everywhere.
    std::fill(memory_->bytes().begin(), memory_->bytes().end(), kFormerTenant);
    model_ = std::make_unique<SpiedModel>(memory_->pool(), model_options_);
    engine_ =
        std::make_unique<Engine>(EngineOptions{.chunks = {.num_tokens_max = chunked_prefill_size, .num_chunks_max = 8},
                                               .num_waiting_max = num_waiting_max,
                                               .schedule_policy = schedule_policy_,
                                               .transfer = {.incarnation = kPrefill, .layout = layout},
                                               .prefix_cache = prefix_cache_},
                                 clock_, *model_, memory_->pool(), nullptr, *this);
    decode_memory_ = std::make_unique<sim::PoolMemory>(kDecodeLayout);
    decode_pages_ = std::make_unique<kvtransfer::HostPageMemory>(decode_memory_->pool());
    decode_ = std::make_unique<kvtransfer::TransferTarget>(
        kvtransfer::TargetOptions{.incarnation = kDecode,
                                  .layout = kDecodeLayout,
                                  .prompt_hidden_bytes = model_options_.has_mtp ? kHiddenBytes : 0,
                                  .lane_policy = {}},
        decode_pages_.get(), &clock_);
    engine_->TargetUp(kDecode, "decode");
    decode_->PeerUp(kPeer,
                    {.incarnation = kPrefill, .session = 1, .num_pages = num_pages, .lanes = {{.kind = "loopback"}}});
  }

  void ToTarget(kvtransfer::SendToTarget message) override { to_decode_.push_back(std::move(message.message)); }

  uint64_t Begin(int num_tokens, std::vector<uint32_t> generated = {}) {
    return Begin(MakeTransfer(num_tokens), std::move(generated));
  }
  Transfer MakeTransfer(int num_tokens) const {
    Transfer transfer;
    std::mt19937 rng(static_cast<unsigned>(transfers_.size()) + 1);
    transfer.prompt.resize(num_tokens);
    for (uint32_t& token : transfer.prompt) token = rng() % kModel.vocab_size;
    transfer.sampling.set_temperature(0.7f);
    transfer.sampling.set_top_p(0.95f);
    transfer.sampling.set_seed(rng());
    transfer.stopping.set_max_new_tokens(10);
    return transfer;
  }
  uint64_t Begin(Transfer transfer, std::vector<uint32_t> generated = {}) {
    const auto num_tokens = static_cast<int64_t>(transfer.prompt.size());
    for (int i = 0; i < kvcache::PagesForTokens(num_tokens); ++i) transfer.pages.push_back(next_decode_page_++);
    kvtransfer::TransferRequest request{.key = {},
                                        .prompt_tokens = transfer.prompt,
                                        .generated_tokens = std::move(generated),
                                        .sampling = transfer.sampling,
                                        .stopping = transfer.stopping,
                                        .num_choices = transfer.num_choices,
                                        .num_prefix_tokens_held = transfer.num_prefix_tokens_held,
                                        .cache_salt = transfer.cache_salt,
                                        .priority = transfer.priority,
                                        .target_pages = transfer.pages};
    request.key.set_request_id(transfers_.size() + 1);
    const auto epoch = decode_->Begin(kPeer, std::move(request));
    EXPECT_TRUE(epoch.ok()) << epoch.status();
    transfers_[*epoch] = std::move(transfer);
    return *epoch;
  }

  bool DeliverOnce() {
    bool moved = false;
    for (auto messages = std::exchange(to_decode_, {}); proto::TransferMessage & message : messages) {
      decode_->Receive(kPeer, message);
      moved = true;
    }
    for (kvtransfer::TargetOutput& output : decode_->TakeOutputs()) {
      moved = true;
      if (auto* send = std::get_if<kvtransfer::SendMessage>(&output)) engine_->TargetMessage(kDecode, send->message);
      if (auto* fetch = std::get_if<kvtransfer::StartFetch>(&output)) Copy(*fetch);
      if (auto* first = std::get_if<kvtransfer::FirstTokenArrived>(&output)) {
        Transfer& transfer = transfers_[first->epoch];
        transfer.first_tokens.resize(std::max<size_t>(transfer.first_tokens.size(), first->first_token.choice() + 1));
        transfer.first_tokens[first->first_token.choice()] = first->first_token;
        if (first->first_token.choice() == 0) first_token_order_.push_back(first->epoch);
      }
      if (auto* ready = std::get_if<kvtransfer::TransferReady>(&output)) {
        transfers_[ready->epoch].is_ready = true;
        transfers_[ready->epoch].prompt_hidden = ready->prompt_hidden;
      }
      if (auto* failed = std::get_if<kvtransfer::TransferFailed>(&output)) {
        transfers_[failed->epoch].failure = failed->status;
      }
    }
    return moved;
  }
  void Copy(const kvtransfer::StartFetch& fetch) {
    for (const kvtransfer::ByteRun& run : fetch.runs) {
      const auto source = memory_->bytes().subspan(run.source_offset, run.num_bytes);
      const auto former_tenant = std::search_n(source.begin(), source.end(), 16, kFormerTenant);
      EXPECT_TRUE(former_tenant == source.end()) << "bytes of a page's former tenant travel";
      std::memcpy(decode_memory_->bytes().data() + run.target_offset, memory_->bytes().data() + run.source_offset,
                  run.num_bytes);
    }
    decode_->FetchDone(fetch.fetch_id, absl::OkStatus());
  }
  void Settle() {
    for (int i = 0; i < 100'000; ++i) {
      const bool moved = DeliverOnce();
      const bool has_work = engine_->NextWake() <= clock_.Now();
      if (moved || has_work) engine_->Step();
      if (!moved && !has_work) return;
    }
    FAIL() << "the engine never comes to rest";
  }
  // Without a step of the engine.
  void Deliver() {
    while (DeliverOnce()) {
    }
  }

  // The records of the prompt as one process writes them that computes it alone and whole.
  void ExpectArrivedWhole(uint64_t epoch) {
    const Transfer& transfer = transfers_[epoch];
    ASSERT_TRUE(transfer.is_ready) << transfer.failure;
    const auto num_tokens = static_cast<int>(transfer.prompt.size());
    const int num_pages = kvcache::PagesForTokens(num_tokens);
    sim::PoolMemory memory({.num_layers = kNumLayers, .num_pages = num_pages});
    sim::HashModel model(memory.pool(), model_options_);
    const std::vector<int32_t> tokens(transfer.prompt.begin(), transfer.prompt.end());
    std::vector<int32_t> table(num_pages);
    std::iota(table.begin(), table.end(), 0);
    const model::Segment segment{.row_begin = 0, .num_rows = num_tokens, .first_position = 0, .page_table = table};
    std::vector<kernels::Bf16> hidden(static_cast<size_t>(num_tokens) * model.hidden_size());
    const auto ignore = [](int) {};
    ASSERT_TRUE(model
                    .ForwardWithHidden({.tokens = tokens, .segments = {&segment, 1}, .logits_rows = {}}, ignore, {},
                                       absl::MakeSpan(hidden))
                    .ok());
    const absl::Span<const kernels::Bf16> but_last(hidden.data(), hidden.size() - model.hidden_size());
    if (model_options_.has_mtp) {
      EXPECT_EQ(transfer.prompt_hidden,
                std::string(reinterpret_cast<const char*>(but_last.data() + but_last.size()), kHiddenBytes));
    }
    if (model_options_.has_mtp && num_tokens > 1) {
      const model::Segment rows{.row_begin = 0, .num_rows = num_tokens - 1, .first_position = 0, .page_table = table};
      ASSERT_TRUE(model
                      .RunMtp({.tokens = absl::MakeConstSpan(tokens).subspan(1), .segments = {&rows, 1}}, but_last,
                              ignore, {}, {})
                      .ok());
    }
    for (int layer = 0; layer < kNumLayers; ++layer) {
      for (int page = 0; page < num_pages; ++page) {
        for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
          const auto expected = memory.pool().Page(kind, layer, page);
          const auto actual = decode_memory_->pool().Page(kind, layer, transfer.pages[page]);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), actual.begin(), actual.end()))
              << "layer " << layer << " logical page " << page << " of a prompt of " << num_tokens;
        }
      }
    }
  }
  void ExpectServed(uint64_t epoch) {
    ExpectArrivedWhole(epoch);
    const Transfer& transfer = transfers_[epoch];
    ASSERT_EQ(static_cast<int>(transfer.first_tokens.size()), transfer.num_choices);
    proto::Stopping stopping = transfer.stopping;
    stopping.set_max_new_tokens(1);
    stopping.set_min_new_tokens(std::min(1u, stopping.min_new_tokens()));
    for (uint32_t choice = 0; choice < transfer.first_tokens.size(); ++choice) {
      const proto::FirstToken& first = transfer.first_tokens[choice];
      const sim::OracleAnswer expected =
          sim::AskOracle({transfer.prompt, transfer.sampling, stopping}, model_options_, kNumLayers, 1 << 20, choice);
      EXPECT_EQ(first.token(), expected.tokens[0]) << "choice " << choice;
      if (!transfer.sampling.wants_logprobs()) {
        EXPECT_FALSE(first.has_top_logprobs());
        continue;
      }
      const model::TokenLogprobs& logprobs = expected.logprobs[0];
      EXPECT_EQ(first.logprob(), logprobs.logprob);
      ASSERT_EQ(first.top_logprobs().tokens_size(), logprobs.num_top);
      for (int place = 0; place < logprobs.num_top; ++place) {
        EXPECT_EQ(first.top_logprobs().tokens(place), static_cast<uint32_t>(logprobs.top_tokens[place]));
        EXPECT_EQ(first.top_logprobs().logprobs(place), logprobs.top_logprobs[place]);
      }
    }
  }
  void ExpectNothingHeld() {
    EXPECT_TRUE(engine_->IsAtRest());
    EXPECT_EQ(engine_->pages().num_used(), 0);
    const int64_t num_cached = engine_->prefix_cache() == nullptr ? 0 : engine_->prefix_cache()->num_pages();
    EXPECT_EQ(engine_->pages().num_idle(), num_cached);
    EXPECT_EQ(engine_->transfer().ledger(), kvtransfer::SourceLedger());
    EXPECT_EQ(decode_->ledger(), kvtransfer::TargetLedger());
  }

  static constexpr int64_t kHiddenBytes = sim::HashModel::kHiddenSize * int64_t{sizeof(kernels::Bf16)};
  sim::HashModelOptions model_options_ = kModel;
  static constexpr kvcache::KvLayout kDecodeLayout{.num_layers = kNumLayers, .num_pages = 128};
  base::FakeClock clock_;
  worker_shell::SchedulePolicy schedule_policy_ = worker_shell::SchedulePolicy::kFcfs;       // of the next Start()
  std::optional<kvcache::PrefixIndexOptions> prefix_cache_ = kvcache::PrefixIndexOptions();  // of the next Start()
  std::unique_ptr<sim::PoolMemory> memory_, decode_memory_;
  std::unique_ptr<SpiedModel> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<kvtransfer::HostPageMemory> decode_pages_;
  std::unique_ptr<kvtransfer::TransferTarget> decode_;
  std::vector<proto::TransferMessage> to_decode_;
  std::map<uint64_t, Transfer> transfers_;  // by epoch
  std::vector<uint64_t> first_token_order_;
  int32_t next_decode_page_ = 0;
};

}  // namespace tandem::prefill
