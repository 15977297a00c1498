// Expected texts were printed by Python 3: json.dumps(json.loads(text), ensure_ascii=False).
#include "router/chat/ordered_json.h"

#include <gtest/gtest.h>

namespace tandem::router {
namespace {

std::string Python(absl::string_view json) {
  absl::StatusOr<OrderedJson> value = ParseOrderedJson(json);
  EXPECT_TRUE(value.ok()) << json << ": " << value.status();
  std::string out;
  if (value.ok()) AppendPythonJson(*value, &out);
  return out;
}

TEST(OrderedJsonTest, PrintsAsPythonDoes) {
  const std::pair<const char*, const char*> kLines[] = {
      {"{\"b\":1,\"a\":[true,false,null],\"\":{}}", "{\"b\": 1, \"a\": [true, false, null], \"\": {}}"},
      {" [ 1 ,\t2\r\n, [] ] ", "[1, 2, []]"},
      {"\"\\u0041\\u00e9\\u4f60\\ud83d\\ude42/\\/\"", "\"Aé你🙂//\""},
      {"\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f\"", "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\x7F\""},
      {"\"é\u2028\"", "\"é\u2028\""},
      {"{\"a\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2}"},
      {"0", "0"},
      {"-0", "0"},
      {"-17", "-17"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"1.0", "1.0"},
      {"-0.0", "-0.0"},
      {"1.50", "1.5"},
      {"0.1", "0.1"},
      {"1e5", "100000.0"},
      {"1E+2", "100.0"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"123456789012345.678", "123456789012345.67"},
      {"1234567890123456789.0", "1.2345678901234568e+18"},
      {"0.0001", "0.0001"},
      {"0.00012345", "0.00012345"},
      {"0.00001", "1e-05"},
      {"1e-07", "1e-07"},
      {"1.5e-10", "1.5e-10"},
      {"1e100", "1e+100"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"1e999", "Infinity"},
      {"-1e999", "-Infinity"},
      {"9007199254740993.0", "9007199254740992.0"},
      {"3.141592653589793238", "3.141592653589793"},
  };
  for (const auto& [json, python] : kLines) EXPECT_EQ(Python(json), python) << json;
}

TEST(OrderedJsonTest, PrintingIsStable) {
  const std::string once = Python("{\"z\":[1.50,\"\\u00e9\\n\",{\"k\":1e5}],\"a\":-0}");
  EXPECT_EQ(Python(once), once);
}

TEST(OrderedJsonTest, FindsMembers) {
  absl::StatusOr<OrderedJson> value = ParseOrderedJson("{\"a\":1,\"b\":\"x\"}");
  ASSERT_TRUE(value.ok());
  ASSERT_NE(value->Find("b"), nullptr);
  EXPECT_EQ(value->Find("b")->text, "x");
  EXPECT_EQ(value->Find("c"), nullptr);
  EXPECT_EQ(value->items[0].Find("a"), nullptr);
}

TEST(OrderedJsonTest, NamesThePlaceOfWhatIsNotJson) {
  const std::pair<std::string, const char*> kFaults[] = {
      {"", "at byte 0"},
      {"  ", "at byte 2"},
      {"{", "at byte 1"},
      {"{\"a\"}", "at byte 4"},
      {"{\"a\":1,}", "at byte 7"},
      {"[1,]", "at byte 3"},
      {"[1 2]", "at byte 3"},
      {"nul", "at byte 0"},
      {"01", "at byte 1"},
      {"+1", "at byte 0"},
      {"1.", "at byte 2"},
      {".5", "at byte 0"},
      {"1e", "at byte 2"},
      {"-", "at byte 1"},
      {"NaN", "at byte 0"},
      {"Infinity", "at byte 0"},
      {"'a'", "at byte 0"},
      {"\"a", "at byte 2"},
      {"\"\n\"", "at byte 1"},
      {"\"\\x\"", "at byte 2"},
      {"\"\\u12g4\"", "at byte 3"},
      {"\"\\u12", "at byte 3"},
      {"\"\\", "at byte 2"},
      {"1 1", "at byte 2"},
      {"\"\xFF\"", "at byte 1"},
      {"\"\\ud83d\"", "surrogate"},
      {"\"\\ude42\"", "surrogate"},
      {"\"\\ud83dx\"", "surrogate"},
      {"\"\\ud83d\\u0041\"", "surrogate"},
      {"\"\\u-123\"", "hexadecimal"},
  };
  for (const auto& [json, what] : kFaults) {
    const absl::Status status = ParseOrderedJson(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_NE(status.message().find(what), absl::string_view::npos) << json << ": " << status;
  }
}

TEST(OrderedJsonTest, NestsUpToTheLimit) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Python(nested(kOrderedJsonDepthMax)), nested(kOrderedJsonDepthMax));
  EXPECT_EQ(ParseOrderedJson(nested(kOrderedJsonDepthMax + 1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseOrderedJson(std::string(1 << 20, '[')).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::router
