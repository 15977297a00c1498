#include "kvtransfer/lane_set.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvtransfer {

LaneSet::LaneSet(std::function<void(uint64_t, absl::Status)> fetch_done) : fetch_done_(std::move(fetch_done)) {
  closer_ = std::thread([this] { CloseRetired(); });
}

LaneSet::~LaneSet() {
  while (!peers_.empty()) Retire(std::string(peers_.begin()->first));
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  closer_.join();
}

void LaneSet::Add(std::string_view peer, RankLanes lanes) {
  Retire(peer);
  peers_.emplace(std::string(peer), std::move(lanes));
}

void LaneSet::Retire(std::string_view peer) {
  const auto it = peers_.find(peer);
  if (it == peers_.end()) return;
  absl::MutexLock lock(&mutex_);
  retired_.push_back(std::move(it->second));
  peers_.erase(it);
}

void LaneSet::Run(StartFetch fetch) {
  const auto it = peers_.find(fetch.peer);
  if (it == peers_.end()) {
    fetch_done_(fetch.fetch_id, absl::CancelledError(absl::StrCat("prefill ", fetch.peer, " is gone")));
    return;
  }
  TANDEM_CHECK(fetch.source_rank < static_cast<int>(it->second.size()) &&
                   fetch.lane < static_cast<int>(it->second[fetch.source_rank].size()),
               "a lane that was not added");
  it->second[fetch.source_rank][fetch.lane]->Fetch(
      fetch.epoch, std::move(fetch.runs),
      [this, id = fetch.fetch_id](absl::Status status) { fetch_done_(id, std::move(status)); });
}

void LaneSet::Cancel(const CancelFetches& cancel) {
  const auto it = peers_.find(cancel.peer);
  if (it == peers_.end()) return;
  for (const auto& lanes : it->second) {
    for (const auto& lane : lanes) lane->Cancel(cancel.epoch);
  }
}

void LaneSet::CloseRetired() {
  while (true) {
    std::deque<RankLanes> closing;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &LaneSet::HasRetired));
      if (retired_.empty()) return;  // stopping, and nothing is left
      closing = std::exchange(retired_, {});
    }
    for (RankLanes& ranks : closing) {
      for (auto& lanes : ranks) {
        for (auto& lane : lanes) lane->Close();
      }
    }
  }
}

}  // namespace tandem::kvtransfer
