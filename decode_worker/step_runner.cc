#include "decode_worker/step_runner.h"

#include <numeric>

namespace tandem::decode {

StepRunner::Draw StepRunner::DrawAfter(const StepRows& rows, size_t row, absl::Span<const float> logits) {
  const worker_shell::DrawRules& draws = *rows.draws;
  // The drawn token stands one position behind the row.
  const int64_t position = rows.first_position + static_cast<int64_t>(row) + 1;
  if (draws.params.HasPenalties()) rows.counts->Add(static_cast<int32_t>(rows.tokens[row]));
  model::SampleInput input = {.logits = logits,
                              .params = draws.params,
                              .counts = *rows.counts,
                              .masked_tokens = draws.MaskedAt(position),
                              .choice = rows.choice,
                              .position = position};
  if (rows.matcher != nullptr) {
    // Only what was allowed has been drawn: a token that is not was brought by somebody else.
    if (const absl::Status status = rows.matcher->Accept(static_cast<int32_t>(rows.tokens[row])); !status.ok()) {
      return absl::InternalError(status.message());
    }
    input.allowed = &constraints_.MaskAfter(*rows.matcher);
    if (rows.matcher->must_end()) input.masked_tokens = {};  // a shorter answer than asked for, rather than none
  }
  return sampler_.Sample(input);
}

absl::StatusOr<absl::Span<const StepRunner::Draw>> StepRunner::Run(absl::Span<const StepRows> step) {
  tokens_.clear();
  segments_.clear();
  for (const StepRows& rows : step) {
    segments_.push_back({.row_begin = static_cast<int>(tokens_.size()),
                         .num_rows = static_cast<int>(rows.tokens.size()),
                         .first_position = rows.first_position,
                         .page_table = rows.page_table,
                         .device_pages = rows.device_pages});
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
    for (size_t row = 0; row < rows.tokens.size(); ++row) {
      drawn_.push_back(
          DrawAfter(rows, row, absl::MakeConstSpan(logits_).subspan(drawn_.size() * vocab_size, vocab_size)));
    }
  }
  return absl::MakeConstSpan(drawn_);
}

}  // namespace tandem::decode
