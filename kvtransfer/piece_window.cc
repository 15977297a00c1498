#include "kvtransfer/piece_window.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvtransfer {

PieceWindow::PieceWindow(const PieceLimits& limits, uint64_t source_bytes, uint64_t target_bytes)
    : limits_(limits), source_bytes_(source_bytes), target_bytes_(target_bytes) {}

void PieceWindow::Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) {
  auto fetch = std::make_shared<Fetch>();
  fetch->epoch = epoch;
  fetch->done = std::move(done);
  live_.emplace(fetch.get(), fetch);
  absl::Status status = status_;
  status.Update(ValidateRuns(runs, source_bytes_, target_bytes_));
  fetch->cutter = RunCutter(std::move(runs));
  if (!status.ok() || fetch->cutter.IsDone()) return End(fetch, std::move(status));
  unsent_.push_back(std::move(fetch));
}

void PieceWindow::Cancel(uint64_t epoch) {
  std::vector<std::shared_ptr<Fetch>> cancelled;
  for (const auto& [key, fetch] : live_) {
    if (fetch->epoch == epoch) cancelled.push_back(fetch);
  }
  for (const auto& fetch : cancelled) End(fetch, absl::CancelledError(absl::StrCat("epoch ", epoch, " is cancelled")));
}

void PieceWindow::FailAll(const absl::Status& status) {
  while (!live_.empty()) End(std::shared_ptr<Fetch>(live_.begin()->second), status);
}

void PieceWindow::Break(const absl::Status& status) {
  status_.Update(status);
  FailAll(status_);
  unsent_.clear();
  unanswered_.clear();
}

const Piece* PieceWindow::AskNext() {
  while (!unsent_.empty() && (unsent_.front()->has_ended || unsent_.front()->cutter.IsDone())) unsent_.pop_front();
  if (unsent_.empty() || unanswered_.size() >= limits_.num_unanswered_max) return nullptr;
  const std::shared_ptr<Fetch>& fetch = unsent_.front();
  ++fetch->num_unanswered;
  const uint64_t request = ++last_request_;
  const Asked asked = {.piece = {.request = request,
                                 .epoch = fetch->epoch,
                                 .runs = fetch->cutter.Cut(limits_.num_bytes_max, limits_.num_runs_max)},
                       .fetch = fetch};
  return &unanswered_.emplace(request, asked).first->second.piece;
}

const Piece* PieceWindow::Find(uint64_t request) const {
  const auto found = unanswered_.find(request);
  return found == unanswered_.end() ? nullptr : &found->second.piece;
}

const Piece* PieceWindow::Oldest() const { return unanswered_.empty() ? nullptr : &unanswered_.begin()->second.piece; }

bool PieceWindow::IsWanted(uint64_t request) const {
  const auto found = unanswered_.find(request);
  return found != unanswered_.end() && !found->second.fetch->has_ended;
}

void PieceWindow::Answer(uint64_t request, absl::Status status) {
  const auto found = unanswered_.find(request);
  TANDEM_CHECK(found != unanswered_.end(), "an answer to a request that is not unanswered");
  const std::shared_ptr<Fetch> fetch = std::move(found->second.fetch);
  unanswered_.erase(found);
  --fetch->num_unanswered;
  if (fetch->has_ended) return;  // drained
  if (!status.ok()) return End(fetch, std::move(status));
  if (fetch->cutter.IsDone() && fetch->num_unanswered == 0) End(fetch, absl::OkStatus());
}

void PieceWindow::End(const std::shared_ptr<Fetch>& fetch, absl::Status status) {
  fetch->has_ended = true;
  ended_.emplace_back(fetch, std::move(status));
  live_.erase(fetch.get());
}

bool PieceWindow::CallDone() {
  if (ended_.empty()) return false;
  for (auto& [fetch, status] : std::exchange(ended_, {})) {
    fetch->done(std::move(status));
    fetch->done = nullptr;
  }
  return true;
}

}  // namespace tandem::kvtransfer
