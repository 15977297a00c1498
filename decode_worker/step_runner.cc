#include "decode_worker/step_runner.h"

#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem::decode {

namespace {

absl::Span<std::byte> BytesOf(std::vector<float>& floats) {
  return {reinterpret_cast<std::byte*>(floats.data()), floats.capacity() * sizeof(float)};
}

}  // namespace

StepRunner::StepRunner(model::ModelExecutor& executor, TokenDrawer& drawer, int num_rows_max)
    : executor_(executor), drawer_(drawer) {
  logits_.reserve(static_cast<size_t>(num_rows_max) * static_cast<size_t>(executor.vocab_size()));
  is_pinned_ = executor.PinHostMemory(BytesOf(logits_)).ok();
}

StepRunner::~StepRunner() {
  if (is_pinned_) executor_.UnpinHostMemory(BytesOf(logits_));
}

absl::Status StepRunner::Forward(bool wants_hidden) {
  const model::RowBatch batch{.tokens = tokens_, .segments = segments_, .logits_rows = logits_rows_};
  const auto ignore = [](int) {};
  if (!wants_hidden) return executor_.Forward(batch, ignore, absl::MakeSpan(logits_));
  hidden_.resize(tokens_.size() * static_cast<size_t>(executor_.hidden_size()));
  return executor_.ForwardWithHidden(batch, ignore, absl::MakeSpan(logits_), absl::MakeSpan(hidden_));
}

absl::StatusOr<absl::Span<const StepRunner::Result>> StepRunner::Run(absl::Span<const StepRows> step,
                                                                     bool wants_hidden) {
  tokens_.clear();
  segments_.clear();
  for (const StepRows& rows : step) {
    segments_.push_back({.row_begin = static_cast<int>(tokens_.size()),
                         .num_rows = static_cast<int>(rows.tokens.size() + rows.drafts.size()),
                         .first_position = rows.first_position,
                         .page_table = rows.page_table,
                         .device_pages = rows.device_pages});
    tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
    tokens_.insert(tokens_.end(), rows.drafts.begin(), rows.drafts.end());
  }
  logits_rows_.resize(tokens_.size());
  std::iota(logits_rows_.begin(), logits_rows_.end(), 0);
  const size_t vocab_size = executor_.vocab_size();
  TANDEM_CHECK(tokens_.size() * vocab_size <= logits_.capacity(), "a step has more rows than it may have");
  logits_.resize(tokens_.size() * vocab_size);
  RETURN_IF_ERROR(Forward(wants_hidden));

  drawn_.clear();
  drawn_.reserve(tokens_.size());  // results point into it
  results_.clear();
  const size_t width = wants_hidden ? static_cast<size_t>(executor_.hidden_size()) : 0;
  for (size_t i = 0; i < step.size(); ++i) {
    const StepRows& rows = step[i];
    const auto first_row = static_cast<size_t>(segments_[i].row_begin);
    const size_t first_draw = drawn_.size();
    for (size_t row = 0; row < rows.tokens.size() + rows.drafts.size(); ++row) {
      const int32_t token = tokens_[first_row + row];
      const bool is_draft = row >= rows.tokens.size();
      if (is_draft && (!drawn_.back().ok() || drawn_.back()->token != token)) break;
      const absl::Status taken_in = drawer_.TakeIn(rows.place, token);
      // The drawn token stands one position behind the row.
      drawn_.push_back(!taken_in.ok() ? Draw(taken_in)
                                      : drawer_.Draw(rows.place, rows.first_position + static_cast<int64_t>(row) + 1,
                                                     absl::MakeConstSpan(logits_).subspan(
                                                         (first_row + row) * vocab_size, vocab_size)));
    }
    const size_t num_draws = drawn_.size() - first_draw;
    results_.push_back({.draws = absl::MakeConstSpan(drawn_).subspan(first_draw, num_draws),
                        .hidden = wants_hidden
                                      ? absl::MakeConstSpan(hidden_).subspan(first_row * width, num_draws * width)
                                      : absl::Span<const kernels::Bf16>()});
  }
  return absl::MakeConstSpan(results_);
}

}  // namespace tandem::decode
