// What the prefill engine wants done outside of itself: messages to decode workers, in order. Never blocks, never calls
// back into the engine.
#pragma once

#include "kvtransfer/transfer_source.h"

namespace tandem::prefill {

class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void ToTarget(kvtransfer::SendToTarget message) = 0;
};

}  // namespace tandem::prefill
