// What goes wrong in one simulated run, drawn from its seed: every run has its own mix (swarm testing), some have none.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/sim/event_queue.h"

namespace tandem::sim {

// Requests that may wait in line at one worker.
inline constexpr int kSimLineMax = 48;
// That an answer which has begun waits for workers to go on with: longer than any of them is away.
inline constexpr absl::Duration kSimFailoverWait = absl::Minutes(5);

struct FaultPlan {
  // The cluster.
  int num_prefills = 1;
  int num_decodes = 1;
  int num_requests = 0;
  int num_bursts = 1;      // in which they arrive
  int max_new_tokens = 0;  // of one request, at most
  int prefill_pages = 0;
  int decode_pages = 0;
  int chunked_prefill_size = 0;
  int max_running_requests = 0;
  int num_lanes = 2;
  int64_t credit_bytes = 0;  // of each request
  int num_drafts = 0;        // of each window, with the MTP layer; 0: there is none
  // Every decode worker has HiSparse with device pages for so many whole buffers; 0: some have it, by their
  // incarnation.
  int num_device_buffers = 0;

  // Times that a fault of this kind strikes while faults last.
  int prefill_crashes = 0;
  int decode_crashes = 0;
  int router_crashes = 0;
  int pair_cuts = 0;         // control stream between decode and prefill
  int router_link_cuts = 0;  // between the router and a worker
  // A decode worker is lost for good at the moment when it alone has epochs open and prefill has pinned pages for it.
  bool loses_a_holder = false;

  // Chances.
  double cancel = 0;         // of a request, that its client leaves
  double deadline = 0;       // of a request, that it has little time
  double slow_reader = 0;    // of a request, that its client stops reading for a while
  double fetch_error = 0;    // of a fetch
  double fetch_corrupt = 0;  // of a fetch
  double fetch_stall = 0;    // of a fetch, that it hangs for seconds
  double slow_message = 0;   // of a control message, that it and all behind it are late
  double slow_step = 0;      // of an engine step

  bool reads_dead_memory = false;  // the lane goes on reading a dead prefill's memory, as a mapping does
  absl::Duration faults_end;       // from then on nothing goes wrong any more

  bool HasFaults() const { return HasFaultsBesideCutStreams() || router_link_cuts > 0; }
  // Of streams between router and workers alone: nothing is lost with them.
  bool HasFaultsBesideCutStreams() const {
    return prefill_crashes + decode_crashes + router_crashes + pair_cuts > 0 || loses_a_holder ||
           fetch_error + fetch_corrupt + fetch_stall > 0;
  }
  std::string ToString() const;
};

FaultPlan DrawFaultPlan(EventQueue& events);

}  // namespace tandem::sim
