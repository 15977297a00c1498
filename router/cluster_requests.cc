// The requests of a shard at its workers: attempts, their parts, tokens, credits, cancels and ends, what a stream that
// is back is told of them, and what each attempt says of its workers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "proto/credit.h"
#include "proto/page_key.h"
#include "router/cluster.h"
#include "router/failover.h"

namespace tandem::router {
namespace {

constexpr int64_t kCreditTokensMin = 4;

SequenceFinish FinishOf(proto::FinishReason reason) {
  switch (reason) {
    case proto::FINISH_REASON_STOP:
      return SequenceFinish::kStopToken;
    case proto::FINISH_REASON_LENGTH:
      return SequenceFinish::kLength;
    default:
      return SequenceFinish::kNone;
  }
}

std::vector<std::vector<LikelyToken>> LikelyTokensOf(
    const google::protobuf::RepeatedPtrField<proto::TopLogprobs>& lists) {
  std::vector<std::vector<LikelyToken>> likely(static_cast<size_t>(lists.size()));
  for (int i = 0; i < lists.size(); ++i) {
    const proto::TopLogprobs& top = lists[i];
    for (int j = 0; j < std::min(top.tokens_size(), top.logprobs_size()); ++j) {
      likely[i].push_back({top.tokens(j), top.logprobs(j)});
    }
  }
  return likely;
}

GeneratedTokens TokensOf(const proto::SequenceTokens& sequence) {
  GeneratedTokens tokens;
  tokens.choice = static_cast<int>(sequence.choice());
  tokens.first_position = sequence.first_position();
  tokens.tokens.assign(sequence.tokens().begin(), sequence.tokens().end());
  tokens.finish = FinishOf(sequence.finish_reason());
  tokens.logprobs.assign(sequence.logprobs().begin(), sequence.logprobs().end());
  tokens.top_logprobs = LikelyTokensOf(sequence.top_logprobs());
  tokens.num_cached_prompt_tokens = sequence.num_cached_prompt_tokens();
  if (sequence.has_prompt_logprobs()) {
    const proto::PromptLogprobs& prompt = sequence.prompt_logprobs();
    tokens.prompt_logprobs = std::make_shared<const PromptLogprobs>(
        PromptLogprobs{{prompt.logprobs().begin(), prompt.logprobs().end()}, LikelyTokensOf(prompt.top_logprobs())});
  }
  tokens.drafts = {.windows = sequence.drafts().windows(),
                   .drafted = sequence.drafts().drafted(),
                   .accepted = sequence.drafts().accepted()};
  return tokens;
}

// That decode needs to begin: the prompt's, which its choices share, and those of each choice's own tokens.
int64_t NumPagesOf(const GenerateOrder& order, const std::vector<ResumedChoice>& resumed) {
  const auto num_pages = [](size_t num_tokens) {
    return static_cast<int64_t>((num_tokens + proto::kPageKeyTokens - 1) / proto::kPageKeyTokens);
  };
  int64_t sum = num_pages(order.prompt.size() + 1);
  for (const ResumedChoice& choice : resumed) sum += choice.has_ended ? 0 : num_pages(choice.tokens.size());
  return sum;
}

void FillSampling(const GenerateOrder& order, proto::Sampling* sampling) {
  sampling->set_temperature(order.temperature);
  sampling->set_top_p(order.top_p);
  sampling->set_top_k(order.top_k);
  sampling->set_seed(order.seed);
  sampling->set_min_p(order.min_p);
  sampling->set_repetition_penalty(order.repetition_penalty);
  sampling->set_frequency_penalty(order.frequency_penalty);
  sampling->set_presence_penalty(order.presence_penalty);
  for (const auto& [token, bias] : order.logit_bias) {
    proto::LogitBias* entry = sampling->add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  sampling->set_wants_logprobs(order.wants_logprobs);
  sampling->set_num_top_logprobs(order.num_top_logprobs);
  if (order.constraint != nullptr) *sampling->mutable_constraint() = *order.constraint;
  sampling->set_prompt_logprobs_begin(order.prompt_logprobs_begin);
}

void FillHead(const GenerateOrder& order, const std::string& prefill_address, proto::GenerateHead* head) {
  head->set_prefill_address(prefill_address);
  FillSampling(order, head->mutable_sampling());
  head->mutable_stopping()->set_max_new_tokens(order.max_new_tokens);
  head->mutable_stopping()->mutable_stop_token_ids()->Add(order.stop_token_ids.begin(), order.stop_token_ids.end());
  head->mutable_stopping()->set_min_new_tokens(order.min_new_tokens);
  head->set_remaining_time_us(static_cast<uint64_t>(absl::ToInt64Microseconds(order.remaining_time)));
  head->set_num_choices(order.num_choices);
  head->set_num_prompt_tokens(static_cast<uint32_t>(order.prompt.size()));
  head->set_trace_parent(order.trace_parent);
  head->set_cache_salt(order.cache_salt);
  head->set_priority(order.priority);
}

}  // namespace

proto::RequestKey Cluster::KeyOf(uint64_t request_id, uint32_t attempt) const {
  proto::RequestKey key;
  key.set_router_incarnation(identity_.incarnation());
  key.set_request_id(request_id);
  key.set_attempt(attempt);
  return key;
}

uint64_t Cluster::Generate(const PairChoice& pair, const GenerateOrder& order, RequestListener* listener) {
  const uint64_t request_id = ++last_request_id_;
  requests_[request_id].listener = listener;
  StartAttempt(request_id, pair, order, {});
  return request_id;
}

void Cluster::EndAttempt(uint64_t request_id) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  Request& request = it->second;
  LeavePrefill(request);
  LeaveDecode(request);
  request.is_lost = true;
  request.prefill = request.decode = -1;  // their places may be given to others
}

void Cluster::GenerateAgain(uint64_t request_id, const PairChoice& pair, const GenerateOrder& order,
                            const std::vector<ResumedChoice>& resumed) {
  const auto it = requests_.find(request_id);
  TANDEM_CHECK(it != requests_.end() && it->second.is_lost, "a further attempt at a request that has not failed");
  StartAttempt(request_id, pair, order, resumed);
}

void Cluster::StartAttempt(uint64_t request_id, const PairChoice& pair, const GenerateOrder& order,
                           const std::vector<ResumedChoice>& resumed) {
  Request& request = requests_[request_id];
  ++request.attempt;
  request.decode = pair.decode;
  request.prefill = pair.prefill;
  request.counts_on_prefill = true;
  request.counts_on_decode = true;
  request.is_lost = false;
  request.cancel_reason.clear();
  proto::GenerateHead head;
  FillHead(order, view_.prefills[pair.prefill].bootstrap_address, &head);
  request.token_bytes = proto::CreditBytesOfToken(head.sampling());
  request.credit_bytes = std::max(credit_bytes_, kCreditTokensMin * request.token_bytes);
  request.flows.assign(std::max<size_t>(1, head.num_choices()), Flow{.granted_bytes = request.credit_bytes});
  for (size_t choice = 0; choice < resumed.size(); ++choice) {
    proto::ResumedChoice& known = *head.add_resumed();
    known.set_num_tokens(static_cast<uint32_t>(resumed[choice].tokens.size()));
    known.set_has_ended(resumed[choice].has_ended);
    request.flows[choice].first_position = known.num_tokens();
    request.flows[choice].next_position = known.num_tokens();
  }
  head.set_credit_bytes(static_cast<uint64_t>(request.credit_bytes));
  ++view_.decodes[pair.decode].requests_in_flight;
  view_.decodes[pair.decode].kv_pages_sent += NumPagesOf(order, resumed);
  request.num_prefill_tokens = std::max<int64_t>(0, static_cast<int64_t>(order.prompt.size()) - pair.cached_tokens);
  ++view_.prefills[pair.prefill].requests_in_flight;
  view_.prefills[pair.prefill].prompt_tokens_in_flight += request.num_prefill_tokens;
  BeginParts(request);
  SendParts(*decode_links_[pair.decode], KeyOf(request_id, request.attempt), std::move(head), order.prompt, resumed);
}

void Cluster::SendParts(WorkerLink& link, const proto::RequestKey& key, proto::GenerateHead head,
                        absl::Span<const TokenId> prompt, const std::vector<ResumedChoice>& resumed) {
  proto::GeneratePart part;
  *part.mutable_key() = key;
  *part.mutable_head() = std::move(head);
  size_t num_left = kTokensPerPart;  // that the part has room for
  const auto add = [&](absl::Span<const TokenId> tokens, auto tokens_of_part) {
    while (!tokens.empty()) {
      if (num_left == 0) {
        const uint32_t next_index = part.part_index() + 1;
        link.SendPart(std::exchange(part, proto::GeneratePart()));
        *part.mutable_key() = key;
        part.set_part_index(next_index);
        num_left = kTokensPerPart;
      }
      const size_t num_tokens = std::min(num_left, tokens.size());
      tokens_of_part()->Add(tokens.begin(), tokens.begin() + num_tokens);
      tokens.remove_prefix(num_tokens);
      num_left -= num_tokens;
    }
  };
  add(prompt, [&] { return part.mutable_prompt_tokens(); });
  for (const ResumedChoice& choice : resumed) add(choice.tokens, [&] { return part.mutable_generated_tokens(); });
  part.set_is_last(true);
  link.SendPart(std::move(part));
}

void Cluster::Cancel(uint64_t request_id, const std::string& reason, std::optional<int> choice) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  Request& request = it->second;
  if (request.is_lost) return;
  TANDEM_CHECK(!choice.has_value() || *choice < static_cast<int>(request.flows.size()), "no such choice to cancel");
  (choice.has_value() ? request.flows[*choice].cancel_reason : request.cancel_reason) = reason;
  SendCancel(*decode_links_[request.decode], KeyOf(request_id, request.attempt), reason, choice);
}

void Cluster::SendCancel(WorkerLink& link, const proto::RequestKey& key, const std::string& reason,
                         std::optional<int> choice) {
  proto::RouterMessage message;
  *message.mutable_cancel()->mutable_key() = key;
  message.mutable_cancel()->set_reason(reason);
  if (choice.has_value()) message.mutable_cancel()->set_choice(static_cast<uint32_t>(*choice));
  link.Send(std::move(message));
}

void Cluster::TokensTaken(uint64_t request_id, int choice, int64_t end_position) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  Request& request = it->second;
  if (request.is_lost) return;
  TANDEM_CHECK(choice >= 0 && choice < static_cast<int>(request.flows.size()), "tokens of a choice that is not");
  Flow& flow = request.flows[choice];
  const int64_t num_taken = end_position - int64_t{flow.first_position};
  const int64_t room = num_taken * request.token_bytes + request.credit_bytes;
  if (room - flow.granted_bytes < request.credit_bytes / 2) return;  // a message for every few tokens would be a waste
  flow.granted_bytes = room;
  proto::RouterMessage message;
  proto::Credit* credit = message.mutable_credit();
  *credit->mutable_key() = KeyOf(request_id, request.attempt);
  credit->set_choice(static_cast<uint32_t>(choice));
  credit->set_granted_bytes(static_cast<uint64_t>(flow.granted_bytes));
  decode_links_[request.decode]->Send(std::move(message));  // where the link is down, Reattach says it
}

void Cluster::Forget(uint64_t request_id) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  LeavePrefill(it->second);
  LeaveDecode(it->second);
  requests_.erase(it);
}

void Cluster::BeginParts(Request& request) {
  request.prefill_part = {prefill_outliers_[request.prefill].OnStart(now_), /*is_judged=*/false};
  request.decode_part = {decode_outliers_[request.decode].OnStart(now_), /*is_judged=*/false};
  RefreshEjection(*prefill_links_[request.prefill]);
  RefreshEjection(*decode_links_[request.decode]);
}

void Cluster::JudgePrefill(Request& request, OutlierEjection::Outcome outcome) {
  if (std::exchange(request.prefill_part.is_judged, true)) return;
  Judge(*prefill_links_[request.prefill], outcome, request.prefill_part.is_trial);
}

void Cluster::JudgeDecode(Request& request, OutlierEjection::Outcome outcome) {
  if (std::exchange(request.decode_part.is_judged, true)) return;
  Judge(*decode_links_[request.decode], outcome, request.decode_part.is_trial);
}

// Before the first token either may be at fault; but where prefill is gone, decode only reports it.
void Cluster::JudgeEnd(Request& request, const absl::Status& error, bool is_cancelled) {
  using Outcome = OutlierEjection::Outcome;
  const bool is_failure = !is_cancelled && IsWorkerFailure(error);
  const Outcome outcome = is_failure                    ? Outcome::kFailure
                          : error.ok() && !is_cancelled ? Outcome::kSuccess
                                                        : Outcome::kNothing;
  const bool is_prefill_gone = request.counts_on_prefill && !prefill_links_[request.prefill]->is_up();
  JudgePrefill(request, outcome);
  JudgeDecode(request, is_failure && is_prefill_gone ? Outcome::kNothing : outcome);
}

void Cluster::Judge(const WorkerLink& link, OutlierEjection::Outcome outcome, bool is_trial) {
  OutlierEjection& outlier = OutlierOf(link);
  if (outlier.OnEnd(outcome, is_trial, now_)) {
    ++counters_.ejections;
    LOG_WARNING("worker is ejected", {"worker_role", WorkerRoleName(link.role())}, {"address", link.address()},
                {"for", outlier.time()});
  }
  RefreshEjection(link);
}

void Cluster::LeavePrefill(Request& request) {
  if (!request.counts_on_prefill) return;
  JudgePrefill(request, OutlierEjection::Outcome::kNothing);
  request.counts_on_prefill = false;
  --view_.prefills[request.prefill].requests_in_flight;
  view_.prefills[request.prefill].prompt_tokens_in_flight -= request.num_prefill_tokens;
}

void Cluster::LeaveDecode(Request& request) {
  if (!request.counts_on_decode) return;
  JudgeDecode(request, OutlierEjection::Outcome::kNothing);
  request.counts_on_decode = false;
  --view_.decodes[request.decode].requests_in_flight;
}

Cluster::Request* Cluster::FindRequest(const WorkerLink& link, const proto::RequestKey& key) {
  if (link.role() != WorkerRole::kDecode || key.router_incarnation() != identity_.incarnation()) return nullptr;
  const auto it = requests_.find(key.request_id());
  if (it == requests_.end() || it->second.decode != link.index()) return nullptr;
  return key.attempt() == it->second.attempt && !it->second.is_lost ? &it->second : nullptr;
}

// Before anything else on a new stream, also where nothing runs there: the worker waits for it.
void Cluster::Reattach(WorkerLink& link) {
  proto::RouterMessage message;
  proto::Reattach* reattach = message.mutable_reattach();
  for (const auto& [request_id, request] : requests_) {
    if (request.decode != link.index() || request.is_lost) continue;
    for (size_t choice = 0; choice < request.flows.size(); ++choice) {
      if (reattach->positions_size() == kPositionsPerMessage) {
        link.Send(message);
        reattach->Clear();
      }
      proto::Reattach::Position* position = reattach->add_positions();
      *position->mutable_key() = KeyOf(request_id, request.attempt);
      position->set_choice(static_cast<uint32_t>(choice));
      position->set_next_position(request.flows[choice].next_position);
      position->set_granted_bytes(static_cast<uint64_t>(request.flows[choice].granted_bytes));
    }
  }
  reattach->set_is_last(true);
  link.Send(std::move(message));
  for (const auto& [request_id, request] : requests_) {
    if (request.decode != link.index() || request.is_lost) continue;
    const proto::RequestKey key = KeyOf(request_id, request.attempt);
    if (!request.cancel_reason.empty()) {
      SendCancel(link, key, request.cancel_reason, std::nullopt);
      continue;
    }
    for (size_t choice = 0; choice < request.flows.size(); ++choice) {
      const std::string& reason = request.flows[choice].cancel_reason;
      if (!reason.empty()) SendCancel(link, key, reason, static_cast<int>(choice));
    }
  }
}

void Cluster::OnTokenBatch(WorkerLink& link, const proto::TokenBatch& batch) {
  for (const proto::SequenceTokens& sequence : batch.sequences()) {
    Request* request = FindRequest(link, sequence.key());
    if (request == nullptr || sequence.choice() >= request->flows.size()) {
      CancelUnknown(link, sequence.key());
      continue;
    }
    JudgePrefill(*request, OutlierEjection::Outcome::kSuccess);
    LeavePrefill(*request);
    Flow& flow = request->flows[sequence.choice()];
    flow.next_position =
        std::max(flow.next_position, sequence.first_position() + static_cast<uint32_t>(sequence.tokens_size()));
    request->listener->OnTokens(TokensOf(sequence));
  }
}

void Cluster::OnEnded(WorkerLink& link, const proto::RequestKey& key, const absl::Status& error, bool is_cancelled) {
  Request* request = FindRequest(link, key);
  if (request != nullptr) {
    JudgeEnd(*request, error, is_cancelled);
    request->listener->OnEnded(error, is_cancelled);
  } else if (link.role() == WorkerRole::kDecode) {
    unknown_cancelled_[link.index()].erase(key.request_id());
  }
}

void Cluster::CancelUnknown(WorkerLink& link, const proto::RequestKey& key) {
  if (link.role() != WorkerRole::kDecode) return;
  if (!unknown_cancelled_[link.index()].insert(key.request_id()).second) return;
  SendCancel(link, key, "unknown to this router", std::nullopt);
}

}  // namespace tandem::router
