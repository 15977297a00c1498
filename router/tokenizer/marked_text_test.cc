#include "router/tokenizer/marked_text.h"

#include <gtest/gtest.h>

namespace tandem::router {
namespace {

using Runs = std::vector<MarkedText::Run>;

TEST(MarkedTextTest, RunsCoverTheTextAndAlternate) {
  MarkedText text;
  text.AppendMarkup("<a>");
  text.AppendMarkup("<b>");
  text.AppendContent("");
  text.AppendMarkup("<c>");
  text.AppendContent("hi");
  text.AppendMarkup("");
  text.AppendContent(" you");
  text.AppendMarkup("<d>");
  EXPECT_EQ(text.text(), "<a><b><c>hi you<d>");
  EXPECT_EQ(Runs(text.runs().begin(), text.runs().end()), (Runs{{0, 9, true}, {9, 15, false}, {15, 18, true}}));
}

TEST(MarkedTextTest, NoTextHasNoRuns) {
  MarkedText text;
  text.AppendContent("");
  EXPECT_TRUE(text.runs().empty());
}

}  // namespace
}  // namespace tandem::router
