// Where the time of a request's transfer went, as its router is told at its end. Tested by transfer_report_test.cc.
#pragma once

#include "absl/time/time.h"
#include "kvtransfer/transfer_times.h"
#include "proto/worker.pb.h"

namespace tandem::decode {

// Of one request; a retracted one has a transfer each time.
inline constexpr int kTransferReportsMax = 8;

// arrived_at: of the request, on the clock of the times.
proto::TransferReport ReportOf(const kvtransfer::TransferTimes& times, absl::Duration arrived_at);

}  // namespace tandem::decode
