// Proves that events come out of any split of their bytes as they come out of the whole. The cases are those of the
// event stream grammar of WHATWG HTML, 9.2.5 and 9.2.6.
#include "tools/bench_serving/event_stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::bench_serving {
namespace {

std::vector<std::string> Read(const std::vector<absl::string_view>& pieces) {
  EventStream stream;
  std::vector<std::string> events;
  for (const absl::string_view piece : pieces) {
    stream.Append(piece, [&](absl::string_view event) { events.emplace_back(event); });
  }
  return events;
}

TEST(EventStreamTest, ReadsWhatTheGrammarAllows) {
  using Events = std::vector<std::string>;
  const struct {
    const char* bytes;
    Events events;
  } cases[] = {
      {"data: a\n\ndata: b\n\n", {"a", "b"}},
      {"data:a\n\n", {"a"}},
      {"data:  a\n\n", {" a"}},
      {"data: a\ndata: b\n\n", {"a\nb"}},
      {"data\n\n", {""}},
      {"data: a\r\n\r\ndata: b\r\n\r\n", {"a", "b"}},
      {"data: a\r\rdata: b\r\r", {"a", "b"}},
      {": ping\n\ndata: a\n\n", {"a"}},
      {"event: x\nid: 1\ndata: a\nretry: 5\n\n", {"a"}},
      {"database: a\n\n", {}},
      {"\n\n\ndata: a\n\n\n", {"a"}},
      {"data: a\n", {}},
      {"", {}},
  };
  for (const auto& [bytes, events] : cases) EXPECT_EQ(Read({bytes}), events) << bytes;
}

TEST(EventStreamTest, EverySplitGivesWhatTheWholeGives) {
  const absl::string_view bytes = "data: {\"a\":1}\r\n\r\n: c\rdata: x\rdata:y\r\rdata: z\n\ndata: [DONE]\n\n";
  const std::vector<std::string> whole = Read({bytes});
  ASSERT_EQ(whole, (std::vector<std::string>{"{\"a\":1}", "x\ny", "z", "[DONE]"}));
  for (size_t i = 0; i <= bytes.size(); ++i) {
    for (size_t j = i; j <= bytes.size(); ++j) {
      ASSERT_EQ(Read({bytes.substr(0, i), bytes.substr(i, j - i), bytes.substr(j)}), whole) << i << " " << j;
    }
  }
}

TEST(EventStreamTest, KnowsThatAnEventHasNotEnded) {
  EventStream stream;
  const auto ignore = [](absl::string_view) {};
  EXPECT_FALSE(stream.has_rest());
  stream.Append("data: a", ignore);
  EXPECT_TRUE(stream.has_rest());
  stream.Append("\n", ignore);
  EXPECT_TRUE(stream.has_rest());
  stream.Append("\n", ignore);
  EXPECT_FALSE(stream.has_rest());
}

}  // namespace
}  // namespace tandem::bench_serving
