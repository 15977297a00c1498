// Copies of many small records between pinned host memory and the device in one launch: HiSparse's swap-in and its way
// back. For device_backend.cu only; tested by device_backend_device_test.cc.
#pragma once

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_memory.h"

namespace tandem::kernels::cuda {

// Whether a kernel can read and write this host memory: it is pinned.
bool IsPinned(const void* host);

// Enqueues to[to_records[i]] = from[from_records[i]]. Both lists and the host's side are pinned; the device reads them
// where they are, later. No record is written twice in one call.
absl::Status CopyRecords(Stream stream, const RecordCopies& copies);

}  // namespace tandem::kernels::cuda
