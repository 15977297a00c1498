#include "base/shutdown.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tandem::base {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR2);  // from the destructor: end the listener
  return set;
}

}  // namespace

ShutdownSignal::ShutdownSignal() {
  const sigset_t set = StopSignals();
  TANDEM_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0, "pthread_sigmask failed");
  signal(SIGPIPE, SIG_IGN);
  listener_ = std::thread([this] { Listen(); });
}

ShutdownSignal::~ShutdownSignal() {
  pthread_kill(listener_.native_handle(), SIGUSR2);
  listener_.join();
}

void ShutdownSignal::Listen() {
  const sigset_t set = StopSignals();
  int count = 0;
  for (;;) {
    int signal_number = 0;
    if (sigwait(&set, &signal_number) != 0) continue;
    if (signal_number == SIGUSR2) return;
    absl::MutexLock lock(&mutex_);
    if (!has_started_) {
      LOG_INFO("stopped during the start", {"signal", signal_number});
      _exit(0);
    }
    if (++count == 1) {
      LOG_INFO("asked to stop", {"signal", signal_number});
      received_.Notify();
      continue;
    }
    LOG_WARNING("further signal while draining, ending at once", {"signal", signal_number}, {"signals", count});
    if (hurry_ == nullptr || count > 2) _exit(1);
    hurry_();
  }
}

void ShutdownSignal::Started() {
  absl::MutexLock lock(&mutex_);
  has_started_ = true;
}

void ShutdownSignal::Wait() { received_.WaitForNotification(); }

void ShutdownSignal::OnSecond(std::function<void()> hurry) {
  absl::MutexLock lock(&mutex_);
  hurry_ = std::move(hurry);
}

}  // namespace tandem::base
