// Proves the life of a request in the prefill engine against decode's real transfer machine: whatever the chunk size
// and the company, decode gets exactly the KV bytes and the first token of a prompt computed alone and whole.
#include "prefill_worker/engine.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"
#include "kvtransfer/transfer_target.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pool_memory.h"

namespace tandem::prefill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kDecode = 0xD, kPrefill = 0xF;
constexpr char kPeer[] = "prefill:8998";
constexpr sim::HashModelOptions kModel{.vocab_size = 97, .weights_seed = 42};
constexpr int kNumLayers = 3;
constexpr std::byte kFormerTenant{0xA5};

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
    memory_ = std::make_unique<sim::PoolMemory>(layout);
    // Bytes of former tenants everywhere.
    std::fill(memory_->bytes().begin(), memory_->bytes().end(), kFormerTenant);
    model_ = std::make_unique<SpiedModel>(memory_->pool(), model_options_);
    engine_ =
        std::make_unique<Engine>(EngineOptions{.chunks = {.num_tokens_max = chunked_prefill_size, .num_chunks_max = 8},
                                               .num_waiting_max = num_waiting_max,
                                               .transfer = {.incarnation = kPrefill, .layout = layout}},
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
    EXPECT_EQ(engine_->transfer().ledger(), kvtransfer::SourceLedger());
    EXPECT_EQ(decode_->ledger(), kvtransfer::TargetLedger());
  }

  static constexpr int64_t kHiddenBytes = sim::HashModel::kHiddenSize * int64_t{sizeof(kernels::Bf16)};
  sim::HashModelOptions model_options_ = kModel;
  static constexpr kvcache::KvLayout kDecodeLayout{.num_layers = kNumLayers, .num_pages = 128};
  base::FakeClock clock_;
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

TEST_F(EngineTest, OnePromptArrivesWholeWithItsFirstToken) {
  Start(8, 100);
  const uint64_t epoch = Begin(200);
  Settle();
  ExpectServed(epoch);
  EXPECT_THAT(model_->rows_per_step, ElementsAre(100, 100));
  ExpectNothingHeld();
}

TEST_F(EngineTest, AnyChunkSizeGivesTheSameBytes) {
  for (const int chunk : {1, 7, 63, 64, 65, 100, 512}) {
    transfers_.clear();
    next_decode_page_ = 0;
    Start(16, chunk);
    std::vector<uint64_t> epochs;
    for (const int length : {1, 64, 65, 130, 200}) epochs.push_back(Begin(length));
    Settle();
    for (const uint64_t epoch : epochs) ExpectServed(epoch);
    ExpectNothingHeld();
  }
}

TEST_F(EngineTest, TheMtpLayersRecordsAndTheLastHiddenStateArriveWhateverTheChunks) {
  model_options_.has_mtp = true;
  for (const int chunk : {1, 7, 63, 64, 65, 100, 512}) {
    transfers_.clear();
    next_decode_page_ = 0;
    Start(16, chunk);
    std::vector<uint64_t> epochs;
    for (const int length : {1, 2, 64, 65, 128, 129, 130}) epochs.push_back(Begin(length));
    epochs.push_back(Begin(100, /*generated=*/{5, 6}));
    Settle();
    for (size_t i = 0; i + 1 < epochs.size(); ++i) ExpectServed(epochs[i]);
    ExpectArrivedWhole(epochs.back());
    ExpectNothingHeld();
  }
}

TEST_F(EngineTest, TheFirstTokenDoesNotWaitForTheMtpLayerWhoseFailureEndsTheRequest) {
  model_options_.has_mtp = true;
  Start(8, 512);
  const uint64_t epoch = Begin(130);
  Deliver();
  model_->next_mtp_error = absl::InternalError("the MTP layer is broken");
  engine_->Step();
  Settle();
  EXPECT_EQ(transfers_[epoch].first_tokens.size(), 1u);
  EXPECT_EQ(transfers_[epoch].failure.message(), "the MTP layer is broken");
  ExpectNothingHeld();
}

// A prompt whose first token cannot be drawn ends between the layers and the MTP layer, the others of the step go on.
TEST_F(EngineTest, APromptThatEndsWithItsFirstTokenLeavesTheOthersTheirMtpLayer) {
  model_options_.has_mtp = true;
  Start(16, 512);
  Transfer none_left = MakeTransfer(70);
  for (uint32_t token = 0; token < static_cast<uint32_t>(kModel.vocab_size); ++token) {
    proto::LogitBias& bias = *none_left.sampling.add_logit_bias();
    bias.set_token(token);
    bias.set_bias(-100);
  }
  const uint64_t before = Begin(65), broken = Begin(std::move(none_left)), behind = Begin(130);
  Settle();
  ExpectServed(before);
  ExpectServed(behind);
  EXPECT_EQ(transfers_[broken].failure.code(), absl::StatusCode::kInvalidArgument);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ALayerIsAnnouncedBeforeTheNextIsComputed) {
  Start(8, 512);
  Begin(130);
  Deliver();
  std::vector<std::vector<uint32_t>> announced_by_layer;
  model_->after_layer = [&](int layer) {
    std::vector<uint32_t> announced;
    for (const proto::TransferMessage& message : to_decode_) {
      if (message.has_announce()) announced.push_back(message.announce().layer_begin());
    }
    announced_by_layer.push_back(announced);
  };
  engine_->Step();
  EXPECT_THAT(announced_by_layer, ElementsAre(ElementsAre(0), ElementsAre(0, 1), ElementsAre(0, 1, 2)));
}

TEST_F(EngineTest, TheFirstTokenIsSentAtOnceThoughNoPageWasFetched) {
  Start(8, 512);
  Begin(130);
  Deliver();
  engine_->Step();
  EXPECT_TRUE(std::any_of(to_decode_.begin(), to_decode_.end(),
                          [](const proto::TransferMessage& message) { return message.has_first_token(); }));
}

TEST_F(EngineTest, EveryChoiceHasItsOwnFirstTokenUnderEveryOption) {
  Start(16, 100);
  std::vector<uint64_t> epochs;
  for (const int length : {1, 64, 100, 130}) {
    Transfer transfer = MakeTransfer(length);
    transfer.num_choices = 5;
    proto::Sampling& sampling = transfer.sampling;
    sampling.set_min_p(0.01f);
    sampling.set_repetition_penalty(1.6f);
    sampling.set_frequency_penalty(2);  // of nothing: no token of the prompt is one of the answer
    sampling.add_logit_bias()->set_token(7);
    sampling.mutable_logit_bias(0)->set_bias(5);
    sampling.set_wants_logprobs(true);
    sampling.set_num_top_logprobs(6);
    transfer.stopping.set_min_new_tokens(1);
    for (uint32_t token = 0; token < 50; ++token) transfer.stopping.add_stop_token_ids(token);
    epochs.push_back(Begin(transfer));
  }
  Settle();
  for (const uint64_t epoch : epochs) {
    ExpectServed(epoch);
    for (const proto::FirstToken& first : transfers_[epoch].first_tokens) EXPECT_GE(first.token(), 50u);
  }
  EXPECT_EQ(engine_->counters().first_tokens, 20);
  ExpectNothingHeld();
}

// What the whole model says in one place of token `position` of the prompt under all before it. The bias makes it draw
// that token; logprobs are those of the logits without it.
model::TokenLogprobs OracleLogprob(const std::vector<uint32_t>& prompt, size_t position, int num_top) {
  sim::OracleRequest request;
  request.prompt_tokens.assign(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(position));
  request.sampling.set_wants_logprobs(true);
  request.sampling.set_num_top_logprobs(static_cast<uint32_t>(num_top));
  proto::LogitBias* bias = request.sampling.add_logit_bias();
  bias->set_token(prompt[position]);
  bias->set_bias(100);
  request.stopping.set_max_new_tokens(1);
  const sim::OracleAnswer answer = sim::AskOracle(request, kModel, kNumLayers, 1 << 20);
  EXPECT_EQ(answer.tokens.at(0), prompt[position]);
  return answer.logprobs.at(0);
}

TEST_F(EngineTest, PromptLogprobsAreThoseOfTheLogitsWhateverTheChunks) {
  constexpr int kNumTokens = 150, kNumTop = 2;
  for (const int chunked_prefill_size : {1, 7, 64, 512}) {
    for (const uint32_t begin : {1u, 70u, 149u}) {
      transfers_.clear();
      Start(64, chunked_prefill_size);
      Transfer asking = MakeTransfer(kNumTokens);
      asking.sampling.set_wants_logprobs(true);
      asking.sampling.set_num_top_logprobs(kNumTop);
      asking.sampling.set_prompt_logprobs_begin(begin);
      asking.num_choices = 2;
      const uint64_t epoch = Begin(asking);
      const uint64_t company = Begin(40);
      Settle();
      ExpectArrivedWhole(epoch);
      ExpectArrivedWhole(company);
      const proto::PromptLogprobs& told = transfers_[epoch].first_tokens.at(0).prompt_logprobs();
      ASSERT_EQ(told.logprobs_size(), kNumTokens - static_cast<int>(begin));
      ASSERT_EQ(told.top_logprobs_size(), told.logprobs_size());
      for (int i = 0; i < told.logprobs_size(); i += 13) {
        const model::TokenLogprobs expected = OracleLogprob(transfers_[epoch].prompt, begin + i, kNumTop);
        ASSERT_EQ(told.logprobs(i), expected.logprob) << "token " << begin + i << " chunk " << chunked_prefill_size;
        ASSERT_EQ(told.top_logprobs(i).tokens(1), static_cast<uint32_t>(expected.top_tokens[1]));
        ASSERT_EQ(told.top_logprobs(i).logprobs(1), expected.top_logprobs[1]);
      }
      EXPECT_FALSE(transfers_[epoch].first_tokens.at(1).has_prompt_logprobs()) << "once is enough";
      EXPECT_FALSE(transfers_[company].first_tokens.at(0).has_prompt_logprobs());
    }
  }
}

TEST_F(EngineTest, PromptLogprobsAreBoundedInOneStepAndInAll) {
  Start(64, 512);
  Transfer asking = MakeTransfer(400);
  asking.sampling.set_wants_logprobs(true);
  asking.sampling.set_prompt_logprobs_begin(1);
  Begin(asking);
  Begin(asking);
  Settle();
  for (const int num_rows : model_->rows_per_step) EXPECT_LE(num_rows, 128) << "each row costs its logits";
  Start(1024, 4096);
  Transfer greedy = MakeTransfer(3000);
  greedy.sampling.set_wants_logprobs(true);
  greedy.sampling.set_num_top_logprobs(20);
  greedy.sampling.set_prompt_logprobs_begin(1);
  const uint64_t epoch = Begin(greedy);
  Settle();
  EXPECT_EQ(transfers_[epoch].failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(transfers_[epoch].failure.message(), "logprobs of 2999 prompt tokens are asked for, at most 2730");
}

TEST_F(EngineTest, APromptWithNoTokenToDrawEndsWithAReasonAndAlone) {
  Start(16, 100);
  Transfer banned = MakeTransfer(100);
  for (int token = 0; token < kModel.vocab_size; ++token) {
    proto::LogitBias& entry = *banned.sampling.add_logit_bias();
    entry.set_token(token);
    entry.set_bias(-100);
  }
  const uint64_t epoch = Begin(banned);
  const uint64_t other = Begin(90);
  Settle();
  EXPECT_EQ(transfers_[epoch].failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(transfers_[epoch].failure.message()),
              ::testing::HasSubstr("leave no token to draw at position 100"));
  ExpectServed(other);
  ExpectNothingHeld();
}

TEST_F(EngineTest, AShortPromptOvertakesALongOne) {
  Start(32, 64);
  const uint64_t long_one = Begin(1000);
  Deliver();
  engine_->Step();
  const uint64_t short_one = Begin(20);
  Settle();
  EXPECT_THAT(first_token_order_, ElementsAre(short_one, long_one));
  ExpectServed(short_one);
  ExpectServed(long_one);
  ExpectNothingHeld();
}

TEST_F(EngineTest, PromptsWaitInLineForPagesAndAllAreServed) {
  Start(4, 64);
  std::vector<uint64_t> epochs;
  for (const int length : {250, 30, 200, 100, 256}) epochs.push_back(Begin(length));
  Settle();
  for (const uint64_t epoch : epochs) ExpectServed(epoch);
  EXPECT_EQ(first_token_order_, epochs);
  ExpectNothingHeld();
}

TEST_F(EngineTest, RefusesWhatCannotBeServed) {
  Start(2, 64, /*num_waiting_max=*/1);
  const uint64_t larger_than_the_pool = Begin(129);
  Settle();
  EXPECT_EQ(transfers_[larger_than_the_pool].failure.code(), absl::StatusCode::kInvalidArgument);
  Transfer many_choices = MakeTransfer(10);
  many_choices.num_choices = 129;
  const uint64_t too_many_choices = Begin(many_choices);
  Transfer no_sense = MakeTransfer(10);
  no_sense.sampling.set_min_p(2);
  const uint64_t refused = Begin(no_sense);
  Settle();
  EXPECT_EQ(transfers_[too_many_choices].failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(transfers_[refused].failure.message()), ::testing::HasSubstr("min_p is 2"));
  Begin(128);
  Begin(1);
  const uint64_t one_too_many = Begin(1);
  Deliver();
  EXPECT_EQ(transfers_[one_too_many].failure.code(), absl::StatusCode::kResourceExhausted);
  Settle();
  engine_->Drain();
  const uint64_t too_late = Begin(1);
  Settle();
  EXPECT_EQ(transfers_[too_late].failure.code(), absl::StatusCode::kUnavailable);
  ExpectNothingHeld();
}

TEST_F(EngineTest, WhereTokensAreKnownNothingIsSampled) {
  Start(8, 64);
  const uint64_t epoch = Begin(100, {5, 6, 7});
  Settle();
  ExpectArrivedWhole(epoch);
  EXPECT_THAT(transfers_[epoch].first_tokens, IsEmpty());
  EXPECT_EQ(engine_->counters().first_tokens, 0);
  ExpectNothingHeld();
}

TEST_F(EngineTest, AnAbortStopsTheComputationAndGivesThePagesBack) {
  Start(16, 64);
  const uint64_t epoch = Begin(1000);
  Deliver();
  engine_->Step();
  decode_->Abort(epoch, absl::CancelledError("the client left"));
  Settle();
  EXPECT_LT(model_->rows_per_step.size(), 4u);
  ExpectNothingHeld();
}

TEST_F(EngineTest, ADecodeWorkerThatIsGoneKeepsItsPagesForALeaseOnly) {
  Start(8, 512);
  Begin(130);
  Deliver();
  engine_->Step();
  engine_->TargetDown(kDecode);
  clock_.Advance(absl::Milliseconds(1900));
  engine_->Step();
  EXPECT_GT(engine_->pages().num_used(), 0);
  clock_.Advance(absl::Milliseconds(200));
  ASSERT_LE(engine_->NextWake(), clock_.Now());
  engine_->Step();
  EXPECT_EQ(engine_->pages().num_used(), 0);
  EXPECT_TRUE(engine_->IsAtRest());
}

TEST_F(EngineTest, AForwardPassThatFailsIsToldToDecode) {
  Start(8, 512);
  const uint64_t epoch = Begin(130);
  Deliver();
  model_->next_error = absl::InternalError("no kernel");
  Settle();
  EXPECT_EQ(transfers_[epoch].failure.code(), absl::StatusCode::kInternal);
  ExpectNothingHeld();
  const uint64_t next = Begin(130);
  Settle();
  ExpectServed(next);
}

}  // namespace
}  // namespace tandem::prefill
