// exp on sixteen lanes: the bits of portable_math's Exp in each. Tested by lanes_test.cc.
#pragma once

#include "kernels/lanes.h"
#include "kernels/portable_math.h"

namespace tandem::kernels {

TANDEM_LANES_INLINE Lanes ExpLanes(const Lanes& x) {
  return MakeLanes([&](int p) { return portable_math_internal::ExpOf<NativeFloat, NativeUint>(x.part[p]); });
}

}  // namespace tandem::kernels
