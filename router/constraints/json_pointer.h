// JSON pointers (RFC 6901): where something stands in a JSON value. Tested by json_pointer_test.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "router/chat/ordered_json.h"

namespace tandem::router {

// The pointer to a member or an item of what `pointer` points to.
std::string PointerInto(absl::string_view pointer, absl::string_view name);

// nullptr where nothing stands there or it is no pointer.
const OrderedJson* FollowPointer(const OrderedJson& root, absl::string_view pointer);

}  // namespace tandem::router
