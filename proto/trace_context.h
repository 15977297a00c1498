// The traceparent of W3C Trace Context (Recommendation of 23 November 2021, sections 3.2 and 4): what a client's
// tracing calls a request, carried through the cluster.
//
// The router takes part by passing it on as it came: it records no spans of its own, so the parent stays the client's.
// What is not valid is taken as absent, and a new trace is begun; tracestate, which belongs to it, ends at the router,
// since no worker calls anybody who would read it. Pure functions. Tested by trace_context_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::proto {

// VERSION-<32 hex digits>-<16 hex digits>-<2 hex digits>, lower case, neither id all zeroes, a version other than ff;
// of versions above 00, more may follow behind a further '-'.
bool IsTraceParent(absl::string_view text);

// The same in version 00, which is what is passed on: of a later version, the parts that 00 has. A trace parent.
std::string TraceParentAsVersion0(absl::string_view trace_parent);

// Of a new trace that nobody records. high, low, parent: not all zero.
std::string NewTraceParent(uint64_t high, uint64_t low, uint64_t parent);

// The 32 digits; "" of what is no trace parent.
absl::string_view TraceId(absl::string_view trace_parent);
// Whether the caller may have recorded the trace; false of what is no trace parent.
bool IsSampled(absl::string_view trace_parent);

}  // namespace tandem::proto
