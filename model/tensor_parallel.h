// Tensor parallelism: every linear layer of attention and MLPs is cut by its outputs, so that a rank has some heads,
// some of an MLP's width, some columns of what follows, and some of the vocabulary. All ranks have all rows.
//
// Nothing is cut along a summed axis: the input of an output projection is gathered, quantised as it is read anyway,
// and each rank computes whole sums for its columns, which are gathered in turn. So every bit is that of one rank,
// whatever the number of ranks, and fewer bytes travel than FP32 partial sums would take. Latents, index keys, norms
// and the router are computed on every rank. On the host only. Tested by rank_group_test.cc and rank_layouts_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/dtypes.h"
#include "kernels/tensor_view.h"
#include "model/communicator/communicator.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace tandem::model {

// Columns [begin, begin + count) of `dim` that a rank has: whole units, as even as they go.
ValueShare ColumnsOf(int64_t dim, int64_t unit, int rank, int size);
// Heads that are never parted: so many that their rows of q_b_proj share no scale with others'.
int64_t HeadUnit(const ModelConfig& config);

// Views of one rank's part. INVALID_ARGUMENT naming the tensor that cannot be cut so.
absl::StatusOr<std::shared_ptr<const ModelWeights>> SliceWeights(std::shared_ptr<const ModelWeights> whole,
                                                                 kernels::Backend& backend, int rank, int size);

class ColumnGather final {
 public:
  // num_rows_max: of a batch. The communicator outlives this.
  ColumnGather(Communicator& communicator, const ModelConfig& config, int64_t num_rows_max);

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }

  // mine: [rows, this rank's columns of all]; all: [rows, dim].
  absl::Status Gather(const kernels::Matrix<const kernels::Bf16>& mine, int64_t unit,
                      const kernels::Matrix<kernels::Bf16>& all);
  // The same of quantised rows; unit: a multiple of 128.
  absl::Status Gather(const QuantizedRows& mine, int64_t unit, const QuantizedRows& all);
  // Every rank's own rows, rank, rank + size, ..., of a matrix that is equal on all ranks when it returns.
  absl::Status GatherRows(const kernels::Matrix<kernels::Bf16>& rows);

  // Where a gathered input stands: [rows, dim].
  kernels::Matrix<kernels::Bf16> GatheredRows(int64_t rows, int64_t dim) { return {x_.data(), {rows, dim}}; }
  QuantizedRows GatheredQuantizedRows(int64_t rows, int64_t dim) {
    return {.q = {codes_.data(), {rows, dim}}, .scale = {scales_.data(), {rows, dim / kernels::kQuantGroup}}};
  }
  // Where this rank's columns of an output stand before they are gathered.
  kernels::Matrix<kernels::Bf16> OwnColumns(int64_t rows, int64_t count) { return {own_.data(), {rows, count}}; }

 private:
  // Row bytes that each rank sends, all of them `rows` times; then calls take(rank, bytes of its piece).
  absl::Status Exchange(int64_t rows, const std::vector<int64_t>& row_bytes);

  Communicator& communicator_;
  std::vector<std::byte> send_, receive_;
  std::vector<MutableBytes> pieces_;  // of receive_, by rank
  std::vector<int64_t> row_bytes_;    // by rank
  std::vector<kernels::Bf16> x_, own_;
  std::vector<kernels::E4m3> codes_;
  std::vector<float> scales_;
};

}  // namespace tandem::model
