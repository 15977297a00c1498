// Blocks of one backend's memory that are freed together: workspaces, weights.
//
// After an allocation has failed every further one gives null as well, so that whoever takes many blocks asks status()
// once, at the end. Tested by cpu_backend_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace tandem::kernels {

class BackendMemory final {
 public:
  // The backend outlives this.
  explicit BackendMemory(Backend& backend) : backend_(backend) {}
  ~BackendMemory() {
    for (void* block : blocks_) backend_.Free(block);
  }
  BackendMemory(const BackendMemory&) = delete;
  BackendMemory& operator=(const BackendMemory&) = delete;

  // Room for `count` Ts, zeroed.
  template <typename T>
  T* Allocate(int64_t count) {
    return static_cast<T*>(AllocateBytes(count * static_cast<int64_t>(sizeof(T))));
  }
  const absl::Status& status() const { return status_; }
  Backend& backend() const { return backend_; }
  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  void* AllocateBytes(int64_t num_bytes) {
    if (!status_.ok()) return nullptr;
    absl::StatusOr<void*> block = backend_.Allocate(num_bytes);
    status_.Update(block.status());
    if (!status_.ok()) return nullptr;
    blocks_.push_back(*block);
    num_bytes_ += num_bytes;
    return *block;
  }

  Backend& backend_;
  std::vector<void*> blocks_;
  int64_t num_bytes_ = 0;
  absl::Status status_;
};

}  // namespace tandem::kernels
