// Stops the process where an impossible state was reached. On in every build: a worker that goes on with broken
// invariants corrupts KV pages, one that stops is restarted and its requests are resumed elsewhere.
#pragma once

#include "absl/strings/string_view.h"

namespace tandem::base {
// Prints file:line, the condition and the message to stderr, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, absl::string_view message);
}  // namespace tandem::base

#define TANDEM_CHECK(condition, message)                                    \
  do {                                                                      \
    if (!(condition)) [[unlikely]]                                          \
      ::tandem::base::CheckFailed(__FILE__, __LINE__, #condition, message); \
  } while (false)
