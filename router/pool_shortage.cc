#include "router/pool_shortage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::router {
namespace {

constexpr absl::Duration kRateMemory = absl::Seconds(10);   // of time in which prefill workers compute
constexpr absl::Duration kAnswerMemory = absl::Minutes(1);  // of the answers that have finished
constexpr double kPressureMax = 1e6;                        // a line at a rate that falls to nothing
constexpr double kSpareEnter = 0.5, kSpareLeave = 0.3;      // of what would be left with one worker fewer

double Fading(double seconds, absl::Duration memory) { return std::exp(-seconds / absl::ToDoubleSeconds(memory)); }

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

bool PoolShortageJudge::Latch::Observe(double value, double enter, double leave, absl::Duration now,
                                       absl::Duration hold) {
  const bool turns = is_on_ ? value <= leave : value >= enter;
  if (!turns) {
    turning_since_.reset();
    return is_on_;
  }
  if (!turning_since_.has_value()) turning_since_ = now;
  if (now - *turning_since_ >= hold) {
    is_on_ = !is_on_;
    turning_since_.reset();
  }
  return is_on_;
}

void PoolShortageJudge::ObserveAnswers(const PoolSnapshot& snapshot, absl::Duration elapsed) {
  const double fading = Fading(absl::ToDoubleSeconds(elapsed), kAnswerMemory);
  finished_ = finished_ * fading + snapshot.finished_answers - std::exchange(last_finished_, snapshot.finished_answers);
  late_ = late_ * fading + snapshot.late_first_tokens - std::exchange(last_late_, snapshot.late_first_tokens);
  slow_ = slow_ * fading + snapshot.slow_answers - std::exchange(last_slow_, snapshot.slow_answers);
  shortage_.late_share = Share(late_, finished_);
  shortage_.slow_share = Share(slow_, finished_);
}

void PoolShortageJudge::ObservePrefills(const PoolSnapshot& snapshot, absl::Duration elapsed) {
  shortage_.waiting_tokens = 0;
  const double seconds = absl::ToDoubleSeconds(elapsed);
  double computed = 0, computing = 0;
  absl::flat_hash_map<uint64_t, PoolSnapshot::Prefill> seen;
  for (const PoolSnapshot::Prefill& worker : snapshot.prefills) {
    shortage_.waiting_tokens += worker.waiting_tokens;
    seen[worker.incarnation] = worker;
    const auto before = last_prefills_.find(worker.incarnation);
    if (before == last_prefills_.end()) continue;
    const uint64_t was = before->second.computed_tokens;
    // A worker that has lost its stream says nothing for a while, and its view starts at 0.
    const uint64_t more = was != 0 && worker.computed_tokens > was ? worker.computed_tokens - was : 0;
    if (more == 0 && before->second.waiting_tokens == 0) continue;
    computed += static_cast<double>(more);
    computing += seconds;
  }
  last_prefills_ = std::move(seen);
  const double fading = Fading(computing, kRateMemory);
  computed_tokens_ = computed_tokens_ * fading + computed;
  computing_seconds_ = computing_seconds_ * fading + computing;
  shortage_.tokens_per_second =
      Share(computed_tokens_, computing_seconds_) * static_cast<double>(snapshot.prefills.size());
  // Before the first measurement nothing is known of the line's time.
  shortage_.line_seconds = Share(static_cast<double>(shortage_.waiting_tokens), shortage_.tokens_per_second);
}

void PoolShortageJudge::ObserveDecodes(const PoolSnapshot& snapshot) {
  shortage_.running_sequences = shortage_.waiting_requests = 0;
  double used = 0, total = 0;
  for (const PoolSnapshot::Decode& worker : snapshot.decodes) {
    used += static_cast<double>(worker.kv_pages_total - std::min(worker.kv_pages_free, worker.kv_pages_total));
    total += static_cast<double>(worker.kv_pages_total);
    shortage_.running_sequences += worker.running_sequences;
    shortage_.waiting_requests += worker.waiting_requests;
  }
  shortage_.kv_share = Share(used, total);
}

void PoolShortageJudge::Conclude(int num_workers, double use, Pool& pool, PoolState& state, absl::Duration now,
                                 absl::Duration elapsed) {
  state.pressure = std::min(state.pressure, kPressureMax);
  state.num_workers = num_workers;
  state.is_short = pool.is_short.Observe(state.pressure, kEnter, kLeave, now, limits_.hold);
  const double fading = Fading(absl::ToDoubleSeconds(elapsed), limits_.hold);
  pool.use = pool.use * fading + std::min(std::max(use, state.pressure), 2.0) * (1 - fading);
  const double use_of_fewer = num_workers > 1 ? pool.use * num_workers / (num_workers - 1) : 1;
  const bool is_spare = pool.is_spare.Observe(1 - use_of_fewer, kSpareEnter, kSpareLeave, now, limits_.hold);
  state.num_suggested = std::max(1, num_workers);
  if (state.is_short) {
    const double wanted = std::ceil(std::min(state.pressure, 2.0) * num_workers);
    state.num_suggested = std::clamp(static_cast<int>(wanted), num_workers + 1, std::max(1, 2 * num_workers));
  } else if (is_spare) {
    state.num_suggested = std::max(1, num_workers - 1);
  }
}

const PoolShortage& PoolShortageJudge::Observe(const PoolSnapshot& snapshot, absl::Duration now) {
  const absl::Duration elapsed = last_.has_value() ? now - *last_ : absl::ZeroDuration();
  last_ = now;
  ObserveAnswers(snapshot, elapsed);
  ObservePrefills(snapshot, elapsed);
  ObserveDecodes(snapshot);
  PoolShortage& found = shortage_;
  const double running = static_cast<double>(found.running_sequences);
  const double room_pressure = std::max(found.kv_share / kKvShareMax, static_cast<double>(found.waiting_requests) /
                                                                          std::max(1.0, kWaitingShareMax * running));
  found.decode.pressure = room_pressure;
  if (running > 0) found.decode.pressure = std::max(room_pressure, found.slow_share / kLateShareMax);
  found.prefill.pressure = found.line_seconds / absl::ToDoubleSeconds(limits_.time_to_first_token);
  // What waits for decode's room begins late by decode.
  if (found.waiting_tokens > 0 && room_pressure < kEnter) {
    found.prefill.pressure = std::max(found.prefill.pressure, found.late_share / kLateShareMax);
  }
  const auto computes = [](const PoolSnapshot::Prefill& worker) { return worker.waiting_tokens > 0; };
  const auto num_computing = std::count_if(snapshot.prefills.begin(), snapshot.prefills.end(), computes);
  const int num_prefills = static_cast<int>(snapshot.prefills.size());
  Conclude(num_prefills, Share(static_cast<double>(num_computing), num_prefills), prefill_, found.prefill, now,
           elapsed);
  Conclude(static_cast<int>(snapshot.decodes.size()), found.kv_share, decode_, found.decode, now, elapsed);
  return shortage_;
}

std::string PoolShortage::ToString() const {
  const char* const name =
      prefill.is_short ? (decode.is_short ? "both" : "prefill") : (decode.is_short ? "decode" : "none");
  return absl::StrFormat(
      "%s; prefill: pressure %.2f, %d tokens in line, %.0f tokens/s, %.3f s, %.1f%% of answers late, %d workers, %d "
      "suggested; decode: pressure %.2f, %.1f%% of KV pages used, %d sequences run, %d requests wait, %.1f%% of "
      "answers slow, %d workers, %d suggested",
      name, prefill.pressure, waiting_tokens, tokens_per_second, line_seconds, late_share * 100, prefill.num_workers,
      prefill.num_suggested, decode.pressure, kv_share * 100, running_sequences, waiting_requests, slow_share * 100,
      decode.num_workers, decode.num_suggested);
}

}  // namespace tandem::router
