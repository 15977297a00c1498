#include "model/device_buffers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/tensor_tap.h"

namespace tandem::model {

using kernels::Matrix;
using kvcache::kNewestSlots;
using kvcache::kPageTokens;
using kvcache::RecordKind;

namespace {

absl::Span<std::byte> BytesOf(std::vector<int32_t>& list) {
  return {reinterpret_cast<std::byte*>(list.data()), list.size() * sizeof(int32_t)};
}

// Records of a layer's pages lie side by side.
int32_t RecordAt(absl::Span<const int32_t> pages, int64_t place) {
  return static_cast<int32_t>(pages[place / kPageTokens] * kPageTokens + place % kPageTokens);
}

}  // namespace

DeviceBuffers::DeviceBuffers(kernels::Backend& backend, const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                             int num_layers, int index_topk, int num_rows_max, const DeviceBufferOptions& options)
    : layout_(layout),
      pool_(pool),
      num_layers_(num_layers),
      index_topk_(index_topk),
      num_rows_max_(num_rows_max),
      options_(options),
      memory_(backend) {
  TANDEM_CHECK(options.num_buffer_pages_max >= 2, "a device buffer has a page of newest tokens and others");
  counters_.layers.resize(num_layers);
  for (int layer = 0; layer < num_layers; ++layer) {
    latent_pages_.push_back(memory_.Allocate<uint8_t>(options.num_pages * layout.PageBytes(RecordKind::kLatent)));
  }
  const int64_t rows = num_rows_max;
  block_.resize(rows * (index_topk + 2 + options.num_buffer_pages_max));
  slots_ = block_.data();
  written_ = slots_ + rows * index_topk;
  capacity_ = written_ + rows;
  tables_ = capacity_ + rows;
  for_ops_ = block_.data();
  segment_of_row_.resize(rows);
  // A token is copied at most once a row and layer, and goes back once.
  swap_ins_.host.resize(rows * index_topk);
  swap_ins_.device.resize(rows * index_topk);
  write_backs_.host.resize(rows * kRowsPerSequenceMax);
  write_backs_.device.resize(rows * kRowsPerSequenceMax);
  if (backend.is_host()) return;
  for_ops_ = memory_.Allocate<int32_t>(static_cast<int64_t>(block_.size()));
  selected_.resize(rows * index_topk);
  // Copies of memory that is not pinned are right, too.
  is_block_pinned_ = backend.PinHostMemory(BytesOf(block_)).ok();
  for (RecordList* list : {&swap_ins_, &write_backs_}) {
    list->is_pinned =
        backend.PinHostMemory(BytesOf(list->host)).ok() && backend.PinHostMemory(BytesOf(list->device)).ok();
  }
}

DeviceBuffers::~DeviceBuffers() {
  kernels::Backend& backend = memory_.backend();
  if (is_block_pinned_) backend.UnpinHostMemory(BytesOf(block_));
  for (RecordList* list : {&swap_ins_, &write_backs_}) {
    if (!list->is_pinned) continue;
    backend.UnpinHostMemory(BytesOf(list->host));
    backend.UnpinHostMemory(BytesOf(list->device));
  }
}

Matrix<uint8_t> DeviceBuffers::LatentPages(int layer) const {
  return {latent_pages_[layer], {options_.num_pages, layout_.PageBytes(RecordKind::kLatent)}};
}

kernels::PagedRows DeviceBuffers::WrittenRows() const {
  return {.page_tables = {ForOps(tables_), {static_cast<int64_t>(segments_.size()), options_.num_buffer_pages_max}},
          .sequence = sequence_,
          .context_length = {ForOps(written_), {num_rows_}}};
}

uint8_t* DeviceBuffers::HostRecords(int layer) const { return pool_.data() + layout_.LatentOffset(layer, 0); }

kernels::RecordCopies DeviceBuffers::CopiesOf(const RecordList& list, size_t begin, int layer, bool to_device) const {
  const absl::Span<const int32_t> host = absl::MakeConstSpan(list.host).subspan(begin, list.size - begin);
  const absl::Span<const int32_t> device = absl::MakeConstSpan(list.device).subspan(begin, list.size - begin);
  const int64_t record_bytes = kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  if (to_device) return {latent_pages_[layer], HostRecords(layer), record_bytes, device, host};
  return {HostRecords(layer), latent_pages_[layer], record_bytes, host, device};
}

// ---- The batch ----

absl::Status DeviceBuffers::Check(const Segment& segment, int index) const {
  const auto fault = [&](auto&&... what) {
    return absl::InvalidArgumentError(absl::StrCat("segment ", index, ": ", what...));
  };
  const auto num_pages = static_cast<int64_t>(segment.device_pages.size());
  if (num_pages < 2 || num_pages > options_.num_buffer_pages_max) {
    return fault("device buffer of ", num_pages, " pages, allowed 2 to ", options_.num_buffer_pages_max);
  }
  for (const int32_t page : segment.device_pages) {
    if (page < 0 || page >= options_.num_pages) {
      return fault("device page ", page, ", the buffers have ", options_.num_pages);
    }
  }
  if (segment.num_rows > kRowsPerSequenceMax) {
    return fault(segment.num_rows, " rows, a device buffer takes ", kRowsPerSequenceMax, " in a batch");
  }
  const int64_t num_selected = std::min<int64_t>(index_topk_, segment.first_position);
  if ((num_pages - 1) * kPageTokens < num_selected) {
    return fault("device buffer keeps ", (num_pages - 1) * kPageTokens, " tokens, a row selects ", num_selected);
  }
  const auto buffer = buffers_.find(segment.device_pages[0]);
  if (buffer != buffers_.end() && segment.first_position > buffer->second.newest_end) {
    return fault("begins at position ", segment.first_position, ", its device buffer has rows to ",
                 buffer->second.newest_end);
  }
  return absl::OkStatus();
}

void DeviceBuffers::AddWriteBack(const Segment& segment, Buffer& buffer, int64_t end) {
  for (int64_t position = buffer.host_end; position < end; ++position) {
    write_backs_.Add(RecordAt(segment.page_table, position), RecordAt(segment.device_pages, position % kNewestSlots));
  }
  buffer.host_end = std::max(buffer.host_end, end);
}

absl::Status DeviceBuffers::RunWriteBack() {
  if (write_backs_.size == 0) return absl::OkStatus();
  kernels::Backend& backend = memory_.backend();
  for (int layer = 0; layer < num_layers_; ++layer) {
    RETURN_IF_ERROR(backend.DownloadRecords(CopiesOf(write_backs_, 0, layer, /*to_device=*/false)));
  }
  counters_.written_back_bytes +=
      static_cast<int64_t>(write_backs_.size) * num_layers_ * kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  write_backs_.size = 0;
  return backend.Synchronize();  // swap-ins may read them at once
}

// The rows are written from here on.
void DeviceBuffers::Advance(const Segment& segment, Buffer& buffer) {
  const int64_t begin = segment.first_position, end = begin + segment.num_rows;
  if (begin < buffer.host_end) {  // written once more, by other rows than went back
    buffer.host_end = begin;
    for (kvcache::TokenResidency& residency : buffer.layers) residency.ForgetFrom(begin);
  }
  buffer.newest_begin = std::min(begin, std::max(buffer.newest_begin, end - kNewestSlots));
  buffer.newest_end = end;
  for (kvcache::TokenResidency& residency : buffer.layers) {
    residency.GrowTo(static_cast<int>(segment.device_pages.size() - 1) * kPageTokens);
  }
}

absl::Status DeviceBuffers::Begin(absl::Span<const Segment> segments, const kernels::Vector<const int32_t>& sequence) {
  for (size_t i = 0; i < segments.size(); ++i) RETURN_IF_ERROR(Check(segments[i], static_cast<int>(i)));
  segments_ = segments;
  sequence_ = sequence;
  num_rows_ = 0;
  write_backs_.size = 0;
  for (const Segment& segment : segments) {
    auto [it, is_new] = buffers_.try_emplace(segment.device_pages[0]);
    Buffer& buffer = it->second;
    if (is_new) {
      buffer.layers.resize(num_layers_);
      buffer.newest_begin = buffer.newest_end = buffer.host_end = segment.first_position;
    }
    AddWriteBack(segment, buffer, segment.first_position);
  }
  RETURN_IF_ERROR(RunWriteBack());

  buffer_of_segment_.clear();
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    Buffer& buffer = buffers_.at(segment.device_pages[0]);
    Advance(segment, buffer);
    buffer_of_segment_.push_back(&buffer);
    std::copy(segment.device_pages.begin(), segment.device_pages.end(),
              tables_ + static_cast<int64_t>(i) * options_.num_buffer_pages_max);
    for (int row = 0; row < segment.num_rows; ++row) {
      written_[num_rows_] = static_cast<int32_t>((segment.first_position + row) % kNewestSlots + 1);
      capacity_[num_rows_] = static_cast<int32_t>(segment.device_pages.size()) * kPageTokens;
      segment_of_row_[num_rows_++] = static_cast<int>(i);
    }
  }
  if (memory_.backend().is_host()) return absl::OkStatus();
  const int32_t* end = tables_ + static_cast<int64_t>(segments.size()) * options_.num_buffer_pages_max;
  return memory_.backend().Upload(
      {const_cast<int32_t*>(ForOps(written_)), written_, static_cast<int64_t>((end - written_) * sizeof(int32_t))});
}

// ---- Between top-k and attention ----

bool DeviceBuffers::PinRow(int layer, int row, const int32_t* positions) {
  const Segment& segment = segments_[segment_of_row_[row]];
  Buffer& buffer = *buffer_of_segment_[segment_of_row_[row]];
  int32_t* slots = slots_ + int64_t{row} * index_topk_;
  const size_t count = std::find(positions, positions + index_topk_, -1) - positions;
  missing_.clear();
  if (!buffer.layers[layer].Pin({positions, count}, buffer.newest_begin, {slots, count}, missing_)) return false;
  std::fill(slots + count, slots + index_topk_, -1);
  for (const kvcache::SwapIn& swap_in : missing_) {
    swap_ins_.Add(RecordAt(segment.page_table, swap_in.position), RecordAt(segment.device_pages, swap_in.slot));
  }
  counters_.layers[layer].hits += static_cast<int64_t>(count - missing_.size());
  counters_.layers[layer].misses += static_cast<int64_t>(missing_.size());
  return true;
}

absl::Status DeviceBuffers::ForEachWindow(int layer, const Matrix<const int32_t>& selected,
                                          absl::FunctionRef<absl::Status(const Window&)> attend) {
  kernels::Backend& backend = memory_.backend();
  // Waits, on a device: the lists of the layer before have been read then.
  ASSIGN_OR_RETURN(const Matrix<const int32_t> positions, DownloadView(backend, selected, selected_));
  const int64_t record_bytes = kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  swap_ins_.size = 0;
  for (int begin = 0; begin < num_rows_;) {
    const absl::Duration started = options_.clock == nullptr ? absl::ZeroDuration() : options_.clock->Now();
    for (int i = segment_of_row_[begin]; i <= segment_of_row_[num_rows_ - 1]; ++i) {
      buffer_of_segment_[i]->layers[layer].BeginWindow();
    }
    const size_t first_copy = swap_ins_.size;
    int end = begin;
    while (end < num_rows_ && PinRow(layer, end, positions.Row(end))) ++end;
    TANDEM_CHECK(end > begin, "a device buffer has room for one row's tokens");
    RETURN_IF_ERROR(backend.UploadRecords(CopiesOf(swap_ins_, first_copy, layer, /*to_device=*/true)));
    const int32_t* slots = slots_ + int64_t{begin} * index_topk_;
    const int64_t count = end - begin;
    if (!backend.is_host()) {
      RETURN_IF_ERROR(backend.Upload(
          {const_cast<int32_t*>(ForOps(slots)), slots, count * index_topk_ * static_cast<int64_t>(sizeof(int32_t))}));
    }
    counters_.swapped_in_bytes += static_cast<int64_t>(swap_ins_.size - first_copy) * record_bytes;
    ++counters_.windows;
    if (options_.clock != nullptr) counters_.swap_in_time += options_.clock->Now() - started;
    const kernels::PagedRows written = WrittenRows();
    RETURN_IF_ERROR(attend({.begin = begin,
                            .count = static_cast<int>(count),
                            .slots = {ForOps(slots), {count, index_topk_}},
                            .rows = {.page_tables = written.page_tables,
                                     .sequence = sequence_.Slice(begin, count),
                                     .context_length = {ForOps(capacity_) + begin, {count}}}}));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status DeviceBuffers::WriteBack(const Segment& sequence) {
  if (sequence.device_pages.empty()) return absl::InvalidArgumentError("the sequence has no device buffer");
  const auto it = buffers_.find(sequence.device_pages[0]);
  if (it == buffers_.end()) return absl::OkStatus();
  Buffer& buffer = it->second;
  if (sequence.first_position > buffer.newest_end) {
    return absl::InvalidArgumentError(absl::StrCat("rows before position ", sequence.first_position,
                                                   " are to go back, the device buffer has them to ",
                                                   buffer.newest_end));
  }
  if (static_cast<int64_t>(sequence.page_table.size()) < kvcache::PagesForTokens(sequence.first_position)) {
    return absl::InvalidArgumentError(absl::StrCat("page table of ", sequence.page_table.size(), " pages, ",
                                                   sequence.first_position, " positions need ",
                                                   kvcache::PagesForTokens(sequence.first_position)));
  }
  write_backs_.size = 0;
  AddWriteBack(sequence, buffer, sequence.first_position);
  return RunWriteBack();
}

}  // namespace tandem::model
