// Logprobs in both shapes, read back by an independent JSON parser: texts, exact bytes, numbers that keep their bits.
#include "router/openai/logprobs_text.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/json_text.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

json::value Chat(const std::vector<TokenLogprob>& entries) {
  const ByteTokenizer tokenizer;
  std::string out;
  AppendChatLogprobs(out, entries, tokenizer);
  return json::parse(out);
}
json::value Completion(const std::vector<TokenLogprob>& entries) {
  const ByteTokenizer tokenizer;
  std::string out;
  AppendCompletionLogprobs(out, {}, entries, 0, tokenizer);
  return json::parse(out);
}

TEST(LogprobsTextTest, ChatHasTokenLogprobBytesAndTop) {
  EXPECT_EQ(Chat({{'"', -0.25f, {{'"', -0.25f}, {B::kEos, -3}}, 0}}), json::parse(R"({"content":[
      {"token":"\"","logprob":-0.25,"bytes":[34],
       "top_logprobs":[{"token":"\"","logprob":-0.25,"bytes":[34]},
                       {"token":"<｜end▁of▁sentence｜>","logprob":-3,
                        "bytes":[60,239,189,156,101,110,100,226,150,129,111,102,226,150,129,115,101,110,116,101,110,99,
                                 101,239,189,156,62]}]}],"refusal":null})"));
}

TEST(LogprobsTextTest, PartOfACharacterIsShownAsItsBytes) {
  const json::value entry = Chat({{0xf0, -1, {}, 0}}).at("content").at(0);
  EXPECT_EQ(entry.at("token"), "\\xf0");
  EXPECT_EQ(entry.at("bytes"), json::parse("[240]"));
  EXPECT_EQ(Completion({{0xf0, -1, {}, 0}}).at("tokens"), json::parse(R"(["bytes:\\xf0"])"));
}

TEST(LogprobsTextTest, CompletionHasParallelArrays) {
  EXPECT_EQ(Completion({{'a', -0.5f, {{'b', -0.25f}, {'a', -0.5f}}, 0}, {'c', -2, {{'d', -1}}, 1}}), json::parse(R"({
      "tokens":["a","c"],"token_logprobs":[-0.5,-2],
      "top_logprobs":[{"b":-0.25,"a":-0.5},{"d":-1,"c":-2}],"text_offset":[0,1]})"))
      << "the token itself is there too";
  EXPECT_EQ(Completion({}), json::parse(R"({"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]})"));
}

TEST(LogprobsTextTest, WhatJsonCannotSayIsTheLeastLogprob) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float logprob : {-infinity, std::nanf(""), -1e30f}) {
    EXPECT_EQ(Chat({{'a', logprob, {}, 0}}).at("content").at(0).at("logprob").to_number<double>(), -9999);
  }
}

TEST(LogprobsTextTest, NumbersReadBackAsTheSameFloat) {
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    const float number =
        -std::ldexp(static_cast<float>(random()) / 4294967296.0f, static_cast<int>(random() % 40) - 32);
    std::string out;
    AppendJsonNumber(out, number);
    ASSERT_EQ(static_cast<float>(json::parse(out).to_number<double>()), number) << out;
  }
}

}  // namespace
}  // namespace tandem::router
