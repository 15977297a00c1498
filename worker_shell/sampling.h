// The sampler's parameters as they cross the wire.
#pragma once

#include "model/sampler.h"
#include "proto/common.pb.h"

namespace tandem::worker_shell {

inline model::SamplingParams SamplingFrom(const proto::Sampling& sampling) {
  return {.temperature = sampling.temperature(),
          .top_p = sampling.top_p(),
          .top_k = sampling.top_k(),
          .seed = sampling.seed()};
}

}  // namespace tandem::worker_shell
