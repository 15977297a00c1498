#include "router/abort_relay.h"

#include <atomic>
#include <memory>
#include <utility>

namespace tandem::router {
namespace {

// Shared by the looks of all shards: gone when the last has been taken, or dropped.
struct Search {
  AbortRelay::Post reply;
  std::function<void(int)> done;
  std::atomic<int> num_aborted = 0;

  ~Search() {
    reply([done = std::move(done), count = num_aborted.load()] { done(count); });
  }
};

}  // namespace

void AbortRelay::Join(Post post, Abort abort) {
  absl::MutexLock lock(&mutex_);
  shards_.push_back({std::move(post), std::move(abort)});
}

void AbortRelay::AbortEverywhere(const std::string& id, Post reply, std::function<void(int num_aborted)> done) {
  std::vector<Shard> shards;
  {
    absl::MutexLock lock(&mutex_);
    shards = shards_;
  }
  auto search = std::make_shared<Search>();
  search->reply = std::move(reply);
  search->done = std::move(done);
  for (const Shard& shard : shards) {
    shard.post([search, id, abort = shard.abort] { search->num_aborted += abort(id); });
  }
}

}  // namespace tandem::router
