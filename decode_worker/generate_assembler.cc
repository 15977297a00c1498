#include "decode_worker/generate_assembler.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::decode {

absl::Status GenerateAssembler::Append(const proto::GeneratePart& part, Partial& partial) const {
  if (part.part_index() != partial.next_part_index) {
    return absl::InvalidArgumentError(
        absl::StrCat("generate part ", part.part_index(), " came where part ", partial.next_part_index, " was due"));
  }
  if (part.part_index() == 0) {
    if (!part.has_head()) return absl::InvalidArgumentError("the first generate part has no head");
    partial.request.head = part.head();
    const int64_t num_tokens = part.head().num_prompt_tokens();
    if (num_tokens > limits_.num_prompt_tokens_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompt has ", num_tokens, " tokens, at most ", limits_.num_prompt_tokens_max, " are served"));
    }
    partial.request.prompt_tokens.reserve(num_tokens);
  }
  auto& tokens = partial.request.prompt_tokens;
  tokens.insert(tokens.end(), part.prompt_tokens().begin(), part.prompt_tokens().end());
  const uint32_t num_due = partial.request.head.num_prompt_tokens();
  if (tokens.size() > num_due || (part.is_last() && tokens.size() != num_due)) {
    return absl::InvalidArgumentError(absl::StrCat("generate parts up to ", part.part_index(), " carry ", tokens.size(),
                                                   " prompt tokens, the head says ", num_due));
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
