#include "model/expert_exchange.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::E4m3;
using kernels::Matrix;

template <typename T>
std::byte* Put(const T* from, int64_t count, std::byte* to) {
  std::memcpy(to, from, count * sizeof(T));
  return to + count * sizeof(T);
}
template <typename T>
const std::byte* Take(const std::byte* from, int64_t count, T* to) {
  std::memcpy(to, from, count * sizeof(T));
  return from + count * sizeof(T);
}

}  // namespace

int64_t ExpertExchange::NumPairsMax(const ModelConfig& config, int64_t num_rows_max, int num_ranks) {
  const int64_t experts_max = ShareOf(config.n_routed_experts, 0, num_ranks).count;
  return num_rows_max * std::min<int64_t>(config.num_experts_per_tok, experts_max);
}

ExpertExchange::ExpertExchange(Communicator& communicator, const ModelConfig& config, int64_t num_rows_max,
                               int64_t num_own_rows_max, bool has_bf16_experts)
    : communicator_(communicator),
      hidden_size_(config.hidden_size),
      num_experts_(config.n_routed_experts),
      top_k_(config.num_experts_per_tok),
      experts_(ShareOf(config.n_routed_experts, communicator.rank(), communicator.size())),
      sent_(communicator.size()),
      received_(communicator.size()),
      send_(communicator.size()),
      receive_(communicator.size()) {
  for (int rank = 0; rank < communicator.size(); ++rank) {
    send_counts_.emplace_back(reinterpret_cast<const std::byte*>(&sent_[rank]), sizeof(Counts));
    receive_counts_.emplace_back(reinterpret_cast<std::byte*>(&received_[rank]), sizeof(Counts));
  }
  const int64_t num_pairs_max = NumPairsMax(config, num_rows_max, communicator.size());
  const int64_t row_bytes = DispatchedRowBytes(hidden_size_, /*as_fp8=*/true, has_bf16_experts);
  const int64_t num_copies_max = num_own_rows_max * std::min(communicator.size(), top_k_);
  send_buffer_.resize(num_copies_max * row_bytes + num_own_rows_max * top_k_ * kDispatchedPairBytes);
  receive_buffer_.resize(num_rows_max * row_bytes + num_pairs_max * kDispatchedPairBytes);
  codes_.resize(num_rows_max * hidden_size_);
  scales_.resize(num_rows_max * hidden_size_ / kernels::kQuantGroup);
  if (has_bf16_experts) x_.resize(num_rows_max * hidden_size_);
  arrived_experts_.resize(num_pairs_max);
  arrived_rows_.resize(num_pairs_max);
  own_pairs_.resize(num_own_rows_max * top_k_);
  own_results_.resize(num_own_rows_max * top_k_ * hidden_size_);
}

absl::Status ExpertExchange::Dispatch(const Matrix<const Bf16>& x, const QuantizedRows& quantized, bool as_fp8,
                                      bool as_bf16, const Matrix<const int32_t>& expert_ids, Arrived& arrived) {
  const int size = communicator_.size();
  const int64_t num_scales = hidden_size_ / kernels::kQuantGroup;
  const int64_t row_bytes = DispatchedRowBytes(hidden_size_, as_fp8, as_bf16);
  num_own_rows_ = expert_ids.shape[0];

  // For each rank: its rows, then its pairs. Where a row's results will stand follows from the same walk.
  std::byte* next = send_buffer_.data();
  int32_t num_own_pairs = 0;
  for (int rank = 0; rank < size; ++rank) {
    const ValueShare share = ShareOf(num_experts_, rank, size);
    const auto is_there = [&](int32_t expert) { return expert >= share.begin && expert < share.begin + share.count; };
    const std::byte* const begin = next;
    sent_[rank] = {};
    for (int64_t row = 0; row < num_own_rows_; ++row) {
      const int32_t* ids = expert_ids.Row(row);
      if (!std::any_of(ids, ids + top_k_, is_there)) continue;
      ++sent_[rank].rows;
      if (as_fp8) {
        next = Put(quantized.q.Row(row), hidden_size_, next);
        next = Put(quantized.scale.Row(row), num_scales, next);
      }
      if (as_bf16) next = Put(x.Row(row), hidden_size_, next);
    }
    int32_t row_there = 0;
    for (int64_t row = 0; row < num_own_rows_; ++row) {
      const int32_t* ids = expert_ids.Row(row);
      const int32_t num_before = sent_[rank].pairs;
      for (int j = 0; j < top_k_; ++j) {
        if (!is_there(ids[j])) continue;
        const int32_t pair[2] = {row_there, static_cast<int32_t>(ids[j] - share.begin)};
        next = Put(pair, 2, next);
        own_pairs_[row * top_k_ + j] = num_own_pairs++;
        ++sent_[rank].pairs;
      }
      if (sent_[rank].pairs > num_before) ++row_there;
    }
    send_[rank] = {begin, static_cast<size_t>(next - begin)};
  }

  RETURN_IF_ERROR(communicator_.AllToAll(send_counts_, receive_counts_));

  int64_t num_rows = 0, num_pairs = 0;
  for (const Counts& count : received_) {
    num_rows += count.rows;
    num_pairs += count.pairs;
  }
  std::byte* place = receive_buffer_.data();
  for (int rank = 0; rank < size; ++rank) {
    const int64_t num_bytes = received_[rank].rows * row_bytes + received_[rank].pairs * kDispatchedPairBytes;
    receive_[rank] = {place, static_cast<size_t>(num_bytes)};
    place += num_bytes;
  }
  RETURN_IF_ERROR(communicator_.AllToAll(send_, receive_));

  int64_t row = 0, pair = 0;
  for (int rank = 0; rank < size; ++rank) {
    const std::byte* from = receive_[rank].data();
    const auto first_row = static_cast<int32_t>(row);
    for (int i = 0; i < received_[rank].rows; ++i, ++row) {
      if (as_fp8) {
        from = Take(from, hidden_size_, codes_.data() + row * hidden_size_);
        from = Take(from, num_scales, scales_.data() + row * num_scales);
      }
      if (as_bf16) from = Take(from, hidden_size_, x_.data() + row * hidden_size_);
    }
    for (int i = 0; i < received_[rank].pairs; ++i, ++pair) {
      int32_t values[2];
      from = Take(from, 2, values);
      arrived_rows_[pair] = first_row + values[0];
      arrived_experts_[pair] = values[1];
    }
  }
  num_pairs_ += num_pairs;
  arrived = {.experts = {arrived_experts_.data(), {num_pairs, 1}},
             .rows = absl::MakeConstSpan(arrived_rows_).first(num_pairs)};
  if (as_bf16) arrived.x = {x_.data(), {num_rows, hidden_size_}};
  if (as_fp8) {
    arrived.quantized = {.q = {codes_.data(), {num_rows, hidden_size_}},
                         .scale = {scales_.data(), {num_rows, num_scales}}};
  }
  return absl::OkStatus();
}

absl::Status ExpertExchange::Return(const Matrix<const Bf16>& results, Matrix<const Bf16>& own_results,
                                    Matrix<const int32_t>& own_pairs) {
  const int64_t num_own_pairs = num_own_rows_ * top_k_;
  const auto* from = reinterpret_cast<const std::byte*>(results.data);
  auto* to = reinterpret_cast<std::byte*>(own_results_.data());
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const int64_t result_bytes = hidden_size_ * static_cast<int64_t>(sizeof(Bf16));
    send_[rank] = {from, static_cast<size_t>(received_[rank].pairs * result_bytes)};
    receive_[rank] = {to, static_cast<size_t>(sent_[rank].pairs * result_bytes)};
    from += send_[rank].size();
    to += receive_[rank].size();
  }
  RETURN_IF_ERROR(communicator_.AllToAll(send_, receive_));
  own_results = {own_results_.data(), {num_own_pairs, hidden_size_}};
  own_pairs = {own_pairs_.data(), {num_own_rows_, top_k_}};
  return absl::OkStatus();
}

}  // namespace tandem::model
