#include "tools/bench_serving/progress.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"

namespace tandem::bench_serving {

std::string ProgressLine(const Load::Counts& counts, size_t num_requests, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  const size_t num_answered = counts.num_ended - counts.num_failed;
  std::string line = absl::StrFormat("%.0f s: %d of %d answered, %d under way, %d failed", seconds, num_answered,
                                     num_requests, counts.num_sent - counts.num_ended, counts.num_failed);
  if (seconds > 0) absl::StrAppendFormat(&line, ", %.0f tokens/s", static_cast<double>(counts.num_tokens) / seconds);
  if (counts.num_ended > 0 && counts.num_ended < num_requests) {
    const double a_request = seconds / static_cast<double>(counts.num_ended);
    absl::StrAppendFormat(&line, ", about %.0f s to go",
                          a_request * static_cast<double>(num_requests - counts.num_ended));
  }
  return line;
}

struct Progress::Timer {
  explicit Timer(boost::asio::io_context& io_context) : timer(io_context) {}
  boost::asio::steady_timer timer;
};

Progress::Progress(boost::asio::io_context& io_context, const base::Clock& clock, const Load& load, size_t num_requests)
    : clock_(clock),
      load_(load),
      num_requests_(num_requests),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      timer_(std::make_unique<Timer>(io_context)) {}

Progress::~Progress() = default;

void Progress::Start() { WaitAndPrint(); }

void Progress::WaitAndPrint() {
  timer_->timer.expires_after(std::chrono::seconds(is_terminal_ ? 1 : 10));
  timer_->timer.async_wait([this](boost::system::error_code error) {
    if (error) return;
    const std::string line = ProgressLine(load_.counts(), num_requests_, clock_.Now() - load_.start());
    std::fprintf(stderr, is_terminal_ ? "\r%s\033[K" : "%s\n", line.c_str());
    WaitAndPrint();
  });
}

void Progress::Stop() {
  timer_->timer.cancel();
  if (is_terminal_) std::fputs("\r\033[K", stderr);
}

}  // namespace tandem::bench_serving
