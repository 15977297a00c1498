#include "tools/generate/generate.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"

namespace tandem::generate {
namespace {

absl::Status Validate(absl::Span<const int32_t> prompt, const GenerateOptions& options) {
  if (prompt.empty()) return absl::InvalidArgumentError("prompt is empty");
  if (options.max_new_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_new_tokens is ", options.max_new_tokens, ", must be at least 1"));
  }
  if (options.chunk_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_size is ", options.chunk_size, ", must be at least 1"));
  }
  return model::ValidateSamplingParams(options.sampling);
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

absl::StatusOr<std::vector<int32_t>> Generate(model::ModelExecutor& executor, absl::Span<const int32_t> prompt,
                                              const GenerateOptions& options) {
  RETURN_IF_ERROR(Validate(prompt, options));
  Sequence sequence(executor, static_cast<int64_t>(prompt.size()) + options.max_new_tokens);
  model::Sampler sampler(executor.vocab_size());
  absl::Span<const float> logits;
  for (size_t begin = 0; begin < prompt.size(); begin += options.chunk_size) {
    ASSIGN_OR_RETURN(logits, sequence.Append(prompt.subspan(begin, options.chunk_size)));
  }
  std::vector<int32_t> generated;
  while (true) {
    const int64_t position = static_cast<int64_t>(prompt.size() + generated.size());
    generated.push_back(sampler.Sample(logits, options.sampling, /*choice=*/0, position).token);
    if (static_cast<int>(generated.size()) == options.max_new_tokens ||
        absl::c_linear_search(options.stop_token_ids, generated.back())) {
      return generated;
    }
    ASSIGN_OR_RETURN(logits, sequence.Append({&generated.back(), 1}));
  }
}

}  // namespace tandem::generate
