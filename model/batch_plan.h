// A checked RowBatch in the form that ops read: per row its sequence, position and context, per segment its page table.
//
// Everything that a caller could get wrong about a batch is found here, before any byte of the pool is touched; the
// layers behind it trust the plan. Storage is allocated once. Tested by batch_plan_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops.h"
#include "model/model_executor.h"

namespace tandem::model {

struct BatchLimits {
  int num_rows_max = 0;
  int64_t num_positions_max = 0;  // longest context: prompt and generated tokens of one sequence
  int64_t num_pages = 0;          // of the pool
  int vocab_size = 0;
};

class BatchPlan final {
 public:
  explicit BatchPlan(const BatchLimits& limits);

  // INVALID_ARGUMENT where there are more rows than num_rows_max, segments do not cover the rows in order, a position,
  // page or token is out of range, or a page table is too short; the plan is then unusable until the next Build.
  // Two rows must not name one slot: the engine's promise, not checked here.
  absl::Status Build(const RowBatch& batch);

  int num_rows() const { return num_rows_; }
  kernels::Vector<const int32_t> tokens() const { return {tokens_.data(), {num_rows_}}; }
  kernels::Vector<const int32_t> positions() const { return {positions_.data(), {num_rows_}}; }
  kernels::Vector<const int32_t> logits_rows() const;
  // Rows [begin, begin + count) with their contexts; their own records are the last of them.
  kernels::PagedRows Rows(int begin, int count) const;
  kernels::PagedRows AllRows() const { return Rows(0, num_rows_); }
  // The longest context among rows [begin, begin + count).
  int32_t ContextMax(int begin, int count) const;

 private:
  absl::Status CheckSegment(const Segment& segment, int index) const;

  const BatchLimits limits_;
  const int64_t num_table_pages_;
  int num_rows_ = 0;
  int num_segments_ = 0;
  int num_logits_rows_ = 0;
  std::vector<int32_t> tokens_, positions_, sequence_, context_length_, logits_rows_;
  std::vector<int32_t> page_tables_;  // [num_rows_max, num_table_pages_]: a segment has at least one row
};

}  // namespace tandem::model
