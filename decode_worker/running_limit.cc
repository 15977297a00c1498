#include "decode_worker/running_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "decode_worker/hisparse/device_pages.h"
#include "kvcache/kv_layout.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {
namespace {

int64_t LogitsBytes(const RunningMemory& memory) { return int64_t{4} * memory.vocab_size; }

// Of a sequence of one token, as admission counts them.
int DevicePagesOfShortest(const RunningMemory& memory) {
  return DevicePagesFor(1 + kvcache::kPageTokens, memory.num_kept_pages_max);
}

}  // namespace

RunningLimit PlanRunningLimit(const RunningMemory& memory, int num_set) {
  RunningLimit limit{.by_pages = (memory.num_pages + 1) / 2,
                     .by_choices = std::min<int64_t>(memory.num_pages, worker_shell::kChoicesMax),
                     .rows_bytes = std::max(kRowsBytesMin, memory.kv_bytes / kRowsPart)};
  limit.by_rows = limit.rows_bytes / (LogitsBytes(memory) * (1 + memory.num_drafts));
  int64_t least = limit.by_pages;
  if (memory.num_kept_pages_max > 0) {
    limit.by_device_pages = memory.num_device_pages / DevicePagesOfShortest(memory);
    least = std::min(least, limit.by_device_pages);
  }
  least = std::min(std::max(least, limit.by_choices), limit.by_rows);
  limit.is_set = num_set > 0;
  limit.num_sequences = limit.is_set ? num_set : static_cast<int>(std::clamp<int64_t>(least, 1, kRunningSequencesMax));
  return limit;
}

std::string Describe(const RunningLimit& limit, const RunningMemory& memory) {
  std::string text =
      absl::StrCat(limit.num_sequences, " sequences hold pages at a time, ",
                   limit.is_set ? "as process.max_running_requests says; memory would give" : "by memory", ": ",
                   limit.by_pages, " by ", memory.num_pages, " KV pages (two for each)");
  if (memory.num_kept_pages_max > 0) {
    absl::StrAppend(&text, ", ", limit.by_device_pages, " by ", memory.num_device_pages, " device pages (",
                    DevicePagesOfShortest(memory), " for each)");
  }
  absl::StrAppend(&text, ", at least ", limit.by_choices, " for the choices of one request, at most ", limit.by_rows,
                  " by rows (", limit.rows_bytes, " bytes; each has ", 1 + memory.num_drafts, " rows with ",
                  LogitsBytes(memory), " bytes of logits)");
  return text;
}

}  // namespace tandem::decode
