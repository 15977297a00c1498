// Sends a run's requests at their times and collects their outcomes, on the io_context's thread.
//
// The plan is drawn before the first request: an open loop does not slow down with its server. Beyond max_concurrency a
// request waits for a place, in order, and its own clock starts when it is sent. Tested by load_test.cc against a
// server whose times and tokens are known, on an injected clock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "tools/bench_serving/bench_request.h"
#include "tools/bench_serving/flags.h"
#include "tools/bench_serving/http_client.h"
#include "tools/bench_serving/outcome.h"

namespace tandem::bench_serving {

// When each request is due after the run's beginning: a Poisson process; all zero at an infinite rate.
std::vector<absl::Duration> DrawArrivals(size_t num_requests, double request_rate, uint64_t seed);

// Sends one request; on_end gets its outcome on the io_context's thread. on_tokens, where given, hears of each chunk.
void Ask(HttpClient& client, const base::Clock& clock, const Flags& flags, absl::string_view model,
         const BenchRequest& request, std::function<void(int num_tokens)> on_tokens,
         std::function<void(Outcome)> on_end);

class Load final {
 public:
  struct Counts {
    size_t num_sent = 0;
    size_t num_ended = 0;
    size_t num_failed = 0;
    int64_t num_tokens = 0;  // in chunks so far, of requests under way too
  };

  // All references outlive the load. arrivals[i] belongs to requests[i].
  Load(boost::asio::io_context& io_context, HttpClient& client, const base::Clock& clock, const Flags& flags,
       std::string model, const std::vector<BenchRequest>& requests, std::vector<absl::Duration> arrivals);
  ~Load();

  void Start(std::function<void()> on_end);
  // Sends no more and ends what is under way with CANCELLED: on_end follows.
  void Interrupt();

  const Counts& counts() const { return counts_; }
  absl::Duration start() const { return start_; }
  // In the order of their ends; what was never sent has none.
  std::vector<Outcome> TakeOutcomes() { return std::move(outcomes_); }

 private:
  struct Timer;

  void SendDue();
  void SendNext(absl::Duration due);
  void TakeOutcome(Outcome outcome);
  void EndIfDone();

  HttpClient& client_;
  const base::Clock& clock_;
  const Flags& flags_;
  const std::string model_;
  const std::vector<BenchRequest>& requests_;
  const std::vector<absl::Duration> arrivals_;
  const std::unique_ptr<Timer> timer_;
  std::function<void()> on_end_;
  absl::Duration start_;
  size_t num_due_ = 0;  // requests whose time has come; counts_.num_sent of them have been sent
  bool is_interrupted_ = false;
  Counts counts_;
  std::vector<Outcome> outcomes_;
};

}  // namespace tandem::bench_serving
