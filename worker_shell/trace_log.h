// What workers log of a request whose client records its trace (docs/operations.md, Traces). Of others they log nothing
// at their begin: a line for each request of a busy worker would be most of its log.
// Tested by tests/e2e/trace_context_test.py.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::worker_shell {

// request: as the worker's other lines name it. trace_parent: of another process, perhaps none.
void LogIfTraced(const std::string& request, absl::string_view trace_parent, size_t num_prompt_tokens);

}  // namespace tandem::worker_shell
