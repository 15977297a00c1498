// A HashModel with HiSparse: it reads the latents of a sequence through the real device buffers
// (model/device_buffers.h) and nothing else, so that whatever an engine or a buffer gets wrong (a buffer that was not
// forgotten, rows that did not go back, a page table of somebody else) changes a text.
//
// Each Forward fills a pool of its own, whose latents are poisoned before, with what the buffers give for every earlier
// position, as many tokens at a time as a row selects; runs the HashModel on it; and puts the new rows' latents where
// the buffers have their newest. Index keys and the MTP layer stay in its own pool, as on a device.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status_macros.h"
#include "kernels/cpu_backend.h"
#include "kvcache/kv_pool.h"
#include "model/device_buffers.h"
#include "model/model_executor.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/pool_memory.h"

namespace tandem::sim {

struct HiSparseOptions {
  int64_t num_device_pages = 0;  // 0: off
  int num_kept_pages_max = 0;
};

class HiSparseModel final : public model::ModelExecutor {
 public:
  // Tokens that a row reads at a time; a buffer may hold no more.
  static constexpr int kTopK = kvcache::kPageTokens;

  HiSparseModel(const kvcache::KvPool& pool, const HashModelOptions& options, int num_rows_max,
                const HiSparseOptions& hisparse)
      : pool_(pool),
        own_memory_(pool.layout()),
        model_(own_memory_.pool(), options),
        buffers_(backend_, pool.layout(), {reinterpret_cast<uint8_t*>(pool_.bytes().data()), pool_.bytes().size()},
                 pool.layout().num_layers - (options.has_mtp ? 1 : 0), kTopK, num_rows_max,
                 {.num_pages = hisparse.num_device_pages, .num_buffer_pages_max = 1 + hisparse.num_kept_pages_max}),
        selected_(static_cast<size_t>(num_rows_max) * kTopK) {}

  absl::Status Forward(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                       absl::Span<float> logits) override {
    RETURN_IF_ERROR(ReadLatents(batch));
    RETURN_IF_ERROR(model_.Forward(batch, layer_done, logits));
    KeepNewest(batch);
    return absl::OkStatus();
  }
  absl::Status ForwardWithHidden(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                 absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) override {
    RETURN_IF_ERROR(ReadLatents(batch));
    RETURN_IF_ERROR(model_.ForwardWithHidden(batch, layer_done, logits, hidden));
    KeepNewest(batch);
    return absl::OkStatus();
  }
  // The MTP layer is whole on the device.
  absl::Status RunMtp(const model::RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                      absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                      absl::Span<kernels::Bf16> out_hidden) override {
    return model_.RunMtp(batch, hidden, layer_done, logits, out_hidden);
  }
  absl::Status PagesArrived(absl::Span<const int32_t> pages) override {
    const kvcache::KvPool own = own_memory_.pool();
    for (const int32_t page : pages) {
      if (page < 0 || page >= pool_.layout().num_pages) return absl::InvalidArgumentError("a page beyond the pool");
      for (int layer = 0; layer < num_layers(); ++layer) {
        for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
          if (kind == kvcache::RecordKind::kLatent && layer < num_main_layers()) continue;
          std::ranges::copy(pool_.Page(kind, layer, page), own.Page(kind, layer, page).begin());
        }
      }
    }
    return absl::OkStatus();
  }
  absl::Status PagesLeave(absl::Span<const int32_t> pages) override {
    const kvcache::KvPool own = own_memory_.pool();
    for (const int32_t page : pages) {
      if (page < 0 || page >= pool_.layout().num_pages) return absl::InvalidArgumentError("a page beyond the pool");
      for (int layer = 0; layer < num_layers(); ++layer) {
        for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
          if (kind == kvcache::RecordKind::kLatent && layer < num_main_layers()) continue;
          std::ranges::copy(own.Page(kind, layer, page), pool_.Page(kind, layer, page).begin());
        }
      }
    }
    return absl::OkStatus();
  }
  absl::Status WriteBack(const model::Segment& sequence) override { return buffers_.WriteBack(sequence); }
  void ForgetBuffer(int32_t first_device_page) override { buffers_.Forget(first_device_page); }
  const model::DeviceBufferCounters* device_buffer_counters() const override { return &buffers_.counters(); }
  int vocab_size() const override { return model_.vocab_size(); }
  int num_layers() const override { return model_.num_layers(); }
  bool has_mtp() const override { return model_.has_mtp(); }
  int hidden_size() const override { return model_.hidden_size(); }

 private:
  std::byte* OwnLatent(const model::Segment& segment, int layer, int64_t position) {
    return own_memory_.pool()
               .Page(kvcache::RecordKind::kLatent, layer, segment.page_table[position / kvcache::kPageTokens])
               .data() +
           position % kvcache::kPageTokens * record_bytes_;
  }
  std::byte* DeviceLatent(const model::Segment& segment, int layer, int32_t slot) {
    const int64_t record =
        int64_t{segment.device_pages[slot / kvcache::kPageTokens]} * kvcache::kPageTokens + slot % kvcache::kPageTokens;
    return reinterpret_cast<std::byte*>(buffers_.LatentPages(layer).data) + record * record_bytes_;
  }

  int num_main_layers() const { return num_layers() - (has_mtp() ? 1 : 0); }
  absl::Status ReadLatents(const model::RowBatch& batch) {
    sequence_.clear();
    for (size_t i = 0; i < batch.segments.size(); ++i) {
      sequence_.insert(sequence_.end(), batch.segments[i].num_rows, static_cast<int32_t>(i));
    }
    RETURN_IF_ERROR(buffers_.Begin(batch.segments, {sequence_.data(), {static_cast<int64_t>(sequence_.size())}}));
    for (int layer = 0; layer < num_main_layers(); ++layer) RETURN_IF_ERROR(ReadLatents(batch, layer));
    return absl::OkStatus();
  }
  // The first row of each segment reads for all of them.
  absl::Status ReadLatents(const model::RowBatch& batch, int layer) {
    std::ranges::fill(own_memory_.pool().Pages(kvcache::RecordKind::kLatent, layer), std::byte{0xDB});
    int64_t longest = 0;
    for (const model::Segment& segment : batch.segments) longest = std::max(longest, segment.first_position);
    for (int64_t begin = 0; begin < longest; begin += kTopK) {
      std::ranges::fill(selected_, -1);
      for (const model::Segment& segment : batch.segments) {
        for (int64_t p = begin; p < std::min(begin + kTopK, segment.first_position); ++p) {
          selected_[int64_t{segment.row_begin} * kTopK + (p - begin)] = static_cast<int32_t>(p);
        }
      }
      RETURN_IF_ERROR(buffers_.ForEachWindow(
          layer, {selected_.data(), {static_cast<int64_t>(batch.tokens.size()), kTopK}},
          [&](const model::DeviceBuffers::Window& window) {
            for (int row = window.begin; row < window.begin + window.count; ++row) {
              const model::Segment& segment = batch.segments[sequence_[row]];
              for (int i = 0; i < kTopK && selected_[int64_t{row} * kTopK + i] >= 0; ++i) {
                std::memcpy(OwnLatent(segment, layer, begin + i),
                            DeviceLatent(segment, layer, window.slots.Row(row - window.begin)[i]), record_bytes_);
              }
            }
            return absl::OkStatus();
          }));
    }
    return absl::OkStatus();
  }
  void KeepNewest(const model::RowBatch& batch) {
    for (int layer = 0; layer < num_main_layers(); ++layer) {
      for (const model::Segment& segment : batch.segments) {
        for (int64_t p = segment.first_position; p < segment.first_position + segment.num_rows; ++p) {
          std::memcpy(DeviceLatent(segment, layer, static_cast<int32_t>(p % kvcache::kNewestSlots)),
                      OwnLatent(segment, layer, p), record_bytes_);
        }
      }
    }
  }

  kvcache::KvPool pool_;
  const int64_t record_bytes_ = kvcache::LatentRecordBytes(pool_.layout().kv_cache_dtype);
  PoolMemory own_memory_;
  HashModel model_;
  kernels::CpuBackend backend_{1};
  model::DeviceBuffers buffers_;
  std::vector<int32_t> sequence_;  // of each row of the batch
  std::vector<int32_t> selected_;
};

}  // namespace tandem::sim
