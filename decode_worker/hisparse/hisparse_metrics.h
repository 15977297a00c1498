// HiSparse's part of the decode worker's metrics; all stay zero where it is off. docs/operations.md lists them.
#pragma once

#include "absl/time/time.h"
#include "base/metrics.h"
#include "kvcache/page_allocator.h"
#include "model/model_executor.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "worker_shell/mirrored_counter.h"

namespace tandem::decode {

class HiSparseMetrics final {
 public:
  explicit HiSparseMetrics(base::Metrics& metrics);
  // counters: null where it is off.
  void Update(const model::DeviceBufferCounters* counters, const kvcache::PageAllocator& device_pages,
              int64_t num_swap_outs);

 private:
  prometheus::Gauge& device_pages_;
  prometheus::Gauge& device_pages_used_;
  worker_shell::MirroredCounter hits_;
  worker_shell::MirroredCounter misses_;
  worker_shell::MirroredCounter swapped_in_bytes_;
  worker_shell::MirroredCounter written_back_bytes_;
  worker_shell::MirroredCounter windows_;
  worker_shell::MirroredCounter swap_outs_;
  prometheus::Histogram& swap_in_seconds_;
  int64_t last_windows_ = 0;
  absl::Duration last_swap_in_time_;
};

}  // namespace tandem::decode
