// The examples of https://www.w3.org/TR/trace-context-1/ and what it forbids.
#include "proto/trace_context.h"

#include "gtest/gtest.h"

namespace tandem::proto {
namespace {

constexpr char kSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kNotSampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

TEST(TraceContextTest, TheStandardsOwnExamples) {
  EXPECT_TRUE(IsTraceParent(kSampled) && IsTraceParent(kNotSampled));
  EXPECT_EQ(TraceId(kSampled), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_TRUE(IsSampled(kSampled));
  EXPECT_FALSE(IsSampled(kNotSampled));
  EXPECT_EQ(TraceParentAsVersion0(kSampled), kSampled);
}

TEST(TraceContextTest, WhatTheStandardForbids) {
  for (const char* text : {
           "",
           "00",
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
           "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
           " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
       }) {
    EXPECT_FALSE(IsTraceParent(text)) << text;
    EXPECT_FALSE(IsSampled(text)) << text;
    EXPECT_EQ(TraceId(text), "") << text;
  }
}

TEST(TraceContextTest, LaterVersionsAreReadAsFarAsTheyAreKnown) {
  for (const char* text : {"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-will-be-like"}) {
    EXPECT_TRUE(IsTraceParent(text)) << text;
    EXPECT_TRUE(IsSampled(text));
    EXPECT_EQ(TraceParentAsVersion0(text), kSampled);
  }
}

TEST(TraceContextTest, EveryBitOfTheFlagsButTheLastIsIgnored) {
  for (const char* flags : {"01", "03", "ff", "0b"}) {
    EXPECT_TRUE(IsSampled(std::string(kSampled).replace(53, 2, flags))) << flags;
  }
  for (const char* flags : {"00", "02", "fe", "0a"}) {
    EXPECT_FALSE(IsSampled(std::string(kSampled).replace(53, 2, flags))) << flags;
  }
}

TEST(TraceContextTest, ANewTraceIsValidAndNotSampled) {
  const std::string made = NewTraceParent(0, 1, 0x00f067aa0ba902b7);
  EXPECT_EQ(made, "00-00000000000000000000000000000001-00f067aa0ba902b7-00");
  EXPECT_TRUE(IsTraceParent(made));
  EXPECT_FALSE(IsSampled(made));
}

}  // namespace
}  // namespace tandem::proto
