// That the page is whole, asks nobody else, and has no way to turn text into markup.
#include "router/dashboard/page_files.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

constexpr const char* kScripts[] = {"page.js",     "chat.js",    "elements.js", "figures.js", "pools.js",
                                    "requests.js", "runbook.js", "server.js",   "trends.js"};

std::string BodyOf(absl::string_view name) {
  const PageFile* file = FindPageFile(absl::StrCat("/dashboard/", name));
  EXPECT_NE(file, nullptr) << name;
  return file == nullptr ? "" : std::string(file->body);
}

TEST(PageFilesTest, ThePageAndWhatItNames) {
  const PageFile* page = FindPageFile(kDashboardPath);
  ASSERT_NE(page, nullptr);
  EXPECT_TRUE(absl::StartsWith(page->body, "<!doctype html>"));
  for (const char* name : {"page.css", "icon.svg", "page.js"}) {
    EXPECT_TRUE(absl::StrContains(page->body, absl::StrCat("\"dashboard/", name, "\""))) << name;
    EXPECT_FALSE(BodyOf(name).empty());
  }
  EXPECT_EQ(FindPageFile("/dashboard/"), nullptr);
  EXPECT_EQ(FindPageFile("/dashboard/../main.cc"), nullptr);
}

TEST(PageFilesTest, ScriptsImportEachOtherAndNothingElse) {
  for (const char* script : kScripts) {
    for (const absl::string_view line : absl::StrSplit(BodyOf(script), '\n')) {
      if (!absl::StartsWith(line, "import ")) continue;
      const std::vector<std::string> parts = absl::StrSplit(line, '"');
      ASSERT_EQ(parts.size(), 3u) << line;
      EXPECT_TRUE(absl::StartsWith(parts[1], "./")) << line;
      BodyOf(parts[1].substr(2));
    }
  }
}

TEST(PageFilesTest, NothingTurnsTextIntoMarkupOrCode) {
  for (const char* script : kScripts) {
    const std::string body = BodyOf(script);
    for (const char* sink : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                             "localStorage", "sessionStorage", "document.cookie", "http://", "https://"}) {
      if (absl::string_view(sink) == "http://" && script == absl::string_view("elements.js")) continue;  // SVG's name
      EXPECT_FALSE(absl::StrContains(body, sink)) << script << " has " << sink;
    }
  }
  const absl::string_view page = FindPageFile(kDashboardPath)->body;
  for (const char* inline_code : {"<script>", "<style", " style=", " onclick=", "http"}) {
    EXPECT_FALSE(absl::StrContains(page, inline_code)) << inline_code;
  }
}

// "tandem_..." and the section behind it, in trends.js.
TEST(PageFilesTest, TrendsLeadToMetricsAndSectionsThatThereAre) {
  const std::string runbook = BodyOf("operations.md");
  std::vector<std::string> quoted = absl::StrSplit(BodyOf("trends.js"), '"');
  int num_metrics = 0;
  for (size_t i = 1; i + 2 < quoted.size(); i += 2) {
    if (!absl::StartsWith(quoted[i], "tandem_")) continue;
    ++num_metrics;
    EXPECT_TRUE(absl::StrContains(runbook, absl::StrCat("`", quoted[i], "` | "))) << quoted[i];
    EXPECT_TRUE(absl::StrContains(runbook, absl::StrCat("](#", quoted[i + 2], ")"))) << "an alert leads there, too";
  }
  EXPECT_EQ(num_metrics, 4);
}

TEST(PageFilesTest, EveryAnswerHasThePolicy) {
  const HttpResponse response = PageFileResponse(*FindPageFile("/dashboard/page.js"));
  EXPECT_EQ(response.content_type, "text/javascript; charset=utf-8");
  std::string policy;
  for (const auto& [name, value] : response.headers) policy = name == "Content-Security-Policy" ? value : policy;
  EXPECT_TRUE(absl::StrContains(policy, "default-src 'none'"));
  EXPECT_TRUE(absl::StrContains(policy, "require-trusted-types-for 'script'"));
  EXPECT_FALSE(absl::StrContains(policy, "unsafe") || absl::StrContains(policy, "data:"));
}

}  // namespace
}  // namespace tandem::router
