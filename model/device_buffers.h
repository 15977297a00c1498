// HiSparse on the executor's side: the caller's pool holds every latent record on the host, and each running sequence
// has a device buffer with a few of them, which is all that attention reads (docs/hisparse.md).
//
// A buffer's first page holds its newest tokens, where rows write their records; the other pages keep whatever rows
// have selected. Between top-k and attention every selected token gets a slot; what is missing is copied from the host.
// Rows go in windows whose tokens are resident together: one where all fit. Rows are brought back to the host when a
// later row shows that they stay, so rejected drafts never are. Index keys and the MTP layer are not its business.
// Invariants: positions before newest_begin are final on the host; the newest slots hold [newest_begin, newest_end).
// Which slot a record has, and what else is resident, changes no bit of any row: the order of a row's list is its
// positions' always. Tested by device_buffers_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "kernels/backend.h"
#include "kernels/backend_memory.h"
#include "kvcache/kv_layout.h"
#include "kvcache/token_residency.h"
#include "model/model_executor.h"

namespace tandem::model {

struct DeviceBufferOptions {
  int64_t num_pages = 0;               // of all buffers together; 0: no HiSparse
  int num_buffer_pages_max = 0;        // of one buffer, that of the newest tokens among them
  const base::Clock* clock = nullptr;  // null: swap_in_time stays zero
};

class DeviceBuffers final {
 public:
  // Rows of one batch that one sequence may have: each has a slot of its own among the newest.
  static constexpr int kRowsPerSequenceMax = kvcache::kNewestSlots;

  // pool: of `layout`, on the host, pinned by somebody else where that helps; num_layers: those of its layers, from the
  // first on, whose latents are in buffers. All outlive this.
  DeviceBuffers(kernels::Backend& backend, const kvcache::KvLayout& layout, absl::Span<uint8_t> pool, int num_layers,
                int index_topk, int num_rows_max, const DeviceBufferOptions& options);
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // RESOURCE_EXHAUSTED where the backend has no room.
  const absl::Status& status() const { return memory_.status(); }
  int64_t num_bytes() const { return memory_.num_bytes(); }

  // A batch that BatchPlan has built, whose rows are about to be written: brings earlier ones back to the host.
  // sequence: the plan's. INVALID_ARGUMENT where a segment has no buffer, one too small for its selection, pages out of
  // range, more than kRowsPerSequenceMax rows, or begins behind the buffer's last row; nothing has happened then.
  absl::Status Begin(absl::Span<const Segment> segments, const kernels::Vector<const int32_t>& sequence);

  // All pages of one layer: [num_pages, LatentPageBytes].
  kernels::Matrix<uint8_t> LatentPages(int layer) const;
  // Where each row's own record is written: PagedRows for WriteLatent.
  kernels::PagedRows WrittenRows() const;

  // Rows [begin, begin + count) of the batch whose tokens are resident now.
  struct Window {
    int begin = 0;
    int count = 0;
    kernels::Matrix<const int32_t> slots;  // [count, index_topk], in the order of the positions, -1 at the tail
    kernels::PagedRows rows;               // for SparseMla
  };
  // Calls `attend` for windows that cover all rows in order. selected: [rows, index_topk], TopK's.
  absl::Status ForEachWindow(int layer, const kernels::Matrix<const int32_t>& selected,
                             absl::FunctionRef<absl::Status(const Window&)> attend);

  // ModelExecutor's of the same names.
  absl::Status WriteBack(const Segment& sequence);
  void Forget(int32_t first_page) { buffers_.erase(first_page); }
  const DeviceBufferCounters& counters() const { return counters_; }

 private:
  struct Buffer {
    std::vector<kvcache::TokenResidency> layers;
    int64_t newest_begin = 0;
    int64_t newest_end = 0;
    int64_t host_end = 0;  // positions before it are on the host
  };
  // A list of records on both sides, in memory that copies may read later.
  struct RecordList {
    std::vector<int32_t> host, device;
    size_t size = 0;
    bool is_pinned = false;
    void Add(int32_t host_record, int32_t device_record) {
      host[size] = host_record;
      device[size++] = device_record;
    }
  };

  absl::Status Check(const Segment& segment, int index) const;
  // Adds what is to go back to the host before position `end`.
  void AddWriteBack(const Segment& segment, Buffer& buffer, int64_t end);
  absl::Status RunWriteBack();
  void Advance(const Segment& segment, Buffer& buffer);
  // Finds slots for a row; false where it begins another window.
  bool PinRow(int layer, int row, const int32_t* positions);
  kernels::RecordCopies CopiesOf(const RecordList& list, size_t begin, int layer, bool to_device) const;
  uint8_t* HostRecords(int layer) const;
  // Where ops find what stands at this place of the block.
  const int32_t* ForOps(const int32_t* on_host) const { return for_ops_ + (on_host - block_.data()); }

  const kvcache::KvLayout layout_;
  const absl::Span<uint8_t> pool_;
  const int num_layers_;
  const int index_topk_;
  const int num_rows_max_;
  const DeviceBufferOptions options_;
  kernels::BackendMemory memory_;
  std::vector<uint8_t*> latent_pages_;            // of each layer
  absl::flat_hash_map<int32_t, Buffer> buffers_;  // by first page

  // The batch.
  absl::Span<const Segment> segments_;
  std::vector<Buffer*> buffer_of_segment_;
  std::vector<int> segment_of_row_;
  kernels::Vector<const int32_t> sequence_;
  int num_rows_ = 0;
  // What ops read of it: slots [rows, topk], written [rows], capacity [rows], device page tables [segments, pages].
  std::vector<int32_t> block_;
  int32_t *slots_ = nullptr, *written_ = nullptr, *capacity_ = nullptr, *tables_ = nullptr;
  const int32_t* for_ops_ = nullptr;  // the block itself, or its copy
  bool is_block_pinned_ = false;
  RecordList swap_ins_, write_backs_;
  std::vector<int32_t> selected_;  // where TopK's are not the host's
  std::vector<kvcache::SwapIn> missing_;
  DeviceBufferCounters counters_;
};

}  // namespace tandem::model
