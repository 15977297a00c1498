// Open files that this process may have. Services raise their soft limit to the hard one: many systems start processes
// with 1024, and every connection takes one. Tested by file_limit_test.cc.
#pragma once

#include <cstdint>

namespace tandem::base {

// Returns the limit in force afterwards; INT64_MAX where there is none.
int64_t RaiseFileLimit();

}  // namespace tandem::base
