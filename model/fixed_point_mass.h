// Probability mass in fixed point: sums that do not depend on their order.
//
// A weight is exp(z - max z) in units of 2^-44, at most 2^44: 2^19 tokens sum to less than 2^64. Details of sampler and
// logprobs; nobody else includes this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/portable_math.h"

namespace tandem::model {

inline constexpr double kMassOne = 0x1p44;
inline constexpr int kMassTokensMax = 1 << 19;

// NaN counts as -inf.
inline double OrMinusInfinity(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : static_cast<double>(logit);
}

// Two infinities of one sign differ by nothing. exp(-1000) is 0 in any format here.
inline uint64_t Weight(double z, double max_z) {
  const double difference = z == max_z ? 0.0 : std::max(z - max_z, -1000.0);
  return static_cast<uint64_t>(static_cast<double>(kernels::Exp(static_cast<float>(difference))) * kMassOne);
}

}  // namespace tandem::model
