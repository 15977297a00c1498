#include "kvtransfer/threaded_lane.h"

#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/status_macros.h"

namespace tandem::kvtransfer {
namespace {

class ThreadedLane final : public FetchLane {
 public:
  explicit ThreadedLane(std::string kind) : kind_(std::move(kind)) {}
  ~ThreadedLane() override { Close(); }

  absl::Status Open(ConnectClient connect) {
    absl::Status opened;
    absl::Notification is_open;
    std::thread thread([this, connect = std::move(connect), &opened, &is_open] {
      absl::StatusOr<std::unique_ptr<LaneClient>> client = connect();
      opened = client.status();
      const bool is_ok = client.ok();
      is_open.Notify();
      if (is_ok) Run(**client);
    });
    is_open.WaitForNotification();
    absl::MutexLock lock(&join_mutex_);
    thread_ = std::move(thread);
    return opened;
  }

  std::string_view kind() const override { return kind_; }

  void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!is_closed_) {
        orders_.push_back(Order{epoch, std::move(runs), std::move(done)});
        waker_.Wake();
        return;
      }
    }
    done(absl::CancelledError(absl::StrCat(kind_, " lane is closed")));
  }

  void Cancel(uint64_t epoch) override {
    absl::MutexLock lock(&mutex_);
    if (is_closed_) return;
    orders_.push_back(Order{epoch, {}, nullptr});
    waker_.Wake();
  }

  void Close() override {
    {
      absl::MutexLock lock(&mutex_);
      is_closed_ = true;
      waker_.Wake();
    }
    absl::MutexLock lock(&join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Order {
    uint64_t epoch;
    std::vector<ByteRun> runs;
    std::function<void(absl::Status)> done;  // none: cancel the epoch
  };

  void Run(LaneClient& client) {
    while (true) {
      std::vector<Order> orders;
      bool is_last = false;
      {
        absl::MutexLock lock(&mutex_);
        orders.swap(orders_);
        is_last = is_closed_;
      }
      for (Order& order : orders) {
        if (order.done) {
          client.Add(order.epoch, std::move(order.runs), std::move(order.done));
        } else {
          client.Cancel(order.epoch);
        }
      }
      if (is_last) return client.FailAll(absl::CancelledError(absl::StrCat(kind_, " lane is closed")));
      if (!client.Progress()) client.Sleep(waker_);
    }
  }

  const std::string kind_;
  absl::Mutex mutex_;
  std::vector<Order> orders_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  Waker waker_;
  absl::Mutex join_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<FetchLane>> OpenThreadedLane(std::string kind, ConnectClient connect) {
  auto lane = std::make_unique<ThreadedLane>(std::move(kind));
  RETURN_IF_ERROR(lane->Open(std::move(connect)));  // the lane's destructor joins
  return lane;
}

}  // namespace tandem::kvtransfer
