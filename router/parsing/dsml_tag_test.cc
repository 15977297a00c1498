// What is a tag and what only looks like one; and that an answer, once given, does not change with more text.
#include "router/parsing/dsml_tag.h"

#include <gtest/gtest.h>

namespace tandem::router {
namespace {

using Kind = DsmlTag::Kind;

DsmlTag Tag(absl::string_view text) {
  DsmlTag tag;
  EXPECT_EQ(MatchDsmlTag(text, &tag), TagMatch::kYes) << text;
  return tag;
}

TagMatch Match(absl::string_view text) {
  DsmlTag tag;
  return MatchDsmlTag(text, &tag);
}

TEST(DsmlTagTest, ReadsTheTagsOfTheFormat) {
  const DsmlTag calls = Tag("<｜DSML｜function_calls>\n");
  EXPECT_EQ(calls.kind, Kind::kFunctionCalls);
  EXPECT_FALSE(calls.is_end || calls.is_bare || calls.is_malformed);
  EXPECT_EQ(calls.length, std::string("<｜DSML｜function_calls>").size());
  EXPECT_TRUE(Tag("</｜DSML｜function_calls>").is_end);

  const DsmlTag invoke = Tag("<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter");
  EXPECT_EQ(invoke.kind, Kind::kInvoke);
  EXPECT_EQ(invoke.name, "get_weather");
  EXPECT_FALSE(invoke.is_string.has_value());

  const DsmlTag parameter = Tag("<｜DSML｜parameter name=\"k\" string=\"false\">12");
  EXPECT_EQ(parameter.kind, Kind::kParameter);
  EXPECT_EQ(parameter.name, "k");
  EXPECT_EQ(parameter.is_string, false);
  EXPECT_EQ(Tag("<｜DSML｜parameter name=\"k\" string=\"true\">").is_string, true);
}

TEST(DsmlTagTest, IsLenientInFormAndSaysSo) {
  EXPECT_TRUE(Tag("<invoke name=\"f\">").is_bare);
  EXPECT_TRUE(Tag("</parameter>").is_bare);
  EXPECT_TRUE(Tag("<｜DSML｜invoke name=\"f\"/>").is_empty);
  EXPECT_TRUE(Tag("<｜DSML｜invoke name=\"f\" />").is_empty);
  EXPECT_EQ(Tag("<｜DSML｜parameter string=\"true\" name=\"k\">").name, "k");
  EXPECT_EQ(Tag("<｜DSML｜parameter string=\"true\" name=\"k\">").is_string, true);
  EXPECT_EQ(Tag("<｜DSML｜parameter\n name = \"k\" >").name, "k");
  EXPECT_FALSE(Tag("<｜DSML｜parameter name=\"k\">").is_string.has_value());
  EXPECT_EQ(Tag("<｜DSML｜parameter name=\"a\" b\" string=\"true\">").name, "a\" b");
}

TEST(DsmlTagTest, AMarkedTagThatLacksItsPartsIsMalformed) {
  for (const char* text : {"<｜DSML｜invoke>", "<｜DSML｜invoke nom=\"f\">", "<｜DSML｜invoke name=\"\">",
                           "<｜DSML｜parameter string=\"true\">", "</｜DSML｜invoke x>"}) {
    const DsmlTag tag = Tag(text);
    EXPECT_TRUE(tag.is_malformed) << text;
    EXPECT_EQ(tag.length, std::string(text).size()) << text;
    EXPECT_EQ(tag.name, "");
  }
  const DsmlTag unclosed = Tag("</｜DSML｜invoke\n</｜DSML｜function_calls>");
  EXPECT_TRUE(unclosed.is_end && unclosed.is_malformed);
  EXPECT_EQ(unclosed.length, std::string("</｜DSML｜invoke").size());
}

TEST(DsmlTagTest, WhatOnlyLooksAlikeIsNone) {
  for (const char* text : {"<|DSML|function_calls>", "<‖DSML‖function_calls>", "<｜｜DSML｜｜function_calls>",
                           "< ｜DSML｜invoke", "<b>", "<<", "<｜DSML｜functions>", "<parameters name=\"k\">",
                           "<invoke>", "<invoke nom=\"f\">", "<｜DSML ｜invoke>", "x"}) {
    EXPECT_EQ(Match(text), TagMatch::kNo) << text;
  }
  EXPECT_EQ(Match("<invoke name=\"" + std::string(kDsmlTagBytesMax, 'x')), TagMatch::kNo);
  EXPECT_EQ(Match("<invoke name=\"" + std::string(kDsmlTagBytesMax, 'x') + "\">"), TagMatch::kNo);
}

// Every front of a text is undecided until the decision falls, and from there on the decision is the same.
TEST(DsmlTagTest, TheDecisionDoesNotChangeWithMoreText) {
  for (const std::string text :
       {"<｜DSML｜function_calls>\n<｜DSML｜invoke", "</｜DSML｜invoke>x",
        "<｜DSML｜parameter name=\"k\" string=\"false\">1", "<parameter name=\"a\" b\" string=\"true\">\"",
        "<｜DSML｜invoke nom=\"f\">x", "<|DSML|invoke", "<invoke name=f>", "<｜DSML｜invoke name=\"f\" / >x",
        "<｜DSML｜invoke name=\"a\n\">x", "<invoke name=\"a>b\">"}) {
    DsmlTag whole;
    const TagMatch expected = MatchDsmlTag(text, &whole);
    ASSERT_NE(expected, TagMatch::kPartial) << text;
    bool is_decided = false;
    for (size_t length = 1; length <= text.size(); ++length) {
      DsmlTag tag;
      const TagMatch match = MatchDsmlTag(text.substr(0, length), &tag);
      if (match == TagMatch::kPartial) {
        ASSERT_FALSE(is_decided) << text.substr(0, length);
        continue;
      }
      is_decided = true;
      ASSERT_EQ(match, expected) << text.substr(0, length);
      if (match != TagMatch::kYes) continue;
      ASSERT_EQ(tag.length, whole.length) << text.substr(0, length);
      ASSERT_EQ(tag.name, whole.name);
      ASSERT_EQ(tag.is_malformed, whole.is_malformed);
    }
  }
}

}  // namespace
}  // namespace tandem::router
