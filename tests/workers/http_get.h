// One GET to an admin server on loopback: status line, headers and body as they come.
#pragma once

#include <string>

namespace tandem::tests {

// Empty where nobody answers.
std::string HttpGet(int port, const std::string& path);

}  // namespace tandem::tests
