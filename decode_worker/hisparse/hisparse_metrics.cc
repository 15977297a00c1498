#include "decode_worker/hisparse/hisparse_metrics.h"

#include <vector>

namespace tandem::decode {

namespace {

// 16 us to 0.5 s, each bound twice the one before: parts of a step.
std::vector<double> StepPartBuckets() {
  std::vector<double> bounds;
  for (double bound = 16e-6; bound < 1; bound *= 2) bounds.push_back(bound);
  return bounds;
}

}  // namespace

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
      swap_in_seconds_(m.AddHistogram("tandem_hisparse_swap_in_seconds",
                                      "Time of each step that went into finding slots and bringing tokens to them.",
                                      StepPartBuckets())) {}

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
  if (counters->windows > last_windows_) {
    swap_in_seconds_.Observe(absl::ToDoubleSeconds(counters->swap_in_time - last_swap_in_time_));
  }
  last_windows_ = counters->windows;
  last_swap_in_time_ = counters->swap_in_time;
}

}  // namespace tandem::decode
