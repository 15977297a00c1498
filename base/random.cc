#include "base/random.h"

#include <sys/random.h>

#include "base/check.h"

namespace tandem::base {

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) {
    // Eight bytes never come in part and never fail once the kernel's pool is ready (getrandom(2)).
    TANDEM_CHECK(getrandom(&id, sizeof(id), 0) == sizeof(id), "getrandom failed");
  }
  return id;
}

}  // namespace tandem::base
