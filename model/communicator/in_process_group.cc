#include "model/communicator/in_process_group.h"

#include <cstdint>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem::model {
namespace {

// Where all ranks wait for the last one of them.
struct Meeting {
  int num_here = 0;
  int64_t num_held = 0;
};

class Group final {
 public:
  explicit Group(int size) : sends_(size) {}

  int size() const { return static_cast<int>(sends_.size()); }

  // Returns when every rank has given what it sends; from then on it is seen by all of them.
  absl::Status Gather(int rank, absl::Span<const ConstBytes> send) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
    sends_[rank] = send;
    // Whoever is here when the last one comes goes on with all of them, whatever happens afterwards.
    return Meet(gathered_, /*gives_up=*/true) ? absl::OkStatus() : failure_;
  }
  void Part() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    Meet(parted_, /*gives_up=*/false);
  }
  // Between Gather and Part nobody changes it.
  absl::Span<const ConstBytes> SentBy(int rank) const ABSL_NO_THREAD_SAFETY_ANALYSIS { return sends_[rank]; }

  void Fail(int rank, const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mutex_) {
    TANDEM_CHECK(!cause.ok(), "a rank fails for a cause");
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    failure_ = RankFailure(rank, cause);
    changed_.SignalAll();
  }
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return failure_;
  }

 private:
  // False where the group ended before the last rank came.
  bool Meet(Meeting& meeting, bool gives_up) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t before = meeting.num_held;
    if (++meeting.num_here == size()) {
      meeting.num_here = 0;
      ++meeting.num_held;
      changed_.SignalAll();
      return true;
    }
    while (meeting.num_held == before) {
      if (gives_up && !failure_.ok()) return false;
      changed_.Wait(&mutex_);
    }
    return true;
  }

  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Meeting gathered_ ABSL_GUARDED_BY(mutex_);
  Meeting parted_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Span<const ConstBytes>> sends_ ABSL_GUARDED_BY(mutex_);  // by rank
};

class InProcessLink final : public RankLink {
 public:
  InProcessLink(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  absl::Status Exchange(absl::Span<const ConstBytes> send, absl::Span<const MutableBytes> receive) override {
    TANDEM_CHECK(static_cast<int>(send.size()) == size() && static_cast<int>(receive.size()) == size(),
                 "an exchange has a part for every rank");
    RETURN_IF_ERROR(group_->Gather(rank_, send));
    absl::Status status;
    for (int i = 0; i < size() && status.ok(); ++i) {
      const int peer = (rank_ + i) % size();  // not all from the same one at a time
      const ConstBytes from = group_->SentBy(peer)[rank_];
      const MutableBytes to = receive[peer];
      if (from.size() != to.size()) {
        status = absl::InternalError(
            absl::StrCat("rank ", peer, " sends ", from.size(), " bytes, ", to.size(), " are expected of it"));
      } else if (!from.empty() && from.data() != to.data()) {
        std::memcpy(to.data(), from.data(), from.size());
      }
    }
    group_->Part();
    if (status.ok()) return status;
    Fail(status);
    return this->status();
  }
  void Fail(const absl::Status& cause) override { group_->Fail(rank_, cause); }
  absl::Status status() const override { return group_->failure(); }

 private:
  const std::shared_ptr<Group> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<RankLink>> MakeInProcessGroup(int size) {
  TANDEM_CHECK(size >= 1, "a group has a rank");
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<RankLink>> links;
  for (int rank = 0; rank < size; ++rank) links.push_back(std::make_unique<InProcessLink>(group, rank));
  return links;
}

}  // namespace tandem::model
