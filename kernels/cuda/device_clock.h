// The multiprocessors' clock, as the driver's management library tells it: at the power limit it falls, and a figure
// without it cannot be compared. Nothing here needs that library to be there.
#pragma once

namespace tandem::kernels::cuda {

class DeviceClock final {
 public:
  // Of the first device. Loads libnvidia-ml.so.1, which every driver brings.
  DeviceClock();
  ~DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  // 0 where nobody tells.
  int Megahertz() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*clock_)(void* device, int kind, unsigned* megahertz) = nullptr;
};

}  // namespace tandem::kernels::cuda
