// The table from status to HTTP, and the shape of the error object.
#include "router/openai/api_error.h"

#include "boost/json.hpp"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

boost::json::object ErrorOf(const absl::Status& status) {
  return boost::json::parse(ErrorBody(status)).as_object().at("error").as_object();
}

TEST(ApiErrorTest, EveryCodeThatTheArchitectureNamesHasItsHttpStatus) {
  EXPECT_EQ(HttpStatusOf(absl::OkStatus()), 200);
  EXPECT_EQ(HttpStatusOf(absl::InvalidArgumentError("")), 400);
  EXPECT_EQ(HttpStatusOf(absl::NotFoundError("")), 404);
  EXPECT_EQ(HttpStatusOf(absl::OutOfRangeError("")), 413);
  EXPECT_EQ(HttpStatusOf(absl::ResourceExhaustedError("")), 429);
  EXPECT_EQ(HttpStatusOf(absl::UnavailableError("")), 503);
  EXPECT_EQ(HttpStatusOf(absl::AbortedError("")), 503);
  EXPECT_EQ(HttpStatusOf(absl::FailedPreconditionError("")), 503);
  EXPECT_EQ(HttpStatusOf(absl::DeadlineExceededError("")), 504);
  EXPECT_EQ(HttpStatusOf(absl::DataLossError("")), 500);
  EXPECT_EQ(HttpStatusOf(absl::InternalError("")), 500);
  EXPECT_EQ(HttpStatusOf(absl::UnknownError("")), 500) << "a code outside the table is our bug";
}

TEST(ApiErrorTest, FieldErrorNamesTheFieldInMessageAndParam) {
  const absl::Status status = FieldError("max_tokens", "must be at least 1, got 0");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const boost::json::object error = ErrorOf(status);
  EXPECT_EQ(error.at("message"), "max_tokens: must be at least 1, got 0");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_EQ(error.at("param"), "max_tokens");
  EXPECT_TRUE(error.at("code").is_null());
}

TEST(ApiErrorTest, CodeOfTheStatusGoesBeforeTheOneOfItsClass) {
  const absl::Status status = WithDetails(absl::NotFoundError("no model \"x\""), "model", "model_not_found");
  EXPECT_EQ(ErrorOf(status).at("code"), "model_not_found");
  EXPECT_EQ(ErrorOf(absl::UnavailableError("no usable pair")).at("code"), "service_unavailable");
}

TEST(ApiErrorTest, LongTextsOfClientsAreCutBetweenCharacters) {
  EXPECT_EQ(Quoted("short"), "\"short\"");
  EXPECT_EQ(Quoted(std::string(64, 'x')), "\"" + std::string(64, 'x') + "\"");
  EXPECT_EQ(Quoted(std::string(65, 'x')), "\"" + std::string(64, 'x') + "\"...");
  EXPECT_EQ(Quoted(std::string(63, 'x') + "\U0001F642"), "\"" + std::string(63, 'x') + "\"...");
}

TEST(ApiErrorTest, MessagesWithQuotesAndLineFeedsStayOneLineOfJson) {
  const std::string body = ErrorBody(absl::InternalError("a \"quoted\"\nmessage"));
  EXPECT_EQ(body.find('\n'), std::string::npos);
  EXPECT_EQ(boost::json::parse(body).at("error").at("message"), "a \"quoted\"\nmessage");
}

}  // namespace
}  // namespace tandem::router
