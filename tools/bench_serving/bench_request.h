// One request to be, drawn before the run begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::bench_serving {

struct BenchRequest {
  // One of the three is set.
  std::string text;
  std::vector<uint32_t> ids;
  std::string messages;  // a JSON array, as the file had it

  int prompt_len = 0;  // tokens by our own count; what a chat format puts around them is not in it
  int output_len = 0;  // tokens asked for
};

}  // namespace tandem::bench_serving
