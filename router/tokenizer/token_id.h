// The router's side of a token: an index into the checkpoint's vocabulary, as it goes over the wire.
#pragma once

#include <cstdint>

namespace tandem::router {

using TokenId = uint32_t;

}  // namespace tandem::router
