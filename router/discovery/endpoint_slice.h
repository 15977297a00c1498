// What the Kubernetes API says of a Service's endpoints: lists and watch events of EndpointSlices, as text.
//
// Read by the rules of discovery.k8s.io/v1: an endpoint that says nothing of being ready is ready, one that terminates
// is not, an unknown kind of address is not used. Fields that nobody here needs are not looked at, so that later
// servers may send more. Tested by endpoint_slice_test.cc and endpoint_slice_fuzz_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

struct EndpointSlice {
  struct Endpoint {
    std::string address;   // host:port, of the port that is looked for
    std::string pod;       // its uid; empty: not of a pod
    bool is_ipv6 = false;  // a pod of two families stands in a slice of each
  };
  std::string name;
  std::vector<Endpoint> ready;
  bool lacks_port = false;  // it has ready endpoints, and no port of that name
};

struct EndpointSliceList {
  std::string resource_version;  // from where a watch goes on
  std::vector<EndpointSlice> slices;
};

struct EndpointSliceEvent {
  enum class Kind { kPut, kDeleted, kBookmark, kError };
  Kind kind = Kind::kError;
  EndpointSlice slice;           // of kPut; of kDeleted its name
  std::string resource_version;  // of all but kError; empty: not said
  absl::Status error;            // of kError: OUT_OF_RANGE where the version asked for is gone (410)
};

// port_name: of the gRPC services. INVALID_ARGUMENT for what is no whole list of EndpointSlices.
absl::StatusOr<EndpointSliceList> ParseEndpointSliceList(absl::string_view text, absl::string_view port_name);
// One line of a watch. INVALID_ARGUMENT for what is no event of a kind that is known.
absl::StatusOr<EndpointSliceEvent> ParseEndpointSliceEvent(absl::string_view text, absl::string_view port_name);

// The error that an answer with this HTTP status stands for, with the server's words where the body has them (a Status
// object). The code says what can be done: OUT_OF_RANGE for 410, else UNAVAILABLE, PERMISSION_DENIED (401, 403),
// NOT_FOUND, INVALID_ARGUMENT.
absl::Status KubernetesError(int http_status, absl::string_view body);

}  // namespace tandem::router
