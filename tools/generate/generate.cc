#include "tools/generate/generate.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"

namespace tandem::generate {
namespace {

absl::Status Validate(absl::Span<const int32_t> prompt, const GenerateOptions& options, int vocab_size) {
  if (prompt.empty()) return absl::InvalidArgumentError("prompt is empty");
  if (options.max_new_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_new_tokens is ", options.max_new_tokens, ", must be at least 1"));
  }
  if (options.chunk_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_size is ", options.chunk_size, ", must be at least 1"));
  }
  for (const int32_t token : options.stop_token_ids) {
    if (token < 0 || token >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop_token_ids names token ", token, ", outside the vocabulary of ", vocab_size));
    }
  }
  return model::ValidateSamplingParams(options.sampling, vocab_size);
}

// One sequence, from position 0.
class Sequence final {
 public:
  Sequence(model::ModelExecutor& executor, int64_t num_tokens_max)
      : executor_(executor), pages_(kvcache::PagesForTokens(num_tokens_max)), logits_(executor.vocab_size()) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  // Logits of the last of the tokens.
  absl::StatusOr<absl::Span<const float>> Append(absl::Span<const int32_t> tokens) {
    const int num_rows = static_cast<int>(tokens.size());
    const model::Segment segment{
        .row_begin = 0, .num_rows = num_rows, .first_position = num_cached_, .page_table = pages_};
    const int32_t last = num_rows - 1;
    RETURN_IF_ERROR(executor_.Forward(
        {.tokens = tokens, .segments = {&segment, 1}, .logits_rows = {&last, 1}}, [](int) {}, absl::MakeSpan(logits_)));
    num_cached_ += num_rows;
    return logits_;
  }

 private:
  model::ModelExecutor& executor_;
  std::vector<int32_t> pages_;
  std::vector<float> logits_;
  int64_t num_cached_ = 0;
};

}  // namespace

absl::StatusOr<Generated> Generate(model::ModelExecutor& executor, absl::Span<const int32_t> prompt,
                                   const GenerateOptions& options) {
  RETURN_IF_ERROR(Validate(prompt, options, executor.vocab_size()));
  Sequence sequence(executor, static_cast<int64_t>(prompt.size()) + options.max_new_tokens);
  model::Sampler sampler(executor.vocab_size());
  absl::Span<const float> logits;
  for (size_t begin = 0; begin < prompt.size(); begin += options.chunk_size) {
    ASSIGN_OR_RETURN(logits, sequence.Append(prompt.subspan(begin, options.chunk_size)));
  }
  model::TokenCounts counts(std::vector<uint32_t>(prompt.begin(), prompt.end()), options.max_new_tokens);
  Generated generated;
  while (true) {
    const auto num_generated = static_cast<int>(generated.tokens.size());
    const bool may_stop = num_generated >= options.min_new_tokens;
    ASSIGN_OR_RETURN(const model::SampledToken sampled,
                     sampler.Sample({.logits = logits,
                                     .params = options.sampling,
                                     .counts = counts,
                                     .masked_tokens = may_stop ? absl::Span<const int32_t>() : options.stop_token_ids,
                                     .choice = options.choice,
                                     .position = static_cast<int64_t>(prompt.size()) + num_generated}));
    generated.tokens.push_back(sampled.token);
    if (options.sampling.wants_logprobs) generated.logprobs.push_back(sampled.logprobs);
    if (num_generated + 1 == options.max_new_tokens || absl::c_linear_search(options.stop_token_ids, sampled.token)) {
      return generated;
    }
    counts.Add(sampled.token);
    ASSIGN_OR_RETURN(logits, sequence.Append({&generated.tokens.back(), 1}));
  }
}

}  // namespace tandem::generate
