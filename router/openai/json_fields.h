// Strict typed access to the members of a JSON object: a wrong type is a 400 that names the field and the type found.
//
// null counts as absent everywhere: clients serialise their unset options so. Only .cc files that parse include this.
// Tested through chat_request_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "boost/json.hpp"

namespace tandem::router {

// The value of object[name]; nullptr where it is absent or null.
const boost::json::value* FindMember(const boost::json::object& object, const char* name);
// "a string", "an integer", ...: for messages.
const char* KindName(const boost::json::value& value);

// param is the path for messages, e.g. "stream_options.include_usage". Absent gives nullopt.
absl::StatusOr<std::optional<std::string>> OptionalString(const boost::json::object& object, const char* name,
                                                          const std::string& param);
absl::StatusOr<std::optional<bool>> OptionalBool(const boost::json::object& object, const char* name,
                                                 const std::string& param);
// A JSON number without fraction or exponent, within [min, max].
absl::StatusOr<std::optional<int64_t>> OptionalInteger(const boost::json::object& object, const char* name,
                                                       const std::string& param, int64_t min, int64_t max);
absl::StatusOr<std::optional<double>> OptionalNumber(const boost::json::object& object, const char* name,
                                                     const std::string& param, double min, double max);
// nullptr where absent.
absl::StatusOr<const boost::json::object*> OptionalObject(const boost::json::object& object, const char* name,
                                                          const std::string& param);

}  // namespace tandem::router
