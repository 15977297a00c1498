// The trace that a client's request belongs to (proto/trace_context.h), or a new one.
// Tested by tests/e2e/trace_context_test.py.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/random.h"
#include "proto/trace_context.h"
#include "router/http/http_message.h"

namespace tandem::router {

// What the client sent, where it is one traceparent; else one of a new trace: invalid ones, and several, count as none.
inline std::string TraceParentOf(const HttpRequest& request) {
  absl::string_view sent;
  int num_sent = 0;
  for (const auto& [name, value] : request.headers) {
    if (name != "traceparent") continue;
    ++num_sent;
    sent = value;
  }
  if (num_sent == 1 && proto::IsTraceParent(sent)) return proto::TraceParentAsVersion0(sent);
  return proto::NewTraceParent(base::RandomId(), base::RandomId(), base::RandomId());
}

}  // namespace tandem::router
