// The examples of RFC 6901, section 5, and pointers that point nowhere.
#include "router/constraints/json_pointer.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "router/chat/ordered_json.h"

namespace tandem::router {
namespace {

constexpr char kDocument[] =
    R"({"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8})";

TEST(JsonPointerTest, TheExamplesOfTheStandard) {
  const OrderedJson root = ParseOrderedJson(kDocument).value();
  EXPECT_EQ(FollowPointer(root, ""), &root);
  const std::pair<const char*, const char*> examples[] = {
      {"/foo/0", "\"bar\""}, {"/", "0"},     {"/a~1b", "1"}, {"/c%d", "2"}, {"/e^f", "3"},
      {"/g|h", "4"},         {"/i\\j", "5"}, {"/k\"l", "6"}, {"/ ", "7"},   {"/m~0n", "8"}};
  for (const auto& [pointer, expected] : examples) {
    const OrderedJson* value = FollowPointer(root, pointer);
    ASSERT_NE(value, nullptr) << pointer;
    std::string text;
    AppendPythonJson(*value, &text);
    EXPECT_EQ(text, expected) << pointer;
  }
}

TEST(JsonPointerTest, WherePointersPointNowhere) {
  const OrderedJson root = ParseOrderedJson(kDocument).value();
  for (const char* pointer :
       {"foo", "/bar", "/foo/2", "/foo/-", "/foo/01", "/foo/+1", "/foo/ 1", "/foo/", "/foo/x", "/foo/0/x", "/a/b"}) {
    EXPECT_EQ(FollowPointer(root, pointer), nullptr) << pointer;
  }
}

TEST(JsonPointerTest, WhatIsPointedIntoIsFound) {
  const OrderedJson root = ParseOrderedJson(kDocument).value();
  for (const char* name : {"foo", "", "a/b", "m~n", " "}) {
    EXPECT_NE(FollowPointer(root, PointerInto("", name)), nullptr) << name;
  }
  EXPECT_EQ(PointerInto(PointerInto("", "a/b"), "m~n"), "/a~1b/m~0n");
}

}  // namespace
}  // namespace tandem::router
