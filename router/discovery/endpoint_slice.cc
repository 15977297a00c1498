#include "router/discovery/endpoint_slice.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "boost/json.hpp"

namespace tandem::router {
namespace {

namespace json = boost::json;

constexpr size_t kWordsMax = 300;  // of a server's message, in an error

absl::Status Malformed(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<json::object> ParseObject(absl::string_view text) {
  boost::system::error_code error;
  json::value value;
  try {
    value = json::parse(json::string_view(text.data(), text.size()), error);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for the JSON");
  }
  if (error) return Malformed(absl::StrCat("not JSON: ", error.message()));
  json::object* const object = value.if_object();
  if (object == nullptr) return Malformed("not a JSON object");
  return std::move(*object);
}

const json::object* ObjectAt(const json::object& object, const char* name) {
  const json::value* const value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_object();
}

// nullptr where it is absent or null, which Go writes for an empty list.
const json::array* ArrayAt(const json::object& object, const char* name) {
  const json::value* const value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_array();
}

std::string TextAt(const json::object* object, const char* name) {
  const json::value* const value = object == nullptr ? nullptr : object->if_contains(name);
  const json::string* const text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? "" : std::string(text->data(), text->size());
}

std::optional<bool> BoolAt(const json::object* object, const char* name) {
  const json::value* const value = object == nullptr ? nullptr : object->if_contains(name);
  const bool* const found = value == nullptr ? nullptr : value->if_bool();
  return found == nullptr ? std::nullopt : std::optional<bool>(*found);
}

int64_t IntegerAt(const json::object& object, const char* name) {
  const json::value* const value = object.if_contains(name);
  const int64_t* const found = value == nullptr ? nullptr : value->if_int64();
  return found == nullptr ? 0 : *found;
}

// 0 where no TCP port has the name.
int PortOf(const json::object& slice, absl::string_view port_name) {
  const json::array* const ports = ArrayAt(slice, "ports");
  if (ports == nullptr) return 0;
  for (const json::value& value : *ports) {
    const json::object* const port = value.if_object();
    if (port == nullptr || TextAt(port, "name") != port_name) continue;
    const std::string protocol = TextAt(port, "protocol");
    const int64_t number = IntegerAt(*port, "port");
    if ((protocol.empty() || protocol == "TCP") && number >= 1 && number <= 65535) return static_cast<int>(number);
  }
  return 0;
}

// Whether requests may be sent there: `ready` unsaid counts as true, and a server never says it of an endpoint that
// terminates, but for Services that ask for those that are not ready.
bool IsReady(const json::object& endpoint) {
  const json::object* const conditions = ObjectAt(endpoint, "conditions");
  return BoolAt(conditions, "ready").value_or(true) && !BoolAt(conditions, "terminating").value_or(false);
}

absl::StatusOr<EndpointSlice> SliceOf(const json::object& object, absl::string_view port_name) {
  EndpointSlice slice;
  slice.name = TextAt(ObjectAt(object, "metadata"), "name");
  if (slice.name.empty()) return Malformed("an EndpointSlice without metadata.name");
  const std::string address_type = TextAt(&object, "addressType");
  const json::array* const endpoints = ArrayAt(object, "endpoints");
  if (endpoints == nullptr || (address_type != "IPv4" && address_type != "IPv6")) return slice;
  const int port = PortOf(object, port_name);
  for (const json::value& value : *endpoints) {
    const json::object* const endpoint = value.if_object();
    if (endpoint == nullptr) return Malformed(absl::StrCat("EndpointSlice ", slice.name, ": an endpoint is no object"));
    if (!IsReady(*endpoint)) continue;
    // All of an endpoint's addresses are one and the same backend: the first is enough.
    const json::array* const addresses = ArrayAt(*endpoint, "addresses");
    const json::string* const host =
        addresses == nullptr || addresses->empty() ? nullptr : addresses->front().if_string();
    if (host == nullptr || host->empty()) {
      return Malformed(absl::StrCat("EndpointSlice ", slice.name, ": an endpoint has no address"));
    }
    if (port == 0) {
      slice.lacks_port = true;
      continue;
    }
    const std::string text = base::HostPort{std::string(host->data(), host->size()), port}.ToString();
    const absl::StatusOr<base::HostPort> address = base::ParseHostPort(text);
    if (!address.ok()) {
      return Malformed(absl::StrCat("EndpointSlice ", slice.name, ": ", address.status().message()));
    }
    slice.ready.push_back(
        {address->ToString(), TextAt(ObjectAt(*endpoint, "targetRef"), "uid"), address_type == "IPv6"});
  }
  return slice;
}

// Of a Status object.
absl::Status StatusOf(int64_t http_status, const json::object& object) {
  const std::string message = TextAt(&object, "message").substr(0, kWordsMax);
  const std::string words = absl::StrCat("HTTP ", http_status, message.empty() ? "" : ": ", message);
  switch (http_status) {
    case 400:
      return absl::InvalidArgumentError(words);
    case 401:
    case 403:
      return absl::PermissionDeniedError(words);
    case 404:
      return absl::NotFoundError(words);
    case 410:
      return absl::OutOfRangeError(words);
    default:
      return absl::UnavailableError(words);
  }
}

}  // namespace

absl::StatusOr<EndpointSliceList> ParseEndpointSliceList(absl::string_view text, absl::string_view port_name) {
  ASSIGN_OR_RETURN(const json::object object, ParseObject(text));
  if (TextAt(&object, "kind") != "EndpointSliceList") return Malformed("not an EndpointSliceList");
  EndpointSliceList list;
  const json::object* const metadata = ObjectAt(object, "metadata");
  list.resource_version = TextAt(metadata, "resourceVersion");
  if (list.resource_version.empty()) return Malformed("the list has no metadata.resourceVersion");
  if (!TextAt(metadata, "continue").empty()) return Malformed("the list is a part of one: metadata.continue is set");
  const json::array* const items = ArrayAt(object, "items");
  if (items == nullptr) return list;
  for (const json::value& item : *items) {
    if (item.if_object() == nullptr) return Malformed("an item of the list is no object");
    ASSIGN_OR_RETURN(EndpointSlice slice, SliceOf(item.get_object(), port_name));
    list.slices.push_back(std::move(slice));
  }
  return list;
}

absl::StatusOr<EndpointSliceEvent> ParseEndpointSliceEvent(absl::string_view text, absl::string_view port_name) {
  ASSIGN_OR_RETURN(const json::object event, ParseObject(text));
  const json::object* const object = ObjectAt(event, "object");
  const std::string type = TextAt(&event, "type");
  if (object == nullptr) return Malformed("an event without an object");
  EndpointSliceEvent result;
  if (type == "ERROR") {
    result.kind = EndpointSliceEvent::Kind::kError;
    result.error = StatusOf(IntegerAt(*object, "code"), *object);
    return result;
  }
  result.resource_version = TextAt(ObjectAt(*object, "metadata"), "resourceVersion");
  if (type == "BOOKMARK") {
    result.kind = EndpointSliceEvent::Kind::kBookmark;
    return result;
  }
  if (type != "ADDED" && type != "MODIFIED" && type != "DELETED") {
    return Malformed(absl::StrCat("an event of an unknown type \"", type.substr(0, kWordsMax), "\""));
  }
  ASSIGN_OR_RETURN(result.slice, SliceOf(*object, port_name));
  result.kind = type == "DELETED" ? EndpointSliceEvent::Kind::kDeleted : EndpointSliceEvent::Kind::kPut;
  return result;
}

absl::Status KubernetesError(int http_status, absl::string_view body) {
  const absl::StatusOr<json::object> object = ParseObject(body);
  const bool has_words = object.ok() && TextAt(&*object, "kind") == "Status";
  return StatusOf(http_status, has_words ? *object : json::object());
}

}  // namespace tandem::router
