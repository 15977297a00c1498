#include "decode_worker/transfer_report.h"

#include <algorithm>
#include <cstdint>

namespace tandem::decode {

proto::TransferReport ReportOf(const kvtransfer::TransferTimes& times, absl::Duration arrived_at) {
  const auto since = [&](absl::Duration point) -> uint64_t {
    if (point == absl::InfiniteDuration()) return 0;
    return static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Microseconds(point - arrived_at), 1));
  };
  proto::TransferReport report;
  report.set_started_us(since(times.started));
  report.set_accepted_us(since(times.accepted));
  report.set_first_announced_us(since(times.first_announced));
  report.set_first_token_us(since(times.first_token));
  report.set_ready_us(since(times.ready));
  for (const kvtransfer::TransferTimes::Chunk& chunk : times.chunks) {
    proto::TransferReport::Chunk& told = *report.add_chunks();
    told.set_num_pages(static_cast<uint32_t>(chunk.num_pages));
    told.set_at_us(since(chunk.at));
  }
  return report;
}

}  // namespace tandem::decode
