#include "worker_shell/live_mailbox.h"

#include <utility>

namespace tandem::worker_shell {
namespace {

constexpr size_t kItemBytesMax = LiveMailbox::kMessageBytesMax / 2;

proto::WorkerMessage Pop(std::optional<proto::WorkerMessage>& slot) {
  proto::WorkerMessage message = *std::move(slot);
  slot.reset();
  return message;
}

size_t BytesOf(const proto::WorkerMessage& message) { return message.ByteSizeLong(); }

bool JoinsUp(const proto::SequenceTokens& waiting, const proto::SequenceTokens& next) {
  return waiting.finish_reason() == proto::FINISH_REASON_UNSPECIFIED &&
         waiting.first_position() + static_cast<uint32_t>(waiting.tokens_size()) == next.first_position();
}

}  // namespace

LiveMailbox::SequenceKey LiveMailbox::KeyOf(const proto::SequenceTokens& tokens) {
  const proto::RequestKey& key = tokens.key();
  return {key.router_incarnation(), key.request_id(), key.attempt(), tokens.choice()};
}

void LiveMailbox::Push(proto::WorkerMessage message) {
  switch (message.message_case()) {
    case proto::WorkerMessage::kTokens:
      for (proto::SequenceTokens& tokens : *message.mutable_tokens()->mutable_sequences()) {
        PushTokens(std::move(tokens));
      }
      return;
    case proto::WorkerMessage::kEnded:
      bytes_ += BytesOf(message);
      items_.emplace_back(std::move(message));
      return;
    case proto::WorkerMessage::kPeerStatus:
      peer_statuses_[message.peer_status().bootstrap_address()] = std::move(message);
      return;
    case proto::WorkerMessage::kHeartbeat:
      heartbeat_ = std::move(message);
      return;
    case proto::WorkerMessage::kLoad:
      load_ = std::move(message);
      return;
    case proto::WorkerMessage::kPrefixUpdate:
      if (prefix_bytes_ + message.ByteSizeLong() > kPrefixBytesMax) {
        prefix_updates_.clear();
        prefix_bytes_ = 0;
      }
      prefix_bytes_ += message.ByteSizeLong();
      prefix_updates_.push_back(std::move(message));
      return;
    case proto::WorkerMessage::kHello:
    case proto::WorkerMessage::kDraining:
    case proto::WorkerMessage::MESSAGE_NOT_SET:
      control_.push_back(std::move(message));
      return;
  }
}

void LiveMailbox::PushTokens(proto::SequenceTokens tokens) {
  const size_t num_bytes = tokens.ByteSizeLong();
  const SequenceKey key = KeyOf(tokens);
  if (const auto it = newest_.find(key); it != newest_.end()) {
    auto& waiting = std::get<proto::SequenceTokens>(*it->second);
    const size_t waiting_bytes = waiting.ByteSizeLong();
    if (JoinsUp(waiting, tokens) && waiting_bytes + num_bytes <= kItemBytesMax) {
      waiting.mutable_tokens()->MergeFrom(tokens.tokens());
      waiting.mutable_logprobs()->MergeFrom(tokens.logprobs());
      waiting.mutable_top_logprobs()->MergeFrom(tokens.top_logprobs());
      if (tokens.has_drafts()) *waiting.mutable_drafts() = tokens.drafts();
      waiting.set_finish_reason(tokens.finish_reason());
      bytes_ += waiting.ByteSizeLong() - waiting_bytes;
      return;
    }
  }
  bytes_ += num_bytes;
  newest_[key] = items_.emplace(items_.end(), std::move(tokens));
}

bool LiveMailbox::empty() const {
  return control_.empty() && peer_statuses_.empty() && !heartbeat_.has_value() && !load_.has_value() &&
         items_.empty() && prefix_updates_.empty();
}

proto::WorkerMessage LiveMailbox::Take() {
  if (!control_.empty()) {
    proto::WorkerMessage message = std::move(control_.front());
    control_.pop_front();
    return message;
  }
  if (heartbeat_.has_value()) return Pop(heartbeat_);
  if (load_.has_value()) return Pop(load_);
  if (!peer_statuses_.empty()) return std::move(peer_statuses_.extract(peer_statuses_.begin()).mapped());
  if (!items_.empty()) return TakeItems();
  proto::WorkerMessage update = std::move(prefix_updates_.front());
  prefix_updates_.pop_front();
  prefix_bytes_ -= update.ByteSizeLong();
  return update;
}

// One Ended, or the tokens of as many sequences as fit.
proto::WorkerMessage LiveMailbox::TakeItems() {
  proto::WorkerMessage message;
  size_t num_bytes = 0;
  while (!items_.empty()) {
    Item& item = items_.front();
    if (std::holds_alternative<proto::WorkerMessage>(item)) {
      if (num_bytes > 0) break;
      message = std::move(std::get<proto::WorkerMessage>(item));
      bytes_ -= BytesOf(message);
      items_.pop_front();
      break;
    }
    auto& tokens = std::get<proto::SequenceTokens>(item);
    const size_t item_bytes = tokens.ByteSizeLong();
    if (num_bytes > 0 && num_bytes + item_bytes > kItemBytesMax) break;
    num_bytes += item_bytes;
    bytes_ -= item_bytes;
    const auto newest = newest_.find(KeyOf(tokens));
    if (newest != newest_.end() && newest->second == items_.begin()) newest_.erase(newest);
    *message.mutable_tokens()->add_sequences() = std::move(tokens);
    items_.pop_front();
  }
  return message;
}

void LiveMailbox::Clear() { *this = LiveMailbox(); }

}  // namespace tandem::worker_shell
