#include "kvtransfer/copy_lane.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/status_macros.h"
#include "kvtransfer/byte_run.h"

namespace tandem::kvtransfer {

absl::StatusOr<std::unique_ptr<CopyLane>> CopyLane::Open(
    std::string kind, std::function<absl::StatusOr<std::unique_ptr<PieceSource>>()> make_source,
    std::span<std::byte> target) {
  std::unique_ptr<CopyLane> lane(new CopyLane(std::move(kind), target));
  absl::Status opened;
  absl::Notification is_open;
  std::thread thread([lane = lane.get(), make_source = std::move(make_source), &opened, &is_open] {
    absl::StatusOr<std::unique_ptr<PieceSource>> source = make_source();
    opened = source.status();
    const bool is_ok = source.ok();
    is_open.Notify();
    if (is_ok) lane->Run(**source);
  });
  is_open.WaitForNotification();
  {
    absl::MutexLock lock(&lane->join_mutex_);
    lane->thread_ = std::move(thread);
  }
  RETURN_IF_ERROR(opened);  // the lane's destructor joins
  return lane;
}

CopyLane::~CopyLane() { Close(); }

void CopyLane::Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) {
  {
    absl::MutexLock lock(&mutex_);
    if (!is_closed_) {
      queue_.push_back(std::make_shared<Work>(Work{epoch, std::move(runs), std::move(done)}));
      return;
    }
  }
  done(absl::CancelledError(absl::StrCat(kind_, " lane is closed")));
}

void CopyLane::Cancel(uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  for (const std::shared_ptr<Work>& work : queue_) {
    if (work->epoch == epoch) work->is_cancelled = true;
  }
}

void CopyLane::Close() {
  {
    absl::MutexLock lock(&mutex_);
    is_closed_ = true;
  }
  absl::MutexLock lock(&join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void CopyLane::Run(PieceSource& source) {
  absl::Status lane_status;
  while (true) {
    std::shared_ptr<Work> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &CopyLane::HasNews));
      if (queue_.empty()) return;  // closed, and nothing is left
      work = queue_.front();
    }
    absl::Status status = lane_status.ok() ? CopyRuns(source, work) : lane_status;
    if (absl::IsUnavailable(status)) lane_status = status;
    {
      absl::MutexLock lock(&mutex_);
      queue_.pop_front();
    }
    work->done(std::move(status));
    work->done = nullptr;
  }
}

absl::Status CopyLane::CopyRuns(PieceSource& source, const std::shared_ptr<Work>& work) {
  RETURN_IF_ERROR(ValidateRuns(work->runs, source.num_bytes(), target_.size()));
  if (IsStopped(*work)) return absl::CancelledError(absl::StrCat("epoch ", work->epoch, " is cancelled"));
  RETURN_IF_ERROR(source.Admit(work->epoch, work->runs));
  RunCutter cutter(std::move(work->runs));
  while (!cutter.IsDone()) {
    if (IsStopped(*work)) return absl::CancelledError(absl::StrCat("epoch ", work->epoch, " is cancelled"));
    for (const ByteRun& run : cutter.Cut(kPieceBytes, kPieceBytes)) {
      RETURN_IF_ERROR(source.Copy(run.source_offset, target_.subspan(run.target_offset, run.num_bytes)));
    }
  }
  return absl::OkStatus();
}

bool CopyLane::IsStopped(const Work& work) {
  absl::MutexLock lock(&mutex_);
  return is_closed_ || work.is_cancelled;
}

}  // namespace tandem::kvtransfer
