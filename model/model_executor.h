// The seam between the workers' engines and the maths: runs rows of tokens through the model against paged KV.
//
// Two implementations: DeepseekModel (the model) and the simulator's HashModel, whose next token depends on every KV
// byte it reads. A row's result depends on that row's inputs alone (docs/architecture.md, Numerics 1): any chunking
// and any batch give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/dtypes.h"

namespace tandem::model {

// Consecutive rows of one sequence. Row i of the segment has position first_position + i; positions before it are in
// the cache already. page_table[p] is the pool page of logical page p and covers every position of the segment.
struct Segment {
  int row_begin = 0;
  int num_rows = 0;
  int64_t first_position = 0;
  absl::Span<const int32_t> page_table;
  // With HiSparse: the pages of the sequence's device buffer, that of its newest tokens first. The first page is the
  // buffer's name; a sequence may get further ones later. Without: empty.
  absl::Span<const int32_t> device_pages;
};

// What an executor with HiSparse has done since its start.
struct DeviceBufferCounters {
  struct Layer {
    int64_t hits = 0;    // selected tokens that were on the device
    int64_t misses = 0;  // that were brought there
  };
  std::vector<Layer> layers;
  int64_t swapped_in_bytes = 0;
  int64_t written_back_bytes = 0;
  int64_t windows = 0;          // of rows whose tokens were resident together; one a layer and step where all rows fit
  absl::Duration swap_in_time;  // finding slots and enqueuing copies
};

struct RowBatch {
  absl::Span<const int32_t> tokens;  // [num_rows]
  absl::Span<const Segment> segments;
  absl::Span<const int32_t> logits_rows;  // rows whose logits are wanted, ascending
};

class ModelExecutor {
 public:
  virtual ~ModelExecutor() = default;
  // Writes the rows' KV into the pool and logits [logits_rows.size(), vocab_size()] FP32. layer_done(layer) is called
  // on the same thread as soon as every row's records of that layer are in the pool.
  virtual absl::Status Forward(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                               absl::Span<float> logits) = 0;
  // Forward that also gives what the MTP layer reads: hidden [num_rows, hidden_size()], every row's hidden state after
  // the final norm. The logits are Forward's, bit for bit.
  virtual absl::Status ForwardWithHidden(const RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                         absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) = 0;
  // The MTP layer over rows (position i, token i + 1, hidden state of position i): batch.tokens holds the NEXT tokens,
  // batch.segments the rows' own positions. Writes the MTP layer's KV and, of the logits rows, logits (for token
  // i + 2) and out_hidden [logits_rows, hidden_size()], which is what the next of a chain of drafts takes as its
  // hidden. FAILED_PRECONDITION where has_mtp() is false.
  virtual absl::Status RunMtp(const RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                              absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                              absl::Span<kernels::Bf16> out_hidden) = 0;
  // The bytes of these pages in the pool, all layers, were written by somebody else (a transfer, a copy of a page): to
  // be called once they are final and before the first Forward that reads them. When it returns they are no longer
  // looked at. An executor that works on the pool itself has nothing to do.
  virtual absl::Status PagesArrived(absl::Span<const int32_t> pages) = 0;

  // The other way: when it returns, these pages of the pool hold what rows have written and read, all layers, for
  // somebody else to copy. With HiSparse WriteBack comes before. An executor that works on the pool itself has nothing
  // to do.
  virtual absl::Status PagesLeave(absl::Span<const int32_t> pages) { return absl::OkStatus(); }

  // Logits that are given in this host memory come faster from a device, until it is unpinned. Nothing else changes:
  // where it cannot be done, they are as right.
  virtual absl::Status PinHostMemory(absl::Span<std::byte> bytes) { return absl::OkStatus(); }
  virtual void UnpinHostMemory(absl::Span<std::byte> bytes) {}

  // ---- HiSparse: the pool is on the host, a sequence's rows see a device buffer (model/device_buffers.h) ----
  // Brings to the pool what a device buffer alone has: the rows of this sequence before first_position that have not
  // gone back yet. They do by themselves once a later row follows them, since only then are they known to stay.
  virtual absl::Status WriteBack(const Segment& sequence) { return absl::OkStatus(); }
  // The buffer of this name is given to another sequence, or its sequence to another buffer: nothing is in it.
  virtual void ForgetBuffer(int32_t first_device_page) {}
  // Null without HiSparse.
  virtual const DeviceBufferCounters* device_buffer_counters() const { return nullptr; }

  virtual int vocab_size() const = 0;
  virtual int num_layers() const = 0;  // layers that have KV pages; the MTP layer is the last of them
  virtual bool has_mtp() const = 0;
  virtual int hidden_size() const = 0;
};

}  // namespace tandem::model
