// The metrics of a worker's prefix cache that both kinds of workers have. docs/operations.md lists them.
#pragma once

#include <cstdint>

#include "base/metrics.h"
#include "kvcache/page_allocator.h"
#include "kvcache/prefix_index.h"
#include "worker_shell/mirrored_counter.h"

namespace tandem::worker_shell {

class PrefixCacheMetrics final {
 public:
  explicit PrefixCacheMetrics(base::Metrics& metrics);

  // On the engine's thread. prefixes: null where the cache is off. num_hits, num_flushes: the engine's own counters.
  void Update(const kvcache::PrefixIndex* prefixes, const kvcache::PageAllocator& pages, int64_t num_hits,
              int64_t num_flushes);

 private:
  prometheus::Gauge& pages_;
  prometheus::Gauge& idle_pages_;
  MirroredCounter hits_;
  MirroredCounter evicted_pages_;
  MirroredCounter flushes_;
};

}  // namespace tandem::worker_shell
