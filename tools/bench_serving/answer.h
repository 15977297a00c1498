// What a client saw of one answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::bench_serving {

// A piece of text, and when it was read.
struct Chunk {
  absl::Duration at;    // on the clock of the run
  int num_tokens = 1;   // new in it, where the server says so; 1 where it does not
  size_t text_end = 0;  // of the answer's text, with this chunk
};

struct Answer {
  std::vector<Chunk> chunks;
  std::string text;
  std::optional<int> prompt_tokens;  // as the server counted them
  std::optional<int> completion_tokens;
  std::optional<int> cached_tokens;
};

}  // namespace tandem::bench_serving
