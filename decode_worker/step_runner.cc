#include "decode_worker/step_runner.h"

#include <numeric>

#include "worker_shell/sampling.h"

namespace tandem::decode {

absl::StatusOr<absl::Span<const uint32_t>> StepRunner::Run(absl::Span<const StepRows> step) {
  tokens_.clear();
  segments_.clear();
  for (const StepRows& rows : step) {
    segments_.push_back({.row_begin = static_cast<int>(tokens_.size()),
                         .num_rows = static_cast<int>(rows.tokens.size()),
                         .first_position = rows.first_position,
                         .page_table = rows.page_table});
    tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
  }
  logits_rows_.resize(tokens_.size());
  std::iota(logits_rows_.begin(), logits_rows_.end(), 0);
  const size_t vocab_size = executor_.vocab_size();
  logits_.resize(tokens_.size() * vocab_size);
  const absl::Status status = executor_.Forward(
      {.tokens = tokens_, .segments = segments_, .logits_rows = logits_rows_}, [](int) {}, absl::MakeSpan(logits_));
  if (!status.ok()) return status;

  drawn_.clear();
  for (const StepRows& rows : step) {
    const model::SamplingParams sampling = worker_shell::SamplingFrom(*rows.sampling);
    for (size_t i = 0; i < rows.tokens.size(); ++i) {
      const auto row_logits = absl::MakeConstSpan(logits_).subspan(drawn_.size() * vocab_size, vocab_size);
      // The drawn token stands one position behind the row.
      const auto drawn =
          sampler_.Sample(row_logits, sampling, /*choice=*/0, rows.first_position + static_cast<int64_t>(i) + 1);
      drawn_.push_back(static_cast<uint32_t>(drawn.token));
    }
  }
  return absl::MakeConstSpan(drawn_);
}

}  // namespace tandem::decode
