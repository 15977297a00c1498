// For tests: bodies that a parser refuses, each with the field that the error is laid at and the reason.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/api_error.h"

namespace tandem::router {

struct Refusal {
  std::string body;
  std::string param;    // "" = no single field
  std::string message;  // a part of it
};

// parse: of a body, to a StatusOr.
template <typename Parse>
void ExpectRefused(absl::Span<const Refusal> refusals, Parse parse) {
  for (const Refusal& refusal : refusals) {
    const auto request = parse(refusal.body);
    ASSERT_FALSE(request.ok()) << refusal.body;
    EXPECT_EQ(HttpStatusOf(request.status()), 400) << refusal.body;
    const boost::json::value error = boost::json::parse(ErrorBody(request.status())).at("error");
    const std::string message(error.at("message").as_string());
    EXPECT_NE(message.find(refusal.message), std::string::npos) << refusal.body << "\n  " << message;
    if (refusal.param.empty()) {
      EXPECT_TRUE(error.at("param").is_null()) << refusal.body;
    } else {
      EXPECT_EQ(std::string(error.at("param").as_string()), refusal.param) << refusal.body;
    }
  }
}

}  // namespace tandem::router
