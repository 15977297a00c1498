#include "decode_worker/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::decode {

absl::StatusOr<HostMemory> HostMemory::Map(size_t num_bytes) {
  void* base = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", num_bytes, " bytes for the KV pool: ", std::strerror(errno)));
  }
  return HostMemory({static_cast<std::byte*>(base), num_bytes});
}

HostMemory::HostMemory(HostMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

HostMemory::~HostMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace tandem::decode
