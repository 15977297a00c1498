// What the format's own reference reads out of an answer. Skips, saying so, where the reference files are absent.
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "router/chat/ordered_json.h"
#include "router/parsing/parser_cases.h"
#include "router/tokenizer/reference_files.h"

namespace tandem::router {
namespace {

std::string TextOf(const OrderedJson* value) { return value == nullptr ? "" : value->text; }

TEST(DsmlVectorsTest, AnswersAreReadAsTheReferenceReadsThem) {
  const std::optional<std::string> text = ReadReferenceFile("data/chat/dsv32_parse_cases.json");
  if (!text.has_value()) GTEST_SKIP() << "data/chat is not at hand (TANDEM_SHARED_DIR)";
  const absl::StatusOr<OrderedJson> cases = ParseOrderedJson(*text);
  ASSERT_TRUE(cases.ok()) << cases.status();
  int num_read = 0;
  for (const OrderedJson& item : cases->items) {
    const OrderedJson& result = *item.Find("result");
    if (result.Find("error") != nullptr) continue;  // the reference refuses what is not perfect
    ParsedAnswer expected = {.reasoning = TextOf(result.Find("reasoning_content")),
                             .content = TextOf(result.Find("content"))};
    for (const OrderedJson& call : result.Find("tool_calls")->items) {
      const OrderedJson& function = *call.Find("function");
      expected.calls.push_back({TextOf(function.Find("name")), TextOf(function.Find("arguments"))});
    }
    ParserSetup setup = {.rules = {.markup = CallMarkup::kDsml}};
    if (TextOf(item.Find("mode")) == "thinking") setup.start = ReasoningSplitter::State::kReasoning;
    const std::string whole = TextOf(item.Find("text"));
    const absl::string_view answer = absl::StripSuffix(whole, "<｜end▁of▁sentence｜>");  // is a token, never text
    for (const std::vector<std::string>& pieces : AllCuts(answer)) {
      ASSERT_EQ(ParsePieces(setup, pieces), expected) << answer;
    }
    ++num_read;
  }
  EXPECT_GE(num_read, 4);
}

}  // namespace
}  // namespace tandem::router
