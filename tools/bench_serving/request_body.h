// The body of a request, as its API takes it. Tested by request_body_test.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "tools/bench_serving/bench_request.h"
#include "tools/bench_serving/flags.h"

namespace tandem::bench_serving {

// "/generate", "/v1/completions" or "/v1/chat/completions".
const char* BackendPath(Backend backend);

// The members of --extra-request-body take the place of ours of the same name.
std::string RequestBody(const Flags& flags, absl::string_view model, const BenchRequest& request);

}  // namespace tandem::bench_serving
