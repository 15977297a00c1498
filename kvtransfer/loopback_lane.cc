#include "kvtransfer/loopback_lane.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "kvtransfer/copy_lane.h"
#include "kvtransfer/epoch_check.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {
namespace {

class MemorySource final : public PieceSource {
 public:
  MemorySource(std::span<const std::byte> bytes, uint64_t target_incarnation, EpochCheck is_epoch_readable)
      : bytes_(bytes), target_incarnation_(target_incarnation), is_epoch_readable_(std::move(is_epoch_readable)) {}

  uint64_t num_bytes() const override { return bytes_.size(); }
  absl::Status Admit(uint64_t epoch, std::span<const ByteRun> runs) override {
    return CheckReadable({target_incarnation_, epoch}, runs, is_epoch_readable_);
  }
  absl::Status Copy(uint64_t source_offset, std::span<std::byte> target) override {
    std::memcpy(target.data(), bytes_.data() + source_offset, target.size());
    return absl::OkStatus();
  }

 private:
  const std::span<const std::byte> bytes_;
  const uint64_t target_incarnation_;
  const EpochCheck is_epoch_readable_;
};

}  // namespace

std::unique_ptr<FetchLane> OpenLoopbackLane(std::span<const std::byte> source, std::span<std::byte> target,
                                            uint64_t target_incarnation, EpochCheck is_epoch_readable) {
  auto lane = CopyLane::Open(
      kLoopbackKind,
      [source, target_incarnation, check = std::move(is_epoch_readable)] {
        return std::make_unique<MemorySource>(source, target_incarnation, check);
      },
      target);
  TANDEM_CHECK(lane.ok(), "opening memory cannot fail");
  return *std::move(lane);
}

}  // namespace tandem::kvtransfer
