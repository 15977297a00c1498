#include "kvtransfer/epoch_check.h"

#include "absl/strings/str_cat.h"

namespace tandem::kvtransfer {

absl::Status CheckReadable(const FetchOrigin& origin, std::span<const ByteRun> runs,
                           const EpochCheck& is_epoch_readable) {
  if (origin.epoch != kWarmUpEpoch) {
    if (is_epoch_readable(origin)) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat("epoch ", origin.epoch, " is not readable at the source"));
  }
  for (const ByteRun& run : runs) {
    if (run.source_offset > kWarmUpBytesMax || run.num_bytes > kWarmUpBytesMax - run.source_offset) {
      return absl::OutOfRangeError(absl::StrCat("warm-up run of ", run.num_bytes, " bytes at ", run.source_offset,
                                                ": only the first ", kWarmUpBytesMax, " bytes may be read"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kvtransfer
