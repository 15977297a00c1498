// The only source of entropy. Sampling noise is not here: it is a function of (seed, choice, position, token), see
// model/sampler.h.
#pragma once

#include <cstdint>

namespace tandem::base {

// 64 random bits from the kernel, never zero: incarnations, request seeds, ids.
uint64_t RandomId();

}  // namespace tandem::base
