#include "decode_worker/hisparse/hisparse_metrics.h"

namespace tandem::decode {

HiSparseMetrics::HiSparseMetrics(base::Metrics& m)
    : device_pages_(m.AddGauge("tandem_hisparse_device_pages", "Pages of 64 tokens of all device buffers together.")),
      device_pages_used_(m.AddGauge("tandem_hisparse_device_pages_used", "Of them those that sequences have.")),
      hits_(m.AddCounter("tandem_hisparse_hits_total",
                         "Selected tokens whose record was on the device, over all rows and layers.")),
      misses_(m.AddCounter("tandem_hisparse_misses_total", "Selected tokens that were copied from the host.")),
      swapped_in_bytes_(m.AddCounter("tandem_hisparse_swapped_in_bytes_total", "Bytes copied from the host for them.")),
      written_back_bytes_(m.AddCounter("tandem_hisparse_written_back_bytes_total",
                                       "Bytes of accepted tokens copied from device buffers to the host.")),
      windows_(m.AddCounter("tandem_hisparse_windows_total",
                            "Groups of rows whose tokens were on the device together; one a layer and step where all "
                            "rows fit their buffers.")),
      swap_outs_(m.AddCounter("tandem_hisparse_swap_outs_total",
                              "Sequences that left their device buffer to an older one and kept their pages.")),
      swap_in_seconds_(m.AddGauge("tandem_hisparse_swap_in_seconds",
                                  "Time since the start that went into finding slots and bringing tokens to them.")) {}

void HiSparseMetrics::Update(const model::DeviceBufferCounters* counters, const kvcache::PageAllocator& device_pages,
                             int64_t num_swap_outs) {
  if (counters == nullptr) return;
  int64_t hits = 0, misses = 0;
  for (const auto& layer : counters->layers) {
    hits += layer.hits;
    misses += layer.misses;
  }
  device_pages_.Set(static_cast<double>(device_pages.num_pages()));
  device_pages_used_.Set(static_cast<double>(device_pages.num_used()));
  hits_.Set(hits);
  misses_.Set(misses);
  swapped_in_bytes_.Set(counters->swapped_in_bytes);
  written_back_bytes_.Set(counters->written_back_bytes);
  windows_.Set(counters->windows);
  swap_outs_.Set(num_swap_outs);
  swap_in_seconds_.Set(absl::ToDoubleSeconds(counters->swap_in_time));
}

}  // namespace tandem::decode
