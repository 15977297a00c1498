// Input: an answer or an event of an API server. Whatever it is, what is taken from it is addresses that can be
// connected to, each of the port that was looked for, and an error is short.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/host_port.h"
#include "router/discovery/endpoint_slice.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckSlice(const tandem::router::EndpointSlice& slice) {
  Require(!slice.name.empty());
  for (const auto& endpoint : slice.ready) {
    const auto address = tandem::base::ParseHostPort(endpoint.address);
    Require(address.ok() && address->ToString() == endpoint.address);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tandem::router;
  const absl::string_view text(reinterpret_cast<const char*>(bytes), size);
  if (const auto list = ParseEndpointSliceList(text, "rpc"); list.ok()) {
    Require(!list->resource_version.empty());
    for (const EndpointSlice& slice : list->slices) CheckSlice(slice);
  }
  if (const auto event = ParseEndpointSliceEvent(text, "rpc"); event.ok()) {
    Require((event->kind == EndpointSliceEvent::Kind::kError) == !event->error.ok());
    if (event->kind == EndpointSliceEvent::Kind::kPut) CheckSlice(event->slice);
  }
  const absl::Status error = KubernetesError(503, text);
  Require(!error.ok() && error.message().size() < 400);
  return 0;
}
