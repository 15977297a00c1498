#include "router/discovery/discovery.h"

#include <utility>

namespace tandem::router {

Discovery::Discovery(std::vector<Source> sources, absl::Duration interval, WorkerDirectory* directory)
    : sources_(std::move(sources)), interval_(interval), directory_(directory) {
  if (sources_.empty()) return;
  Look();
  thread_ = std::thread([this] {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(absl::Condition(&is_stopping_), interval_)) return;
      }
      Look();
    }
  });
}

Discovery::~Discovery() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void Discovery::Stop() {
  absl::MutexLock lock(&mutex_);
  is_stopping_ = true;
}

void Discovery::Look() {
  for (const Source& source : sources_) directory_->Report(source.name, source.look());
}

}  // namespace tandem::router
