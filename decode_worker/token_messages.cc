#include "decode_worker/token_messages.h"

#include <algorithm>
#include <utility>

#include "worker_shell/sampling.h"

namespace tandem::decode {
namespace {

constexpr size_t kMessageBytesMax = 240 * 1024;

// As much as any token may take: an id, its number, a list of likeliest tokens and numbers.
size_t BytesPerToken(const proto::SequenceTokens& tokens) {
  size_t bytes = 5;
  if (tokens.logprobs_size() > 0) bytes += 4;
  if (tokens.top_logprobs_size() > 0) bytes += 12 + 9 * model::kTopLogprobsMax;
  return bytes;
}

}  // namespace

proto::SequenceTokens TokensOf(const Request& request, const Sequence& sequence, size_t begin, size_t end) {
  proto::SequenceTokens tokens;
  *tokens.mutable_key() = request.generate.key.ToProto();
  tokens.set_choice(static_cast<uint32_t>(sequence.choice));
  tokens.set_first_position(static_cast<uint32_t>(begin));
  tokens.mutable_tokens()->Add(sequence.generated.begin() + static_cast<ptrdiff_t>(begin),
                               sequence.generated.begin() + static_cast<ptrdiff_t>(end));
  if (end == sequence.generated.size()) tokens.set_finish_reason(sequence.finish_reason);
  if (begin == 0 && end > 0) tokens.set_num_cached_prompt_tokens(request.num_cached_prompt_tokens);
  if (sequence.choice == 0 && begin == 0 && end > 0 && request.num_prompt_logprobs() > 0) {
    *tokens.mutable_prompt_logprobs() = request.prompt_logprobs;
  }
  if (const DraftState& drafting = sequence.drafting; drafting.num_windows > 0) {
    tokens.mutable_drafts()->set_windows(static_cast<uint32_t>(drafting.num_windows));
    tokens.mutable_drafts()->set_drafted(static_cast<uint32_t>(drafting.num_drafted));
    tokens.mutable_drafts()->set_accepted(static_cast<uint32_t>(drafting.num_accepted));
  }
  if (!request.draws.params.wants_logprobs) return tokens;
  const auto num_brought = static_cast<size_t>(request.generate.num_brought(sequence.choice));
  for (size_t position = begin; position < end; ++position) {
    const model::TokenLogprobs& logprobs = sequence.logprobs[position - num_brought];
    tokens.add_logprobs(logprobs.logprob);
    if (request.draws.params.num_top_logprobs > 0) {
      *tokens.add_top_logprobs() = worker_shell::TopLogprobsToProto(logprobs);
    }
  }
  return tokens;
}

proto::SequenceTokens AllTokensOf(const Request& request, const Sequence& sequence) {
  const auto num_brought = static_cast<size_t>(request.generate.num_brought(sequence.choice));
  return TokensOf(request, sequence, num_brought, sequence.generated.size());
}

std::vector<proto::SequenceTokens> AllTokensOf(const Request& request) {
  std::vector<proto::SequenceTokens> choices;
  for (const Sequence& sequence : request.sequences) choices.push_back(AllTokensOf(request, sequence));
  return choices;
}

std::vector<proto::SequenceTokens> CutIntoMessages(const proto::SequenceTokens& all, uint32_t position) {
  const auto num_tokens = static_cast<size_t>(all.tokens_size());
  const size_t num_tokens_max = kMessageBytesMax / BytesPerToken(all);
  const auto cut = [](const auto& from, size_t begin, size_t end, auto& to) {
    if (from.size() > 0)
      to.Add(from.begin() + static_cast<ptrdiff_t>(begin), from.begin() + static_cast<ptrdiff_t>(end));
  };
  std::vector<proto::SequenceTokens> pieces;
  size_t begin = position <= all.first_position() ? 0 : std::min<size_t>(position - all.first_position(), num_tokens);
  while (begin < num_tokens) {
    const bool has_prompt = begin == 0 && all.has_prompt_logprobs();  // whose logprobs fill a message of their own
    const size_t end = std::min(begin + (has_prompt ? 1 : num_tokens_max), num_tokens);
    proto::SequenceTokens& piece = pieces.emplace_back();
    *piece.mutable_key() = all.key();
    piece.set_choice(all.choice());
    piece.set_first_position(all.first_position() + static_cast<uint32_t>(begin));
    cut(all.tokens(), begin, end, *piece.mutable_tokens());
    cut(all.logprobs(), begin, end, *piece.mutable_logprobs());
    cut(all.top_logprobs(), begin, end, *piece.mutable_top_logprobs());
    if (begin == 0) piece.set_num_cached_prompt_tokens(all.num_cached_prompt_tokens());
    if (all.has_drafts()) *piece.mutable_drafts() = all.drafts();
    if (has_prompt) *piece.mutable_prompt_logprobs() = all.prompt_logprobs();
    if (end == num_tokens) piece.set_finish_reason(all.finish_reason());
    begin = end;
  }
  return pieces;
}

}  // namespace tandem::decode
