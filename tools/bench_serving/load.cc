#include "tools/bench_serving/load.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "tools/bench_serving/answer_reader.h"
#include "tools/bench_serving/draws.h"
#include "tools/bench_serving/request_body.h"

namespace tandem::bench_serving {
namespace {

constexpr size_t kRefusalBytesMax = 4096;  // of an error's body: its beginning says what it is

// An answer while it arrives.
struct Reading {
  Reading(const Flags& flags, const BenchRequest& request, absl::Duration start)
      : reader(flags.backend, !flags.disable_stream) {
    outcome.start = start;
    outcome.prompt_len = request.prompt_len;
    outcome.output_len_asked = request.output_len;
  }
  AnswerReader reader;
  std::string refusal;  // the body of a status that is not 200
  size_t num_chunks_seen = 0;
  Outcome outcome;
};

absl::Status ReadEnd(Reading& reading, const absl::Status& end, int status_code, absl::Duration now) {
  if (!end.ok()) return end;
  if (status_code != 200) {
    return absl::UnavailableError(absl::StrCat("status ", status_code, ": ", reading.refusal));
  }
  const absl::Status finished = reading.reader.Finish(now);
  if (!finished.ok()) return finished;
  if (reading.reader.answer().chunks.empty()) return absl::DataLossError("answer without text: no event had any");
  return absl::OkStatus();
}

}  // namespace

std::vector<absl::Duration> DrawArrivals(size_t num_requests, double request_rate, uint64_t seed) {
  std::vector<absl::Duration> arrivals(num_requests);
  if (std::isinf(request_rate)) return arrivals;
  Draws draws(seed);
  double seconds = 0;
  for (absl::Duration& arrival : arrivals) {
    arrival = absl::Seconds(seconds);
    seconds += draws.Exponential(1 / request_rate);
  }
  return arrivals;
}

void Ask(HttpClient& client, const base::Clock& clock, const Flags& flags, absl::string_view model,
         const BenchRequest& request, std::function<void(int num_tokens)> on_tokens,
         std::function<void(Outcome)> on_end) {
  std::string body = RequestBody(flags, model, request);
  auto reading = std::make_shared<Reading>(flags, request, clock.Now());
  client.Send({.method = "POST",
               .path = BackendPath(flags.backend),
               .body = std::move(body),
               .time_max = flags.request_timeout},
              {.on_bytes = [reading, on_tokens = std::move(on_tokens)](int status, absl::string_view bytes,
                                                                       absl::Duration at) -> absl::Status {
                 if (status != 200) {
                   const size_t room = kRefusalBytesMax - reading->refusal.size();
                   reading->refusal.append(bytes.data(), std::min(room, bytes.size()));
                   return absl::OkStatus();
                 }
                 const absl::Status read = reading->reader.Append(bytes, at);
                 const std::vector<Chunk>& chunks = reading->reader.answer().chunks;
                 for (size_t& i = reading->num_chunks_seen; i < chunks.size(); ++i) {
                   if (on_tokens) on_tokens(chunks[i].num_tokens);
                 }
                 return read;
               },
               .on_end =
                   [reading, &clock, on_end = std::move(on_end)](const absl::Status& end, int status_code) {
                     const absl::Duration now = clock.Now();
                     Outcome& outcome = reading->outcome;
                     outcome.status = ReadEnd(*reading, end, status_code, now);
                     outcome.end = outcome.status.ok() ? reading->reader.end() : now;
                     outcome.answer = reading->reader.TakeAnswer();
                     on_end(std::move(outcome));
                   }});
}

struct Load::Timer {
  explicit Timer(boost::asio::io_context& io_context) : timer(io_context) {}
  boost::asio::steady_timer timer;
};

Load::Load(boost::asio::io_context& io_context, HttpClient& client, const base::Clock& clock, const Flags& flags,
           std::string model, const std::vector<BenchRequest>& requests, std::vector<absl::Duration> arrivals)
    : client_(client),
      clock_(clock),
      flags_(flags),
      model_(std::move(model)),
      requests_(requests),
      arrivals_(std::move(arrivals)),
      timer_(std::make_unique<Timer>(io_context)) {}

Load::~Load() = default;

void Load::Start(std::function<void()> on_end) {
  on_end_ = std::move(on_end);
  outcomes_.reserve(requests_.size());
  start_ = clock_.Now();
  SendDue();
}

void Load::SendDue() {
  while (!is_interrupted_ && num_due_ < requests_.size()) {
    const absl::Duration due = start_ + arrivals_[num_due_];
    const absl::Duration wait = due - clock_.Now();
    if (wait > absl::ZeroDuration()) {
      timer_->timer.expires_after(absl::ToChronoNanoseconds(wait));
      timer_->timer.async_wait([this](boost::system::error_code error) {
        if (!error) SendDue();
      });
      break;
    }
    ++num_due_;
    const size_t num_under_way = counts_.num_sent - counts_.num_ended;
    const bool has_place = flags_.max_concurrency == 0 || num_under_way < static_cast<size_t>(flags_.max_concurrency);
    if (has_place && counts_.num_sent + 1 == num_due_) SendNext(due);
  }
  EndIfDone();
}

// `due`: when it was to be sent; those that waited for a place are sent when they can be.
void Load::SendNext(absl::Duration due) {
  const BenchRequest& request = requests_[counts_.num_sent++];
  const absl::Duration lateness = std::max(clock_.Now() - due, absl::ZeroDuration());
  Ask(
      client_, clock_, flags_, model_, request, [this](int num_tokens) { counts_.num_tokens += num_tokens; },
      [this, lateness](Outcome outcome) {
        outcome.lateness = lateness;
        TakeOutcome(std::move(outcome));
      });
}

void Load::TakeOutcome(Outcome outcome) {
  ++counts_.num_ended;
  if (!outcome.status.ok()) ++counts_.num_failed;
  outcomes_.push_back(std::move(outcome));
  if (!is_interrupted_ && counts_.num_sent < num_due_) SendNext(clock_.Now());
  EndIfDone();
}

void Load::Interrupt() {
  is_interrupted_ = true;
  timer_->timer.cancel();
  client_.CancelAll();
  EndIfDone();
}

void Load::EndIfDone() {
  const bool is_all_sent = is_interrupted_ || counts_.num_sent == requests_.size();
  if (!is_all_sent || counts_.num_ended < counts_.num_sent || !on_end_) return;
  std::exchange(on_end_, nullptr)();
}

}  // namespace tandem::bench_serving
