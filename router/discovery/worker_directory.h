// The one owner of the list of workers: several sources say what they know, subscribers hear the union when it changes.
//
// A source is the configuration, a file, a name in DNS, an operator's hand. A source that fails keeps what it said
// last: a router serves on with what it has, whatever becomes of the places that it learns from. Each failure is logged
// once, and so is its end. Whether a listed worker lives is none of the directory's business: its link finds out
// (worker_link.h). Any thread. Tested by worker_directory_test.cc.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "router/discovery/worker_lists.h"
#include "router/worker_channel.h"

namespace tandem::router {

class WorkerDirectory final {
 public:
  using Subscriber = std::function<void(const WorkerLists&)>;

  WorkerDirectory() = default;
  WorkerDirectory(const WorkerDirectory&) = delete;
  WorkerDirectory& operator=(const WorkerDirectory&) = delete;

  // What the source says now; an error leaves what it said before. An address that would stand in both roles is such
  // an error, too, unless the other source has failed since it named it.
  void Report(const std::string& source, const absl::StatusOr<WorkerLists>& lists) ABSL_LOCKS_EXCLUDED(mutex_);

  // By hand, as a source of its own. Adding ends the worker's drain. INVALID_ARGUMENT where it has the other role.
  absl::Status Add(WorkerRole role, const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);
  // What was added by hand. INVALID_ARGUMENT where another source lists the worker, NOT_FOUND where none does.
  absl::Status Remove(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);
  // Out of the union whoever lists it, until no source does or it is added by hand. NOT_FOUND where none does.
  absl::Status Drain(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);

  // The union, less the workers that drain.
  WorkerLists lists() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Hears the lists now, then every change, in order; it is called with the directory's lock held and must not call
  // back. nullptr ends it.
  void Subscribe(Subscriber subscriber) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same of the number of sources that fail.
  void SubscribeFailures(std::function<void(int num_failing)> subscriber) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kErrorsLoggedMax = 8;  // of a source that fails in ever new words

  struct Source {
    WorkerLists lists;
    std::set<std::string> errors;  // logged since it was last well: each once, whatever their order
  };
  absl::Status Take(const std::string& name, const WorkerLists& lists) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What sources that fail said of these addresses is old: an address may have passed on to a worker of the other role.
  void LeaveToOthers(const std::string& name, const WorkerLists& lists) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish(const std::string& cause, WorkerLists all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<WorkerLists> UnionWith(const std::string& name, const WorkerLists& lists) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishFailures() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const std::string& name, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<std::string, Source> sources_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> drained_ ABSL_GUARDED_BY(mutex_);
  WorkerLists published_ ABSL_GUARDED_BY(mutex_);
  Subscriber subscriber_ ABSL_GUARDED_BY(mutex_);
  std::function<void(int)> failure_subscriber_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::router
