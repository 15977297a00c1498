// For tests: files of others that the project reads and does not own (official vectors, the real tokenizer).
#pragma once

#include <optional>
#include <string>

namespace tandem::router {

// Where `name` (e.g. "data/chat/test_input.json") lies under the folder of reference files: $TANDEM_SHARED_DIR, else
// ../shared beside the source tree. Nothing where it is absent: the test says so and skips.
std::optional<std::string> FindReferenceFile(const std::string& name);

// The content of that file.
std::optional<std::string> ReadReferenceFile(const std::string& name);

}  // namespace tandem::router
