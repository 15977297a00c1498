// Formats of strings, by examples of the standards that define them.
#include "router/constraints/string_format.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/constraints/dfa_reading.h"
#include "router/constraints/pattern.h"

namespace tandem::router {
namespace {

struct Example {
  const char* format;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

TEST(StringFormatTest, ReadsWhatTheStandardsAllowAndNothingElse) {
  const Example examples[] = {
      {"date", {"1985-04-12", "2000-02-28"}, {"1985-4-12", "1985-13-01", "1985-04-32", "12.04.1985", ""}},
      {"time", {"23:20:50.52Z", "08:30:06-08:00"}, {"24:00:00Z", "08:60:06Z", "08:30:06", "8:30:06Z"}},
      {"date-time", {"1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00"}, {"1985-04-12 23:20:50Z", "1985-04-12"}},
      {"uuid",
       {"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"},
       {"f81d4fae7dec11d0a76500a0c91e6bf6", "g81d4fae-7dec-11d0-a765-00a0c91e6bf6", "f81d4fae-7dec-11d0-a765"}},
      {"ipv4", {"192.168.0.1", "0.0.0.0", "255.255.255.255"}, {"256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4"}},
      {"email", {"joe.bloggs@example.com", "a+b@x.org"}, {"joe", "@example.com", "joe@", "a b@x.org", "joe@local"}},
  };
  for (const Example& example : examples) {
    CompileBudget budget;
    const absl::string_view pattern = PatternOfFormat(example.format);
    const absl::StatusOr<Dfa> dfa = CompilePattern(pattern, PatternReach::kAnywhere, 16384, &budget);
    ASSERT_TRUE(dfa.ok()) << example.format << ": " << dfa.status();
    for (const std::string& text : example.good) EXPECT_TRUE(Reads(*dfa, text)) << example.format << " " << text;
    for (const std::string& text : example.bad) EXPECT_FALSE(Reads(*dfa, text)) << example.format << " " << text;
  }
}

TEST(StringFormatTest, OtherFormatsAreAnnotations) {
  for (const char* format : {"hostname", "uri", "DATE", ""}) EXPECT_EQ(PatternOfFormat(format), "") << format;
}

}  // namespace
}  // namespace tandem::router
