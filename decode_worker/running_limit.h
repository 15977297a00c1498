// How many sequences may hold pages at a time where process.max_running_requests leaves it to memory: as many as
// admission could ever let in, and as the memory of a step's rows allows.
//
//   KV pages      A sequence has at least one page, and admission keeps one free for everybody that holds pages: the
//                 (n + 1)-th finds its page where num_pages - n > n.
//   device pages  With HiSparse the buffers of all must fit together; the shortest sequence's, with its next page.
//   choices       Those of a request that is alone need neither: they take turns. So many are always allowed.
//   rows          A step has num_drafts + 1 rows for each. Their logits take kRowsPart of the KV memory at most, or
//                 kRowsBytesMin where that is more, so that what steps need never rivals the cache beside it.
// The least of pages and device pages, or the choices where these are more, within what rows allow. More could not run,
// fewer would turn requests away that have room.
// Pure. Tested by running_limit_test.cc, against the scheduler's own admission.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::decode {

struct RunningMemory {
  int64_t num_pages = 0;         // of the KV pool
  int64_t num_device_pages = 0;  // HiSparse: of all buffers together
  int num_kept_pages_max = 0;    // of one buffer; 0: HiSparse is off
  int64_t kv_bytes = 0;          // of the pool on the device
  int vocab_size = 0;
  int num_drafts = 0;  // of a window
};

struct RunningLimit {
  int num_sequences = 0;  // the least of the others, or what was set
  bool is_set = false;    // by process.max_running_requests
  int64_t by_pages = 0;
  int64_t by_device_pages = 0;  // 0: HiSparse is off
  int64_t by_choices = 0;       // of one request
  int64_t by_rows = 0;
  int64_t rows_bytes = 0;  // that the logits of a step may take

  bool operator==(const RunningLimit&) const = default;
};

inline constexpr int64_t kRowsPart = 16;  // one in so many bytes
inline constexpr int64_t kRowsBytesMin = int64_t{64} << 20;
inline constexpr int kRunningSequencesMax = 4096;  // process.max_running_requests allows no more

// num_set: process.max_running_requests, 0 where memory is to say.
RunningLimit PlanRunningLimit(const RunningMemory& memory, int num_set);

// In one line, with the numbers that it comes from: the log, /statusz.
std::string Describe(const RunningLimit& limit, const RunningMemory& memory);

}  // namespace tandem::decode
