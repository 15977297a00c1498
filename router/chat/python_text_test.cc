// Values are what Python 3 printed for the same source.
#include "router/chat/python_text.h"

#include <gtest/gtest.h>

namespace tandem::router {
namespace {

std::string Read(absl::string_view source, absl::string_view name = "T") {
  const absl::StatusOr<std::string> text = ReadPythonText(source, name);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

std::string Error(absl::string_view source) { return std::string(ReadPythonText(source, "T").status().message()); }

TEST(PythonTextTest, ReadsEveryWayToWriteALiteral) {
  EXPECT_EQ(Read("T = 'a\"b'"), "a\"b");
  EXPECT_EQ(Read("import re\nT = \"a'b\"  # a comment\nU = 1\n"), "a'b");
  EXPECT_EQ(Read("T: str = \"x\""), "x");
  EXPECT_EQ(Read("T = \"\"\"## Tools\n\"q\" 'r'\n\"\"\"\n"), "## Tools\n\"q\" 'r'\n");
  EXPECT_EQ(Read("T = (\n    \"a\"  # one\n    'b'\n)\n"), "ab");
  EXPECT_EQ(Read("T = 'a' \"b\""), "ab");
  EXPECT_EQ(Read("T = 'a' \\\n  'b'"), "ab");
  EXPECT_EQ(Read("T = r'\\n\\q'"), "\\n\\q");
  EXPECT_EQ(Read("T = ''"), "");
}

TEST(PythonTextTest, ReadsEscapes) {
  EXPECT_EQ(Read(R"(T = "\\ \' \" \n \t \r \x41 \u00e9 \U0001F600 \q")"), "\\ ' \" \n \t \r A é 😀 \\q");
  EXPECT_EQ(Read("T = \"\"\"a\\\nb\"\"\""), "ab");
}

TEST(PythonTextTest, TakesTheNamedAssignmentOnly) {
  EXPECT_EQ(Read("TT = 'no'\n  T = 'no'\nT == 'no'\nT = 'yes'\nT = 'later'"), "yes");
  EXPECT_EQ(ReadPythonText("U = 'x'", "T").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadPythonText("", "T").status().code(), absl::StatusCode::kNotFound);
}

TEST(PythonTextTest, RefusesWhatIsNoConstant) {
  EXPECT_EQ(Error("T = 1"), "T: line 1: its value is no string");
  EXPECT_EQ(Error("\nT = 'a' + x"), "T: line 2: its value is more than string literals");
  EXPECT_EQ(Error("T = f'{x}'"), "T: line 1: a string of a kind that is not read here");
  EXPECT_EQ(Error("T = ('a'"), "T: line 1: its value is more than string literals");
  EXPECT_EQ(Error("T = 'a"), "T: line 1: a string has no end");
  EXPECT_EQ(Error("T = 'a\n'"), "T: line 1: a string has no end on its line");
  EXPECT_EQ(Error("T = '\\ud800'"), "T: line 1: an escape that is no character");
  EXPECT_EQ(Error("T = '\\x4'"), "T: line 1: an escape without its hexadecimal digits");
}

TEST(PythonTextTest, FormatsFieldsByName) {
  EXPECT_EQ(FormatPythonText("<{d}x> {{y}} {e}", {{"d", "｜"}, {"e", ""}}).value(), "<｜x> {y} ");
  EXPECT_EQ(FormatPythonText("{f}", {}).status().message(), "there is no value for {f}");
  EXPECT_EQ(FormatPythonText("{f", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FormatPythonText("a}", {}).status().message(), "a single } in a text with fields");
}

}  // namespace
}  // namespace tandem::router
