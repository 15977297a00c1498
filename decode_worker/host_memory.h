// Zeroed anonymous memory, committed page by page as it is touched. Tested through //tests/workers.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"

namespace tandem::decode {

class HostMemory final {
 public:
  // RESOURCE_EXHAUSTED where the system has no room, with the size.
  static absl::StatusOr<HostMemory> Map(size_t num_bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit HostMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace tandem::decode
