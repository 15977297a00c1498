// A checked RowBatch in the form that ops read: per row its sequence, position and context, per segment its page table.
//
// Everything that a caller could get wrong about a batch is found here, before any byte of the pool is touched; the
// layers behind it trust the plan. Storage is allocated once: a block on the host and, where the backend's memory is
// elsewhere, its copy there, which every Build brings up to date and the views show. Where ranks share a batch's rows,
// the plan is that of one rank's rows, and knows of the others' where their records lie. Tested by batch_plan_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/backend_memory.h"
#include "kernels/ops.h"
#include "kvcache/kv_layout.h"
#include "model/model_executor.h"

namespace tandem::model {

struct BatchLimits {
  int num_rows_max = 0;
  int64_t num_positions_max = 0;  // longest context: prompt and generated tokens of one sequence
  int64_t num_pages = 0;          // of the pool
  int vocab_size = 0;
};

// How the rows of a batch are dealt out to ranks.
enum class RowSplit {
  kInterleave,  // row i to rank i % size: neighbours, whose contexts are alike, to different ranks (context parallel)
  kBySequence,  // every row of the i-th segment to rank i % size: none reads what another rank writes (data parallel)
  kAllRows,     // every row to every rank, each of which has a part of the layers' outputs (tensor parallel)
};

// Which rows of a batch are this rank's.
struct RowShare {
  int rank = 0;
  int size = 1;
  RowSplit split = RowSplit::kInterleave;

  constexpr int RankOf(int batch_row, int segment) const {
    if (split == RowSplit::kAllRows) return rank;
    return (split == RowSplit::kInterleave ? batch_row : segment) % size;
  }
  // The most rows that one rank has of a batch of so many.
  constexpr int64_t NumRowsMax(int64_t num_batch_rows) const {
    return split == RowSplit::kInterleave ? (num_batch_rows + size - 1) / size : num_batch_rows;
  }
};

// Whose a row of the batch is, and where its records lie in every layer.
struct RecordPlace {
  int32_t rank = 0;
  int32_t page = 0;
  int32_t slot = 0;
};

// Rows that nobody asked for, behind those of the batch: batches of many sizes have few shapes then, and steps can be
// recorded once for each.
struct Padding {
  int num_rows = 0;         // of the whole; no padding where the batch has as many
  int32_t page = 0;         // theirs alone
  int32_t context_max = 0;  // what ContextMax says of a padded plan, at least every row's
};
// Each writes a slot of its own of their page.
inline constexpr int kPaddingRowsMax = kvcache::kPageTokens;

class BatchPlan final {
 public:
  // The backend outlives the plan. Limits are those of whole batches, whatever share of their rows this is.
  BatchPlan(kernels::Backend& backend, const BatchLimits& limits, const RowShare& share = {});
  ~BatchPlan();
  BatchPlan(const BatchPlan&) = delete;
  BatchPlan& operator=(const BatchPlan&) = delete;

  // Whether there was memory for it.
  const absl::Status& status() const { return memory_.status(); }

  // INVALID_ARGUMENT where there are more rows than num_rows_max, segments do not cover the rows in order, a position,
  // page or token is out of range, or a page table is too short; the plan is then unusable until the next Build.
  // Two rows must not name one slot: the engine's promise, not checked here. What is enqueued with the views of the
  // batch before must be done.
  absl::Status Build(const RowBatch& batch) { return Build(batch, std::nullopt); }
  // With padding: at most kPaddingRowsMax rows of it, the logits of all rows of the batch are wanted, and all rows are
  // this rank's.
  absl::Status Build(const RowBatch& batch, const std::optional<Padding>& padding);

  // Rows are counted among this rank's own but where it says otherwise.
  int num_rows() const { return num_rows_; }              // padding included
  int num_batch_rows() const { return num_batch_rows_; }  // the caller's
  int num_rows_of_all() const { return num_rows_of_all_; }
  const RowShare& share() const { return share_; }
  // Which row of the batch this one is.
  int BatchRow(int row) const { return share_.size == 1 ? row : batch_rows_[row]; }
  // ---- For ops ----
  kernels::Vector<const int32_t> tokens() const { return {View(tokens_), {num_rows_}}; }
  kernels::Vector<const int32_t> positions() const { return {View(positions_), {num_rows_}}; }
  kernels::Vector<const int32_t> logits_rows() const;
  // Rows [begin, begin + count) with their contexts; their own records are the last of them.
  kernels::PagedRows Rows(int begin, int count) const;
  kernels::PagedRows AllRows() const { return Rows(0, num_rows_); }
  // ---- For the host ----
  // The longest context among rows [begin, begin + count).
  int32_t ContextMax(int begin, int count) const;
  int32_t ContextOf(int row) const { return context_length_[row]; }
  // The page that holds the row's own record.
  int32_t PageOf(int row) const;
  // Which of the batch's logits_rows the i-th of logits_rows() is.
  int LogitsPlace(int i) const { return logits_places_[i]; }
  // Of every row of the batch, whoever has it. Only where there are several shares.
  absl::Span<const RecordPlace> PlacesOfAll() const {
    return absl::MakeConstSpan(places_of_all_).first(num_rows_of_all_);
  }

 private:
  absl::Status Check(const RowBatch& batch) const;
  absl::Status CheckSegment(const Segment& segment, int index) const;
  void AddSegment(const Segment& segment, int index);
  void Pad(const Padding& padding);
  absl::Span<std::byte> BlockBytes();
  // Where ops find what stands at this place of the block.
  const int32_t* View(const int32_t* on_host) const { return for_ops_ + (on_host - block_.data()); }

  const BatchLimits limits_;
  const RowShare share_;
  const int64_t num_table_pages_;
  int num_rows_ = 0;
  int num_batch_rows_ = 0;
  int num_rows_of_all_ = 0;
  int32_t context_max_ = 0;  // of a padded plan, else 0
  int num_segments_ = 0;
  int num_logits_rows_ = 0;
  kernels::BackendMemory memory_;
  std::vector<int32_t> block_;
  const int32_t* for_ops_ = nullptr;  // the block itself, or its copy
  bool is_pinned_ = false;
  int32_t *tokens_, *positions_, *sequence_, *context_length_, *logits_rows_;  // [num_rows_max] each
  std::vector<int32_t> batch_rows_;         // [num_rows_max], empty where one rank has all rows
  std::vector<int32_t> logits_places_;      // [num_rows_max]
  std::vector<RecordPlace> places_of_all_;  // [num_rows_max], empty where one rank has all rows
  int32_t* page_tables_;  // [num_rows_max, num_table_pages_], the block's end: a segment has at least one row
};

}  // namespace tandem::model
