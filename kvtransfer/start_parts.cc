#include "kvtransfer/start_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::kvtransfer {
namespace {

// At most 5 bytes a token on the wire: parts stay below 256 KiB.
constexpr size_t kTokensPerPart = 50'000;

// What must hold of a request on either side.
absl::Status ValidateShape(int64_t num_tokens, int num_prefix_tokens_held, int num_choices,
                           const std::vector<uint32_t>& generated_tokens) {
  if (num_prefix_tokens_held < 0 || num_prefix_tokens_held > num_tokens ||
      num_prefix_tokens_held % kvcache::kPageTokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat("held prefix of ", num_prefix_tokens_held,
                                                   " tokens is not whole pages of a prompt of ", num_tokens));
  }
  if (num_choices < 1) return absl::InvalidArgumentError(absl::StrCat(num_choices, " choices, at least 1"));
  if (!generated_tokens.empty() && num_choices != 1) {
    return absl::InvalidArgumentError(absl::StrCat("generated tokens belong to one choice, got ", num_choices));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRequest(const TransferRequest& request, const kvcache::KvLayout& target_layout) {
  const auto num_tokens = static_cast<int64_t>(request.prompt_tokens.size());
  if (num_tokens == 0) return absl::InvalidArgumentError("prompt is empty");
  const int num_pages = kvcache::PagesForTokens(num_tokens);
  if (static_cast<int>(request.target_pages.size()) != num_pages) {
    return absl::InvalidArgumentError(absl::StrCat("a prompt of ", num_tokens, " tokens needs ", num_pages,
                                                   " target pages, got ", request.target_pages.size()));
  }
  for (const int32_t page : request.target_pages) {
    if (page < 0 || page >= target_layout.num_pages) {
      return absl::InvalidArgumentError(
          absl::StrCat("target page ", page, " is not in the pool of ", target_layout.num_pages));
    }
  }
  if (request.remaining_time <= absl::ZeroDuration()) return absl::DeadlineExceededError("no time is left");
  return ValidateShape(num_tokens, request.num_prefix_tokens_held, request.num_choices, request.generated_tokens);
}

std::vector<proto::Start> BuildStartParts(const TransferRequest& request) {
  const std::vector<uint32_t>& tokens = request.prompt_tokens;
  std::vector<proto::Start> parts;
  size_t begin = 0;
  do {
    const size_t end = std::min(begin + kTokensPerPart, tokens.size());
    proto::Start& part = parts.emplace_back();
    part.set_part_index(static_cast<uint32_t>(parts.size() - 1));
    part.mutable_tokens()->Add(tokens.begin() + begin, tokens.begin() + end);
    part.set_is_last(end == tokens.size());
    begin = end;
  } while (begin < tokens.size());

  proto::Start& first = parts.front();
  first.set_num_tokens(static_cast<uint32_t>(tokens.size()));
  first.mutable_generated_tokens()->Add(request.generated_tokens.begin(), request.generated_tokens.end());
  *first.mutable_sampling() = request.sampling;
  *first.mutable_stopping() = request.stopping;
  first.set_num_prefix_tokens_held(static_cast<uint32_t>(request.num_prefix_tokens_held));
  first.set_cache_salt(request.cache_salt);
  first.set_priority(request.priority);
  first.set_trace_parent(request.trace_parent);
  first.set_num_choices(static_cast<uint32_t>(request.num_choices));
  if (request.remaining_time < absl::InfiniteDuration()) {  // 0 would mean none
    first.set_remaining_time_us(std::max<int64_t>(1, absl::ToInt64Microseconds(request.remaining_time)));
  }
  return parts;
}

absl::Status StartAssembly::ValidateFirst(const proto::Start& start, int num_tokens_max) {
  if (start.num_tokens() <= static_cast<uint32_t>(num_tokens_max)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("prompt of ", start.num_tokens(), " tokens, at most ", num_tokens_max));
}

StartAssembly::StartAssembly(const proto::RequestKey& key, const proto::Start& start, absl::Duration now)
    : num_tokens_(start.num_tokens()) {
  request_.key = key;
  request_.generated_tokens.assign(start.generated_tokens().begin(), start.generated_tokens().end());
  request_.sampling = start.sampling();
  request_.stopping = start.stopping();
  request_.num_choices = std::max(1, static_cast<int>(start.num_choices()));
  request_.num_prefix_tokens_held = static_cast<int>(start.num_prefix_tokens_held());
  request_.cache_salt = start.cache_salt();
  request_.priority = start.priority();
  request_.trace_parent = start.trace_parent();
  if (start.remaining_time_us() > 0) {
    request_.deadline = now + absl::Microseconds(static_cast<int64_t>(start.remaining_time_us()));
  }
}

void StartAssembly::Add(const proto::Start& part) {
  if (is_complete_ || part.part_index() != next_part_) return;
  ++next_part_;
  request_.prompt_tokens.insert(request_.prompt_tokens.end(), part.tokens().begin(), part.tokens().end());
  is_complete_ = part.is_last() || request_.prompt_tokens.size() > num_tokens_;
}

absl::Status StartAssembly::Validate() const {
  if (request_.prompt_tokens.empty() || request_.prompt_tokens.size() != num_tokens_) {
    return absl::InvalidArgumentError(
        absl::StrCat("start promised ", num_tokens_, " prompt tokens and brought ", request_.prompt_tokens.size()));
  }
  return ValidateShape(num_tokens_, request_.num_prefix_tokens_held, request_.num_choices, request_.generated_tokens);
}

}  // namespace tandem::kvtransfer
