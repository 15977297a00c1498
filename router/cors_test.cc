// Which pages may read answers, by the headers that a browser looks at.
#include "router/cors.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

HttpRequest From(const std::string& origin, const std::string& method = "GET") {
  HttpRequest request;
  request.method = method;
  if (!origin.empty()) request.headers.emplace_back("origin", origin);
  return request;
}
std::string AllowedOrigin(const CorsPolicy& policy, const std::string& origin) {
  for (const auto& [name, value] : policy.HeadersFor(From(origin))) {
    if (name == "Access-Control-Allow-Origin") return value;
  }
  return "";
}

TEST(CorsTest, OnlyListedOriginsMayRead) {
  const CorsPolicy policy({"https://a.example", "http://localhost:3000"});
  EXPECT_EQ(AllowedOrigin(policy, "https://a.example"), "https://a.example");
  EXPECT_EQ(AllowedOrigin(policy, "http://localhost:3000"), "http://localhost:3000");
  for (const char* origin : {"", "null", "https://a.example.evil", "https://A.example", "http://a.example", "*"}) {
    EXPECT_EQ(AllowedOrigin(policy, origin), "") << origin;
  }
  EXPECT_EQ(policy.HeadersFor(From("")).at(0).second, "Origin") << "caches keep the answers to different pages apart";
  EXPECT_TRUE(CorsPolicy().HeadersFor(From("https://a.example")).empty());
  EXPECT_EQ(AllowedOrigin(CorsPolicy({"*"}), "https://any.example"), "*");
}

TEST(CorsTest, APreflightIsAnsweredForAllowedPagesAlone) {
  const CorsPolicy policy({"https://a.example"});
  HttpRequest request = From("https://a.example", "OPTIONS");
  EXPECT_FALSE(policy.IsPreflight(request)) << "it asks for nothing";
  request.headers.emplace_back("access-control-request-method", "POST");
  EXPECT_TRUE(policy.IsPreflight(request));
  EXPECT_FALSE(CorsPolicy({"https://b.example"}).IsPreflight(request));
  EXPECT_FALSE(CorsPolicy().IsPreflight(request));
  const auto header = [](const HttpResponse& response, const std::string& name) {
    return std::map<std::string, std::string>(response.headers.begin(), response.headers.end())[name];
  };
  EXPECT_EQ(header(CorsPolicy::PreflightAnswer(request, "POST"), "Access-Control-Allow-Methods"), "POST");
  request.headers.emplace_back("access-control-request-headers", "authorization, x-stainless-os");
  EXPECT_EQ(header(CorsPolicy::PreflightAnswer(request, "POST"), "Access-Control-Allow-Headers"),
            "authorization, x-stainless-os");
  request.headers.back().second = "a\"b";
  EXPECT_EQ(header(CorsPolicy::PreflightAnswer(request, "POST"), "Access-Control-Allow-Headers"),
            "authorization, content-type, x-request-id");
}

TEST(CorsTest, OriginsAreChecked) {
  EXPECT_TRUE(CorsPolicy::Validate({"*", "https://a.example:8443", "http://[::1]:3000"}).ok());
  for (const char* origin : {"", "a.example", "https://", "https://a/b", "ftp://a", "https://a b"}) {
    EXPECT_FALSE(CorsPolicy::Validate({origin}).ok()) << origin;
  }
}

}  // namespace
}  // namespace tandem::router
