#include "kernels/cuda/device_clock.h"

#include <dlfcn.h>

namespace tandem::kernels::cuda {
namespace {

constexpr int kMultiprocessorClock = 1;  // NVML_CLOCK_SM

template <typename Function>
Function* Find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

DeviceClock::DeviceClock() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  auto* init = Find<int()>(library_, "nvmlInit_v2");
  auto* device_of = Find<int(unsigned, void**)>(library_, "nvmlDeviceGetHandleByIndex_v2");
  auto* clock = Find<int(void*, int, unsigned*)>(library_, "nvmlDeviceGetClockInfo");
  if (init == nullptr || device_of == nullptr || clock == nullptr) return;
  if (init() == 0 && device_of(0, &device_) == 0) clock_ = clock;
}

DeviceClock::~DeviceClock() {
  if (library_ != nullptr) dlclose(library_);
}

int DeviceClock::Megahertz() const {
  unsigned megahertz = 0;
  if (clock_ == nullptr || clock_(device_, kMultiprocessorClock, &megahertz) != 0) return 0;
  return static_cast<int>(megahertz);
}

}  // namespace tandem::kernels::cuda
