// SIGTERM and SIGINT as an event that main waits for. Blocks both signals in every thread started later, so construct
// it first in main. Before Started() nobody is served yet: a signal ends the process at once with exit code 0, whatever
// it is loading. Then the first signal asks for a drain; a second one calls what OnSecond() was given, for a process
// that has somebody to tell, and ends the process at once with exit code 1 where there is nothing; a third ends it in
// any case. Tested by shutdown_test.cc.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace tandem::base {

class ShutdownSignal final {
 public:
  ShutdownSignal();
  ~ShutdownSignal();
  // The start is complete. To be called before Wait().
  void Started() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until the first signal.
  void Wait();
  // hurry is called on the listener's thread, at most once; nullptr takes it back and waits for a call under way.
  void OnSecond(std::function<void()> hurry) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Listen();
  absl::Notification received_;
  absl::Mutex mutex_;
  bool has_started_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> hurry_ ABSL_GUARDED_BY(mutex_);
  std::thread listener_;
};

}  // namespace tandem::base
