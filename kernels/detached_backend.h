// For tests: the host as if it were a device. Ops run on the host, so that bits are the host's, but memory is apart:
// copies are checked to go between the two, and what is downloaded arrives no earlier than it is waited for.
// It shows on any machine what code does that works with a device.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu_backend.h"

namespace tandem::kernels {

class DetachedBackend final : public CpuBackend {
 public:
  // Allocations beyond num_bytes_max, all together, are refused.
  explicit DetachedBackend(int64_t num_bytes_max = int64_t{1} << 40) : CpuBackend(1), num_bytes_max_(num_bytes_max) {}

  absl::string_view name() const override { return "detached"; }
  bool is_host() const override { return false; }

  absl::StatusOr<void*> Allocate(int64_t num_bytes) override {
    if (num_bytes > num_bytes_max_ - num_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat("detached: ", num_bytes, " bytes of device memory are needed, ",
                                                       num_bytes_max_ - num_bytes_, " are free"));
    }
    absl::StatusOr<void*> bytes = CpuBackend::Allocate(num_bytes);
    if (bytes.ok()) {
      blocks_[static_cast<const std::byte*>(*bytes)] = num_bytes;
      num_bytes_ += num_bytes;
    }
    return bytes;
  }
  void Free(void* bytes) override {
    const auto it = blocks_.find(static_cast<const std::byte*>(bytes));
    num_bytes_ -= it->second;
    blocks_.erase(it);
    CpuBackend::Free(bytes);
  }

  absl::Status Upload(const MemoryCopy& copy) override {
    if (!IsMine(copy.to, copy.num_bytes) || IsMine(copy.from, 0)) return Misplaced("upload");
    return CpuBackend::Copy(copy);
  }
  absl::Status Copy(const MemoryCopy& copy) override {
    if (!IsMine(copy.to, copy.num_bytes) || !IsMine(copy.from, copy.num_bytes)) return Misplaced("copy");
    return CpuBackend::Copy(copy);
  }
  absl::Status Download(const MemoryCopy& copy) override {
    if (IsMine(copy.to, 0) || !IsMine(copy.from, copy.num_bytes)) return Misplaced("download");
    under_way_.push_back({copy.to, Bytes(copy.num_bytes)});
    if (copy.num_bytes > 0) std::memcpy(under_way_.back().second.data(), copy.from, copy.num_bytes);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> DownloadBeside(absl::Span<const MemoryCopy> copies) override {
    for (const MemoryCopy& copy : copies) {
      if (absl::Status status = Download(copy); !status.ok()) return status;
      ++num_downloads_beside_;
    }
    return static_cast<int64_t>(num_arrived_ + under_way_.size());
  }
  // Arrives in the order of the calls: the first so many downloads.
  absl::Status AwaitDownloads(int64_t ticket) override {
    while (static_cast<int64_t>(num_arrived_) < ticket) ArriveOne();
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    while (!under_way_.empty()) ArriveOne();
    return absl::OkStatus();
  }

  // A Replay calls `enqueue` again.
  absl::StatusOr<std::unique_ptr<RecordedOps>> Record(std::function<absl::Status()> enqueue) override {
    if (!can_record_) return absl::InternalError("detached: an op that cannot be recorded");
    ++num_recorded_;
    return std::make_unique<CalledAgain>(*this, std::move(enqueue));
  }
  void CannotRecord() { can_record_ = false; }

  int num_recorded() const { return num_recorded_; }
  int num_replayed() const { return num_replayed_; }
  int64_t num_bytes() const { return num_bytes_; }
  int64_t num_downloads_beside() const { return num_downloads_beside_; }

 private:
  using Bytes = std::vector<std::byte>;

  class CalledAgain final : public RecordedOps {
   public:
    CalledAgain(DetachedBackend& backend, std::function<absl::Status()> enqueue)
        : backend_(backend), enqueue_(std::move(enqueue)) {}
    absl::Status Replay() override {
      ++backend_.num_replayed_;
      return enqueue_();
    }

   private:
    DetachedBackend& backend_;
    const std::function<absl::Status()> enqueue_;
  };

  bool IsMine(const void* bytes, int64_t num_bytes) const {
    const auto* first = static_cast<const std::byte*>(bytes);
    auto it = blocks_.upper_bound(first);
    if (it == blocks_.begin()) return false;
    --it;
    return first < it->first + it->second && first + num_bytes <= it->first + it->second;
  }
  static absl::Status Misplaced(absl::string_view what) {
    return absl::InternalError(absl::StrCat("detached: ", what, " from or to the wrong side, or beyond a block"));
  }
  void ArriveOne() {
    const auto& [to, bytes] = under_way_.front();
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    under_way_.erase(under_way_.begin());
    ++num_arrived_;
  }

  const int64_t num_bytes_max_;
  int64_t num_bytes_ = 0;
  std::map<const std::byte*, int64_t> blocks_;
  std::vector<std::pair<void*, Bytes>> under_way_;
  size_t num_arrived_ = 0;
  bool can_record_ = true;
  int num_recorded_ = 0;
  int num_replayed_ = 0;
  int64_t num_downloads_beside_ = 0;
};

}  // namespace tandem::kernels
