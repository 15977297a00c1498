#include "base/log.h"

#include <gtest/gtest.h>

namespace tandem::base {
namespace {

TEST(LogTest, WritesFieldsAsKeyEqualsValue) {
  EXPECT_EQ(FormatLogLine(LogSeverity::kInfo, "a/b.cc", 7, "request ended", {{"req", "7f"}, {"tokens", 128}}),
            "INFO a/b.cc:7 request ended req=7f tokens=128");
}

TEST(LogTest, AValueCanNeitherForgeAFieldNorALine) {
  EXPECT_EQ(FormatLogLine(LogSeverity::kError, "f", 1, "e", {{"x", "a b=c\n\"q\"\\"}}),
            "ERROR f:1 e x=\"a b=c\\n\\\"q\\\"\\\\\"");
  EXPECT_EQ(FormatLogLine(LogSeverity::kWarning, "f", 1, "e", {{"x", ""}, {"y", std::string("\x01", 1)}}),
            "WARNING f:1 e x=\"\" y=\"\\x01\"");
}

TEST(LogTest, StatusesAndDurationsAreFields) {
  EXPECT_EQ(FormatLogLine(LogSeverity::kInfo, "f", 1, "e",
                          {{"took", absl::Milliseconds(1500)}, {"status", absl::NotFoundError("no page")}}),
            "INFO f:1 e took=1.5s status=\"NOT_FOUND: no page\"");
}

TEST(LogTest, ContextStandsOnEveryLine) {
  SetLogContext("role=decode instance=d0");
  EXPECT_EQ(FormatLogLine(LogSeverity::kInfo, "f", 1, "e", {}), "INFO f:1 e role=decode instance=d0");
  SetLogContext("");
}

}  // namespace
}  // namespace tandem::base
