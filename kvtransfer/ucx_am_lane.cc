#include "kvtransfer/ucx_am_lane.h"

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/status_macros.h"
#include "kvtransfer/ucx_am_client.h"
#include "kvtransfer/ucx_handles.h"

namespace tandem::kvtransfer {
namespace {

class UcxAmLane final : public FetchLane {
 public:
  static absl::StatusOr<std::unique_ptr<FetchLane>> Open(
      std::function<absl::StatusOr<std::unique_ptr<UcxAmClient>>()> connect) {
    std::unique_ptr<UcxAmLane> lane(new UcxAmLane());
    absl::Status opened;
    absl::Notification is_open;
    std::thread thread([lane = lane.get(), connect = std::move(connect), &opened, &is_open] {
      absl::StatusOr<std::unique_ptr<UcxAmClient>> client = connect();
      opened = client.status();
      const bool is_ok = client.ok();
      is_open.Notify();
      if (is_ok) lane->Run(**client);
    });
    is_open.WaitForNotification();
    {
      absl::MutexLock lock(&lane->join_mutex_);
      lane->thread_ = std::move(thread);
    }
    RETURN_IF_ERROR(opened);  // the lane's destructor joins
    return lane;
  }
  ~UcxAmLane() override { Close(); }

  std::string_view kind() const override { return kUcxAmKind; }

  void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!is_closed_) {
        commands_.push_back(Command{epoch, std::move(runs), std::move(done)});
        waiter_.Wake();
        return;
      }
    }
    done(absl::CancelledError("ucx_am lane is closed"));
  }

  void Cancel(uint64_t epoch) override {
    absl::MutexLock lock(&mutex_);
    if (is_closed_) return;
    commands_.push_back(Command{epoch, {}, nullptr});
    waiter_.Wake();
  }

  void Close() override {
    {
      absl::MutexLock lock(&mutex_);
      is_closed_ = true;
      waiter_.Wake();
    }
    absl::MutexLock lock(&join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Command {
    uint64_t epoch;
    std::vector<ByteRun> runs;
    std::function<void(absl::Status)> done;  // none: cancel the epoch
  };

  UcxAmLane() = default;

  void Run(UcxAmClient& client) {
    while (true) {
      std::vector<Command> commands;
      bool is_last = false;
      {
        absl::MutexLock lock(&mutex_);
        commands.swap(commands_);
        is_last = is_closed_;
      }
      for (Command& command : commands) {
        if (command.done) {
          client.Add(command.epoch, std::move(command.runs), std::move(command.done));
        } else {
          client.Cancel(command.epoch);
        }
      }
      if (is_last) return client.FailAll(absl::CancelledError("ucx_am lane is closed"));
      if (client.Progress()) continue;
      const absl::Status waited = waiter_.Wait(client.worker_to_watch(), nullptr, client.TimeToAnswer());
      if (!waited.ok()) client.Die(waited);
    }
  }

  absl::Mutex mutex_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  UcxWaiter waiter_;
  absl::Mutex join_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<FetchLane>> OpenUcxAmLane(const LaneEnd& end, std::span<std::byte> target,
                                                         uint64_t target_incarnation, const std::string& net_devices) {
  if (end.kind != kUcxAmKind || end.worker_address.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not an end of a ucx_am lane: kind ", end.kind, ", address of ",
                                                   end.worker_address.size(), " bytes"));
  }
  return UcxAmLane::Open([=] { return UcxAmClient::Connect(end, target, target_incarnation, net_devices); });
}

}  // namespace tandem::kvtransfer
