// The version of the messages in this folder: raised whenever an older peer would misread a
// newer one, or the meaning of a sum changes.
// Every Hello carries it; sides of different versions refuse each other.
#pragma once

#include <cstdint>

namespace tandem::proto {

inline constexpr uint32_t kProtocolVersion = 1;

}  // namespace tandem::proto
