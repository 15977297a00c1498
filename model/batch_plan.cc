#include "model/batch_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"

namespace tandem::model {

BatchPlan::BatchPlan(kernels::Backend& backend, const BatchLimits& limits, const RowShare& share)
    : limits_(limits),
      share_(share),
      num_table_pages_(kvcache::PagesForTokens(limits.num_positions_max)),
      memory_(backend) {
  TANDEM_CHECK(limits.num_rows_max > 0 && limits.num_positions_max > 0, "a batch holds something");
  TANDEM_CHECK(0 <= share.rank && share.rank < share.size, "a share of rows is a rank's");
  logits_places_.resize(limits.num_rows_max);
  if (share.size > 1) {
    places_of_all_.resize(limits.num_rows_max);
    batch_rows_.resize(limits.num_rows_max);
  }
  block_.resize(limits.num_rows_max * (5 + num_table_pages_));
  int32_t* next = block_.data();
  for (int32_t** array : {&tokens_, &positions_, &sequence_, &context_length_, &logits_rows_}) {
    *array = std::exchange(next, next + limits.num_rows_max);
  }
  page_tables_ = next;
  for_ops_ = block_.data();
  if (backend.is_host()) return;
  for_ops_ = memory_.Allocate<int32_t>(static_cast<int64_t>(block_.size()));
  // Uploads of memory that is not pinned are right, too.
  is_pinned_ = backend.PinHostMemory(BlockBytes()).ok();
}

BatchPlan::~BatchPlan() {
  if (is_pinned_) memory_.backend().UnpinHostMemory(BlockBytes());
}

absl::Span<std::byte> BatchPlan::BlockBytes() {
  return {reinterpret_cast<std::byte*>(block_.data()), block_.size() * sizeof(int32_t)};
}

absl::Status BatchPlan::CheckSegment(const Segment& segment, int index) const {
  auto fault = [&](auto&&... what) {
    return absl::InvalidArgumentError(absl::StrCat("segment ", index, ": ", what...));
  };
  if (segment.num_rows < 1) return fault("num_rows is ", segment.num_rows, ", at least 1");
  if (segment.first_position < 0 || segment.first_position > limits_.num_positions_max - segment.num_rows) {
    return fault(segment.num_rows, " positions from ", segment.first_position, ", the last allowed is ",
                 limits_.num_positions_max - 1);
  }
  const int64_t end = segment.first_position + segment.num_rows;
  const int num_pages = kvcache::PagesForTokens(end);
  if (static_cast<int64_t>(segment.page_table.size()) < num_pages) {
    return fault("page table of ", segment.page_table.size(), " pages, ", end, " positions need ", num_pages);
  }
  for (int page = 0; page < num_pages; ++page) {
    if (segment.page_table[page] < 0 || segment.page_table[page] >= limits_.num_pages) {
      return fault("page ", segment.page_table[page], " of logical page ", page, ", the pool has ", limits_.num_pages);
    }
  }
  return absl::OkStatus();
}

void BatchPlan::Pad(const Padding& padding) {
  const int num_padding_rows = padding.num_rows - num_rows_;
  TANDEM_CHECK(num_padding_rows >= 0 && num_padding_rows <= kPaddingRowsMax && padding.num_rows <= limits_.num_rows_max,
               "a padded batch is no larger than it may be");
  TANDEM_CHECK(num_logits_rows_ == num_rows_ && share_.size == 1, "a padded batch wants the logits of all rows");
  context_max_ = padding.context_max;
  if (num_padding_rows == 0) return;
  page_tables_[num_segments_ * num_table_pages_] = padding.page;
  for (int i = 0; i < num_padding_rows; ++i) {
    const int row = num_rows_ + i;
    tokens_[row] = 0;
    positions_[row] = i;
    context_length_[row] = i + 1;
    sequence_[row] = num_segments_;
    logits_rows_[row] = row;
  }
  ++num_segments_;
  num_rows_ = num_logits_rows_ = padding.num_rows;
}

absl::Status BatchPlan::Check(const RowBatch& batch) const {
  const int64_t num_rows = static_cast<int64_t>(batch.tokens.size());
  if (num_rows > limits_.num_rows_max) {
    return absl::InvalidArgumentError(absl::StrCat("batch of ", num_rows, " rows, limit ", limits_.num_rows_max));
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    if (batch.tokens[row] < 0 || batch.tokens[row] >= limits_.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", row, ": token ", batch.tokens[row], ", the vocabulary has ", limits_.vocab_size));
    }
  }
  int next_row = 0;
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& segment = batch.segments[i];
    RETURN_IF_ERROR(CheckSegment(segment, static_cast<int>(i)));
    if (segment.row_begin != next_row || segment.num_rows > num_rows - next_row) {
      return absl::InvalidArgumentError(absl::StrCat("segment ", i, ": rows ", segment.row_begin, " to ",
                                                     segment.row_begin + segment.num_rows - 1, ", expected from ",
                                                     next_row, " within ", num_rows));
    }
    next_row += segment.num_rows;
  }
  if (next_row != num_rows) {
    return absl::InvalidArgumentError(absl::StrCat("segments cover ", next_row, " of ", num_rows, " rows"));
  }
  int32_t last = -1;
  for (int32_t row : batch.logits_rows) {
    if (row <= last || row >= num_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits row ", row, " after ", last, ", must ascend and lie below ", num_rows));
    }
    last = row;
  }
  return absl::OkStatus();
}

void BatchPlan::AddSegment(const Segment& segment, int index) {
  for (int j = 0; j < segment.num_rows; ++j) {
    const int batch_row = segment.row_begin + j;
    const int64_t position = segment.first_position + j;
    if (share_.size > 1) {
      const int rank = share_.RankOf(batch_row, index);
      places_of_all_[batch_row] = {.rank = rank,
                                   .page = segment.page_table[position / kvcache::kPageTokens],
                                   .slot = static_cast<int32_t>(position % kvcache::kPageTokens)};
      if (rank != share_.rank) continue;
      batch_rows_[num_rows_] = batch_row;
    }
    const int row = num_rows_++;
    positions_[row] = static_cast<int32_t>(position);
    context_length_[row] = positions_[row] + 1;
    sequence_[row] = index;
  }
  const int num_pages = kvcache::PagesForTokens(segment.first_position + segment.num_rows);
  std::copy_n(segment.page_table.begin(), num_pages, &page_tables_[index * num_table_pages_]);
}

absl::Status BatchPlan::Build(const RowBatch& batch, const std::optional<Padding>& padding) {
  num_rows_ = num_batch_rows_ = num_rows_of_all_ = num_segments_ = num_logits_rows_ = context_max_ = 0;
  RETURN_IF_ERROR(Check(batch));
  for (size_t i = 0; i < batch.segments.size(); ++i) AddSegment(batch.segments[i], static_cast<int>(i));
  num_rows_of_all_ = static_cast<int>(batch.tokens.size());
  // Both ascend.
  size_t place = 0;
  for (int row = 0; row < num_rows_; ++row) {
    const int batch_row = BatchRow(row);
    tokens_[row] = batch.tokens[batch_row];
    while (place < batch.logits_rows.size() && batch.logits_rows[place] < batch_row) ++place;
    if (place == batch.logits_rows.size() || batch.logits_rows[place] != batch_row) continue;
    logits_rows_[num_logits_rows_] = row;
    logits_places_[num_logits_rows_++] = static_cast<int32_t>(place);
  }
  num_segments_ = static_cast<int>(batch.segments.size());
  num_batch_rows_ = num_rows_;
  if (padding.has_value()) Pad(*padding);
  if (for_ops_ == block_.data()) return absl::OkStatus();
  const int32_t* used_end = page_tables_ + num_segments_ * num_table_pages_;
  return memory_.backend().Upload({const_cast<int32_t*>(for_ops_), block_.data(),
                                   static_cast<int64_t>((used_end - block_.data()) * sizeof(int32_t))});
}

kernels::Vector<const int32_t> BatchPlan::logits_rows() const { return {View(logits_rows_), {num_logits_rows_}}; }

kernels::PagedRows BatchPlan::Rows(int begin, int count) const {
  return {.page_tables = {View(page_tables_), {num_segments_, num_table_pages_}},
          .sequence = {View(sequence_) + begin, {count}},
          .context_length = {View(context_length_) + begin, {count}}};
}

int32_t BatchPlan::ContextMax(int begin, int count) const {
  if (context_max_ > 0 || count == 0) return context_max_;
  const int32_t* first = context_length_ + begin;
  return *std::max_element(first, first + count);
}

int32_t BatchPlan::PageOf(int row) const {
  return page_tables_[sequence_[row] * num_table_pages_ + positions_[row] / kvcache::kPageTokens];
}

}  // namespace tandem::model
