#include "tests/workers/router_end.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem::tests {
namespace {

void SetKey(uint64_t id, proto::RequestKey& key) {
  key.set_router_incarnation(RouterEnd::kIncarnation);
  key.set_request_id(id);
  key.set_attempt(1);
}

}  // namespace

RouterEnd::RouterEnd(int rpc_port)
    : stub_(proto::DecodeWorker::NewStub(
          grpc::CreateChannel(absl::StrCat("127.0.0.1:", rpc_port), grpc::InsecureChannelCredentials()))) {
  const auto deadline =
      std::chrono::system_clock::now() + std::chrono::minutes(20);  // the test's own limit comes before
  live_context_.set_deadline(deadline);
  bulk_context_.set_deadline(deadline);
  live_ = stub_->Live(&live_context_);
  bulk_ = stub_->Bulk(&bulk_context_);
  proto::RouterMessage message;
  message.mutable_hello()->set_instance("router");
  message.mutable_hello()->set_incarnation(kIncarnation);
  message.mutable_hello()->set_role("router");
  live_->Write(message);
  message.mutable_reattach()->set_is_last(true);  // nothing runs yet
  live_->Write(message);
}

RouterEnd::~RouterEnd() {
  live_context_.TryCancel();
  bulk_context_.TryCancel();
}

void RouterEnd::NamePrefill(int bootstrap_port) {
  prefill_address_ = absl::StrCat("127.0.0.1:", bootstrap_port);
  proto::RouterMessage message;
  message.mutable_prefill_set()->add_bootstrap_addresses(prefill_address_);
  live_->Write(message);
}

proto::WorkerMessage RouterEnd::Read() {
  proto::WorkerMessage message;
  while (live_->Read(&message)) {
    if (!message.has_heartbeat() && !message.has_load()) return message;
  }
  return {};
}

proto::PeerStatus RouterEnd::AwaitPeer(bool is_usable) {
  while (true) {
    const proto::WorkerMessage message = Read();
    if (message.message_case() == proto::WorkerMessage::MESSAGE_NOT_SET) return {};
    if (message.has_peer_status() && message.peer_status().is_usable() == is_usable) return message.peer_status();
  }
}

void RouterEnd::Generate(uint64_t id, const std::vector<uint32_t>& prompt, proto::GenerateHead head) {
  proto::GeneratePart part;
  SetKey(id, *part.mutable_key());
  part.set_is_last(true);
  part.mutable_prompt_tokens()->Add(prompt.begin(), prompt.end());
  *part.mutable_head() = std::move(head);
  part.mutable_head()->set_prefill_address(prefill_address_);
  part.mutable_head()->set_num_prompt_tokens(static_cast<uint32_t>(prompt.size()));
  bulk_->Write(part);
}

void RouterEnd::Generate(uint64_t id, const std::vector<uint32_t>& prompt, uint32_t max_new_tokens, float temperature,
                         uint64_t credit_bytes) {
  proto::GenerateHead head;
  head.mutable_sampling()->set_temperature(temperature);
  head.mutable_sampling()->set_top_p(1);
  head.mutable_sampling()->set_seed(id);
  head.mutable_stopping()->set_max_new_tokens(max_new_tokens);
  head.set_credit_bytes(credit_bytes);
  Generate(id, prompt, std::move(head));
}

void RouterEnd::Cancel(uint64_t id) {
  proto::RouterMessage message;
  SetKey(id, *message.mutable_cancel()->mutable_key());
  live_->Write(message);
}

void RouterEnd::FlushPrefixCache() {
  proto::RouterMessage message;
  message.mutable_flush_prefix_cache();
  live_->Write(message);
}

void RouterEnd::Grant(uint64_t id, uint32_t choice, uint64_t granted_bytes) {
  proto::RouterMessage message;
  SetKey(id, *message.mutable_credit()->mutable_key());
  message.mutable_credit()->set_choice(choice);
  message.mutable_credit()->set_granted_bytes(granted_bytes);
  live_->Write(message);
}

std::map<uint64_t, Answer> RouterEnd::Collect(int count) {
  while (num_ended_ < count && TakeOne()) {
  }
  EXPECT_EQ(num_ended_, count) << "the stream has ended before";
  return answers_;
}

void RouterEnd::AwaitFirstToken(uint64_t id, uint32_t choice) {
  while (answers_[id].choices[choice].tokens.empty() && TakeOne()) {
  }
}

bool RouterEnd::TakeOne() {
  const proto::WorkerMessage message = Read();
  for (const proto::SequenceTokens& tokens : message.tokens().sequences()) {
    ChoiceAnswer& answer = answers_[tokens.key().request_id()].choices[tokens.choice()];
    EXPECT_EQ(tokens.first_position(), answer.tokens.size());
    answer.tokens.insert(answer.tokens.end(), tokens.tokens().begin(), tokens.tokens().end());
    answer.logprobs.insert(answer.logprobs.end(), tokens.logprobs().begin(), tokens.logprobs().end());
    answer.top_logprobs.insert(answer.top_logprobs.end(), tokens.top_logprobs().begin(), tokens.top_logprobs().end());
  }
  if (message.has_ended()) {
    answers_[message.ended().key().request_id()].ended = message.ended();
    ++num_ended_;
  }
  return message.message_case() != proto::WorkerMessage::MESSAGE_NOT_SET;
}

}  // namespace tandem::tests
