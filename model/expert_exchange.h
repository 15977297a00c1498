// Experts spread over the ranks of a group: each rank has consecutive ones, rows travel to the experts that they chose
// and results travel back to the rank that has the row, which adds them up as one rank would (Numerics 6).
//
// A row goes to a rank once, however many of its experts are there, in the form that the experts' first projections
// read: E4M3 with scales, or BF16. Each expert's result comes back singly, in BF16: partial sums would be added in
// another order. No row is dropped: buffers hold every row of a batch at every expert of a rank.
// On the host only. Tested by rank_group_test.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/dtypes.h"
#include "kernels/tensor_view.h"
#include "model/communicator/communicator.h"
#include "model/model_config.h"
#include "model/workspace.h"

namespace tandem::model {

// Bytes of a row of `hidden_size` values on its way to an expert, by the forms that are sent.
constexpr int64_t DispatchedRowBytes(int64_t hidden_size, bool as_fp8, bool as_bf16) {
  return (as_fp8 ? hidden_size + hidden_size / kernels::kQuantGroup * int64_t{sizeof(float)} : 0) +
         (as_bf16 ? hidden_size * int64_t{sizeof(kernels::Bf16)} : 0);
}
// Of what says which expert of the receiver a row has chosen: one for each pair of a row and an expert.
inline constexpr int64_t kDispatchedPairBytes = 2 * sizeof(int32_t);

class ExpertExchange final {
 public:
  // num_rows_max: of a whole batch, num_own_rows_max of this rank's part. has_bf16_experts: whether rows may have to be
  // sent in BF16. The communicator outlives this.
  ExpertExchange(Communicator& communicator, const ModelConfig& config, int64_t num_rows_max, int64_t num_own_rows_max,
                 bool has_bf16_experts);

  // The experts of this rank.
  const ValueShare& experts() const { return experts_; }
  // The most rows and pairs of a row and an expert that come here from one batch.
  static int64_t NumPairsMax(const ModelConfig& config, int64_t num_rows_max, int num_ranks);

  // What came here: rows, and pairs of a row and one of this rank's experts, by the rank that they came from.
  struct Arrived {
    kernels::Matrix<const kernels::Bf16> x;  // [rows, hidden_size], null where it was not sent
    QuantizedRows quantized;                 // the same
    kernels::Matrix<const int32_t> experts;  // [pairs, 1], counted from this rank's first
    absl::Span<const int32_t> rows;          // [pairs], into x
  };
  // x, quantized: this rank's rows; expert_ids: [rows, num_experts_per_tok] ascending. Every rank calls it.
  absl::Status Dispatch(const kernels::Matrix<const kernels::Bf16>& x, const QuantizedRows& quantized, bool as_fp8,
                        bool as_bf16, const kernels::Matrix<const int32_t>& expert_ids, Arrived& arrived);

  // results: [arrived pairs, hidden_size], in their order. Gives those of this rank's own rows: that of row i's j-th
  // expert is row own_pairs[i, j] of own_results. Every rank calls it, after its Dispatch.
  absl::Status Return(const kernels::Matrix<const kernels::Bf16>& results,
                      kernels::Matrix<const kernels::Bf16>& own_results, kernels::Matrix<const int32_t>& own_pairs);

  // Pairs that this rank's experts have computed since it began: what balance is. From any thread.
  int64_t num_pairs() const { return num_pairs_; }

 private:
  struct Counts {
    int32_t rows = 0;
    int32_t pairs = 0;
  };

  Communicator& communicator_;
  const int64_t hidden_size_;
  const int num_experts_;
  const int top_k_;
  const ValueShare experts_;
  std::vector<Counts> sent_, received_;       // by rank
  std::vector<ConstBytes> send_counts_;       // sent_, by rank
  std::vector<MutableBytes> receive_counts_;  // received_, by rank
  std::vector<std::byte> send_buffer_, receive_buffer_;
  std::vector<ConstBytes> send_;       // by rank
  std::vector<MutableBytes> receive_;  // by rank
  std::vector<kernels::E4m3> codes_;
  std::vector<float> scales_;
  std::vector<kernels::Bf16> x_;
  std::vector<int32_t> arrived_experts_, arrived_rows_;  // [pairs]
  std::vector<int32_t> own_pairs_;                       // [own rows, top_k]
  std::vector<kernels::Bf16> own_results_;
  int64_t num_own_rows_ = 0;
  std::atomic<int64_t> num_pairs_ = 0;
};

}  // namespace tandem::model
