// Lists and events as an API server writes them (discovery.k8s.io/v1), and what is none of these.
#include "router/discovery/endpoint_slice.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

std::string Slice(const std::string& endpoints, const std::string& ports = R"([{"name":"rpc","port":8101}])",
                  const std::string& address_type = "IPv4") {
  return absl::StrCat(R"({"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s1",)",
                      R"("resourceVersion":"41","labels":{"a":"b"}},"addressType":")", address_type,
                      R"(","endpoints":)", endpoints, R"(,"ports":)", ports, "}");
}
std::string List(const std::string& items, const std::string& metadata = R"({"resourceVersion":"77"})") {
  return absl::StrCat(R"({"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":)", metadata,
                      R"(,"items":)", items, "}");
}
std::string Event(const std::string& type, const std::string& object) {
  return absl::StrCat(R"({"type":")", type, R"(","object":)", object, "}");
}
std::vector<std::string> ReadyOf(const std::string& slice) {
  const auto event = ParseEndpointSliceEvent(Event("ADDED", slice), "rpc");
  EXPECT_TRUE(event.ok()) << event.status();
  std::vector<std::string> addresses;
  if (!event.ok()) return addresses;
  for (const auto& endpoint : event->slice.ready) addresses.push_back(endpoint.address);
  return addresses;
}

TEST(EndpointSliceTest, AListHasAVersionAndItsSlices) {
  const std::string endpoints =
      R"([{"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false},)"
      R"("targetRef":{"kind":"Pod","name":"p-0","uid":"u-0"},"nodeName":"n"},{"addresses":["10.0.0.2","10.9.9.9"]}])";
  const auto list = ParseEndpointSliceList(List(absl::StrCat("[", Slice(endpoints), "]")), "rpc");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->resource_version, "77");
  ASSERT_EQ(list->slices.size(), 1u);
  EXPECT_EQ(list->slices[0].name, "s1");
  ASSERT_EQ(list->slices[0].ready.size(), 2u) << "one backend for each endpoint, however many addresses it has";
  EXPECT_EQ(list->slices[0].ready[0].address, "10.0.0.1:8101");
  EXPECT_EQ(list->slices[0].ready[0].pod, "u-0");
  EXPECT_EQ(list->slices[0].ready[1].address, "10.0.0.2:8101");
  EXPECT_EQ(list->slices[0].ready[1].pod, "");
}

TEST(EndpointSliceTest, ReadyIsWhatTheDocumentationCallsReady) {
  const auto endpoint = [](const std::string& conditions) {
    return ReadyOf(Slice(absl::StrCat(R"([{"addresses":["10.0.0.1"],"conditions":)", conditions, "}]"))).size();
  };
  EXPECT_EQ(endpoint(R"({"ready":true})"), 1u);
  EXPECT_EQ(endpoint(R"({})"), 1u) << "unknown counts as ready";
  EXPECT_EQ(endpoint(R"({"ready":null})"), 1u);
  EXPECT_EQ(endpoint(R"({"ready":false})"), 0u);
  EXPECT_EQ(endpoint(R"({"ready":false,"serving":true,"terminating":true})"), 0u) << "it drains";
  EXPECT_EQ(endpoint(R"({"ready":true,"terminating":true})"), 0u) << "a Service that publishes those not ready";
}

TEST(EndpointSliceTest, ThePortIsFoundByItsName) {
  const std::string endpoints = R"([{"addresses":["10.0.0.1"]}])";
  EXPECT_EQ(ReadyOf(Slice(endpoints, R"([{"name":"lane","port":1},{"name":"rpc","protocol":"TCP","port":9}])")),
            std::vector<std::string>{"10.0.0.1:9"});
  for (const char* ports :
       {"null", "[]", R"([{"name":"lane","port":1}])", R"([{"name":"rpc","protocol":"UDP","port":1}])",
        R"([{"name":"rpc","port":null}])", R"([{"name":"rpc","port":65536}])"}) {
    const auto event = ParseEndpointSliceEvent(Event("ADDED", Slice(endpoints, ports)), "rpc");
    ASSERT_TRUE(event.ok()) << event.status();
    EXPECT_TRUE(event->slice.lacks_port) << ports;
    EXPECT_TRUE(event->slice.ready.empty());
  }
  const auto empty = ParseEndpointSliceEvent(Event("ADDED", Slice("null", "null")), "rpc");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_FALSE(empty->slice.lacks_port) << "a Service without pods has such a slice";
}

TEST(EndpointSliceTest, AddressesOfOtherKindsAreNotUsed) {
  EXPECT_EQ(ReadyOf(Slice(R"([{"addresses":["fd00::1"]}])", R"([{"name":"rpc","port":8101}])", "IPv6")),
            std::vector<std::string>{"[fd00::1]:8101"});
  EXPECT_TRUE(ReadyOf(Slice(R"([{"addresses":["a.example"]}])", R"([{"name":"rpc","port":1}])", "FQDN")).empty());
}

TEST(EndpointSliceTest, EventsSayWhatHasHappened) {
  using Kind = EndpointSliceEvent::Kind;
  const auto put = ParseEndpointSliceEvent(Event("MODIFIED", Slice("[]")), "rpc");
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(put->kind, Kind::kPut);
  EXPECT_EQ(put->resource_version, "41");
  const auto deleted = ParseEndpointSliceEvent(Event("DELETED", Slice("[]")), "rpc");
  EXPECT_EQ(deleted->kind, Kind::kDeleted);
  EXPECT_EQ(deleted->slice.name, "s1");
  const auto bookmark = ParseEndpointSliceEvent(
      Event("BOOKMARK", R"({"kind":"EndpointSlice","metadata":{"resourceVersion":"99"},"endpoints":null})"), "rpc");
  ASSERT_TRUE(bookmark.ok()) << bookmark.status();
  EXPECT_EQ(bookmark->kind, Kind::kBookmark);
  EXPECT_EQ(bookmark->resource_version, "99");
  const auto expired = ParseEndpointSliceEvent(
      Event("ERROR", R"({"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"})"), "rpc");
  ASSERT_TRUE(expired.ok()) << expired.status();
  EXPECT_EQ(expired->kind, Kind::kError);
  EXPECT_EQ(expired->error.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(expired->error.message().find("too old resource version"), absl::string_view::npos);
}

TEST(EndpointSliceTest, WhatIsNoListOrEventIsRefused) {
  for (const std::string& text :
       {std::string(""), std::string("{"), std::string("[]"), std::string("<html>"), std::string("\xff\xfe"),
        List("[]", "{}"), List("[1]"), List("[{}]"), List("[]", R"({"resourceVersion":"7","continue":"more"})"),
        List(absl::StrCat("[", Slice("[1]"), "]")), List(absl::StrCat("[", Slice("[{}]"), "]")),
        List(absl::StrCat("[", Slice(R"([{"addresses":["10.0.0.1 "]}])"), "]")),
        std::string(R"({"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]})"), std::string(1000, '[')}) {
    EXPECT_FALSE(ParseEndpointSliceList(text, "rpc").ok()) << text;
    EXPECT_FALSE(ParseEndpointSliceEvent(text, "rpc").ok()) << text;
  }
  EXPECT_FALSE(ParseEndpointSliceEvent(Event("RENAMED", Slice("[]")), "rpc").ok());
  EXPECT_FALSE(ParseEndpointSliceEvent(R"({"type":"ADDED"})", "rpc").ok());
  // Anything that is cut short.
  const std::string whole = Event("ADDED", Slice(R"([{"addresses":["10.0.0.1"]}])"));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseEndpointSliceEvent(whole.substr(0, size), "rpc").ok()) << size;
  }
}

TEST(EndpointSliceTest, ErrorsBringTheServersWords) {
  const absl::Status forbidden = KubernetesError(
      403, R"({"kind":"Status","status":"Failure","message":"endpointslices is forbidden: User \"u\" cannot list"})");
  EXPECT_EQ(forbidden, absl::PermissionDeniedError("HTTP 403: endpointslices is forbidden: User \"u\" cannot list"));
  EXPECT_EQ(KubernetesError(500, "<html>"), absl::UnavailableError("HTTP 500"));
  EXPECT_EQ(KubernetesError(410, "").code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(KubernetesError(404, "").code(), absl::StatusCode::kNotFound);
  EXPECT_LT(KubernetesError(500, absl::StrCat(R"({"kind":"Status","message":")", std::string(9999, 'x'), "\"}"))
                .message()
                .size(),
            400u);
}

}  // namespace
}  // namespace tandem::router
