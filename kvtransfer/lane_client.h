// The inside of a lane that runs on a thread of its own: what differs between one protocol and another.
// threaded_lane.h makes a FetchLane of it. All methods are called on the lane's thread alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/waker.h"

namespace tandem::kvtransfer {

class LaneClient {
 public:
  virtual ~LaneClient() = default;  // closes the connection; no `done` is called
  virtual void Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) = 0;
  virtual void Cancel(uint64_t epoch) = 0;
  // Sends what the window allows, takes what came, calls `done` of what has ended. False where nothing happened.
  virtual bool Progress() = 0;
  // Ends every fetch with `status`, and calls `done`.
  virtual void FailAll(const absl::Status& status) = 0;
  // Until the waker wakes, something may be progressed, or a limit of the client's own has passed.
  virtual void Sleep(Waker& waker) = 0;
};

}  // namespace tandem::kvtransfer
