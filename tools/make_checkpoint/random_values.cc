#include "tools/make_checkpoint/random_values.h"

#include <cmath>

#include "kernels/portable_math.h"

namespace tandem::make_checkpoint {
namespace {

// FNV-1a: spreads names over streams; nothing depends on its being strong.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

RandomValues::RandomValues(uint64_t seed, std::string_view stream_name) : seed_(seed) {
  const uint64_t stream = HashName(stream_name);
  counter_ = {static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32), 0, 0};
}

double RandomValues::NextSigned() {
  if (num_used_ == block_.size()) {
    block_ = model::Philox4x32(seed_, counter_);
    if (++counter_[2] == 0) ++counter_[3];
    num_used_ = 0;
  }
  // The odd multiple of 2^-32 in the middle of its cell.
  return (2.0 * block_[num_used_++] + 1.0) * 0x1p-32 - 1.0;
}

double RandomValues::NextNormal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_normal_;
  }
  double x, y, radius_squared;
  do {
    x = NextSigned();
    y = NextSigned();
    radius_squared = x * x + y * y;
  } while (radius_squared >= 1.0);
  const double factor = std::sqrt(-2.0 * kernels::Log(radius_squared) / radius_squared);
  spare_normal_ = y * factor;
  has_spare_ = true;
  return x * factor;
}

}  // namespace tandem::make_checkpoint
