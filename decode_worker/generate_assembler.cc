#include "decode_worker/generate_assembler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {

absl::Status GenerateAssembler::CheckHead(const proto::GenerateHead& head) const {
  const int64_t num_prompt_tokens = head.num_prompt_tokens();
  if (num_prompt_tokens > limits_.num_tokens_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt has ", num_prompt_tokens, " tokens, at most ", limits_.num_tokens_max, " are served"));
  }
  if (head.resumed_size() > worker_shell::kChoicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("resumed has ", head.resumed_size(), " choices, at most ", worker_shell::kChoicesMax));
  }
  for (const proto::ResumedChoice& choice : head.resumed()) {
    if (num_prompt_tokens + choice.num_tokens() <= limits_.num_tokens_max) continue;
    return absl::InvalidArgumentError(absl::StrCat("prompt has ", num_prompt_tokens, " tokens and ",
                                                   choice.num_tokens(), " generated ones, at most ",
                                                   limits_.num_tokens_max, " are served"));
  }
  return absl::OkStatus();
}

absl::Status GenerateAssembler::Append(const proto::GeneratePart& part, Partial& partial) const {
  if (part.part_index() != partial.next_part_index) {
    return absl::InvalidArgumentError(
        absl::StrCat("generate part ", part.part_index(), " came where part ", partial.next_part_index, " was due"));
  }
  if (part.part_index() == 0) {
    if (!part.has_head()) return absl::InvalidArgumentError("the first generate part has no head");
    partial.request.head = part.head();
    RETURN_IF_ERROR(CheckHead(part.head()));
    for (const proto::ResumedChoice& choice : part.head().resumed()) partial.num_generated_due += choice.num_tokens();
    partial.request.prompt_tokens.reserve(part.head().num_prompt_tokens());
    partial.request.generated_tokens.reserve(partial.num_generated_due);
  }
  auto& tokens = partial.request.prompt_tokens;
  tokens.insert(tokens.end(), part.prompt_tokens().begin(), part.prompt_tokens().end());
  auto& generated = partial.request.generated_tokens;
  generated.insert(generated.end(), part.generated_tokens().begin(), part.generated_tokens().end());
  const uint32_t num_due = partial.request.head.num_prompt_tokens();
  if (tokens.size() > num_due || (part.is_last() && tokens.size() != num_due)) {
    return absl::InvalidArgumentError(absl::StrCat("generate parts up to ", part.part_index(), " carry ", tokens.size(),
                                                   " prompt tokens, the head says ", num_due));
  }
  const size_t num_generated_due = partial.num_generated_due;
  if (generated.size() > num_generated_due || (part.is_last() && generated.size() != num_generated_due)) {
    return absl::InvalidArgumentError(absl::StrCat("generate parts up to ", part.part_index(), " carry ",
                                                   generated.size(), " generated tokens, the head says ",
                                                   num_generated_due));
  }
  ++partial.next_part_index;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<GenerateRequest>> GenerateAssembler::Add(proto::GeneratePart part) {
  const RequestKey key = RequestKey::From(part.key());
  auto it = partial_.find(key);
  if (it == partial_.end()) {
    if (part.part_index() != 0) return std::optional<GenerateRequest>();  // its request has ended already
    if (num_partial_requests() >= limits_.num_partial_requests_max) {
      return absl::ResourceExhaustedError(absl::StrCat("requests whose prompt is under way: ", partial_.size(),
                                                       ", at most ", limits_.num_partial_requests_max));
    }
    it = partial_.emplace(key, Partial{.request = {.key = key}}).first;
  }
  if (absl::Status status = Append(part, it->second); !status.ok()) {
    partial_.erase(it);
    return status;
  }
  if (!part.is_last()) return std::optional<GenerateRequest>();
  std::optional<GenerateRequest> request = std::move(it->second.request);
  partial_.erase(it);
  return request;
}

}  // namespace tandem::decode
