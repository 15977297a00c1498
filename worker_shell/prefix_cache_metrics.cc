#include "worker_shell/prefix_cache_metrics.h"

namespace tandem::worker_shell {

PrefixCacheMetrics::PrefixCacheMetrics(base::Metrics& m)
    : pages_(m.AddGauge("tandem_prefix_cache_pages", "KV pages in the prefix cache, held or idle.")),
      idle_pages_(m.AddGauge("tandem_prefix_cache_idle_pages",
                             "KV pages in the prefix cache that nobody holds: room for requests.")),
      hits_(m.AddCounter("tandem_prefix_cache_hits_total",
                         "Requests that joined at least one page of the prefix cache.")),
      evicted_pages_(m.AddCounter("tandem_prefix_cache_evicted_pages_total",
                                  "KV pages that left the prefix cache for want of room.")),
      flushes_(m.AddCounter("tandem_prefix_cache_flushes_total", "Flushes of the prefix cache, by routers.")) {}

void PrefixCacheMetrics::Update(const kvcache::PrefixIndex* prefixes, const kvcache::PageAllocator& pages,
                                int64_t num_hits, int64_t num_flushes) {
  hits_.Set(num_hits);
  flushes_.Set(num_flushes);
  if (prefixes == nullptr) return;
  pages_.Set(static_cast<double>(prefixes->num_pages()));
  idle_pages_.Set(static_cast<double>(pages.num_idle()));
  evicted_pages_.Set(prefixes->counters().pages_evicted);
}

}  // namespace tandem::worker_shell
