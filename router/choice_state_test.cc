// Tokens of one choice to text and logprobs, whatever the cuts: against functions that see the whole answer at once.
#include "router/choice_state.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

using B = ByteTokenizer;

const ByteTokenizer& Tokenizer() {
  static const ByteTokenizer* const tokenizer = new ByteTokenizer;
  return *tokenizer;
}

struct Options {
  std::vector<std::string> stops;
  bool is_thinking = false;
  bool wants_logprobs = true;
  size_t num_top_logprobs = 0;
  int64_t max_new_tokens = 100000;
  int64_t min_new_tokens = 0;
  AnswerRules rules;
  bool separates_reasoning = true;
  bool streams_reasoning = true;
};

// A choice under test and what it has given out.
class Script {
 public:
  explicit Script(const Options& options = {}) : options_(options), state_(MakeParams(options)) {}

  // The next tokens; their logprobs are -position, their top_logprobs (id, -position), (id + 1, -position - 0.5).
  absl::Status Tokens(const std::vector<TokenId>& tokens, SequenceFinish finish = SequenceFinish::kNone) {
    GeneratedTokens message;
    message.first_position = num_sent_;
    message.tokens = tokens;
    message.finish = finish;
    for (const TokenId token : tokens) {
      const float logprob = -static_cast<float>(num_sent_++);
      if (options_.wants_logprobs) message.logprobs.push_back(logprob);
      if (options_.num_top_logprobs > 0)
        message.top_logprobs.push_back({{token, logprob}, {token + 1, logprob - 0.5f}});
    }
    return Take(message);
  }
  absl::Status Take(const GeneratedTokens& message) {
    ChoiceDelta delta;
    const absl::Status status = state_.Take(message, &delta);
    reasoning += delta.text.reasoning;
    content += delta.text.content;
    for (const ToolCallDelta& call : delta.text.tool_calls) {
      absl::StrAppend(&calls, call.name.empty() ? "" : absl::StrCat("\n", call.index, " ", call.name, " "),
                      call.arguments);
    }
    logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    given_tokens.insert(given_tokens.end(), delta.tokens.begin(), delta.tokens.end());
    if (delta.has_text()) deltas.push_back(delta.text.reasoning + delta.text.content);
    EXPECT_TRUE(delta.has_news() || delta.logprobs.empty()) << "logprobs alone are no news";
    if (delta.end.has_value()) ++num_ends, end = *delta.end;
    return status;
  }
  absl::Status Text(absl::string_view text, SequenceFinish finish = SequenceFinish::kNone) {
    return Tokens(B::Bytes(text), finish);
  }
  // One token a message, for as long as the choice is open; the last with the finish.
  void OneByOne(const std::vector<TokenId>& tokens, SequenceFinish finish = SequenceFinish::kNone) {
    for (size_t i = 0; i < tokens.size() && state_.is_open(); ++i) {
      EXPECT_TRUE(Tokens({tokens[i]}, i + 1 == tokens.size() ? finish : SequenceFinish::kNone).ok());
    }
  }
  // The bytes of all logprobs' tokens.
  std::string LogprobBytes() const {
    std::string bytes;
    for (const TokenLogprob& entry : logprobs) absl::StrAppend(&bytes, Tokenizer().TokenBytes(entry.token));
    return bytes;
  }
  const ChoiceState& state() const { return state_; }
  ChoiceState& state() { return state_; }

  std::string reasoning;
  std::string content;
  std::string calls;  // a line each
  std::vector<TokenLogprob> logprobs;
  std::vector<TokenId> given_tokens;
  std::vector<std::string> deltas;
  ChoiceEnd end;
  int num_ends = 0;

 private:
  static ChoiceState::Params MakeParams(const Options& options) {
    ChoiceState::Params params;
    params.tokenizer = &Tokenizer();
    if (!options.stops.empty()) params.stops = std::make_shared<const StopSet>(StopSet::Build(options.stops).value());
    params.start = options.is_thinking ? ReasoningSplitter::State::kReasoning : ReasoningSplitter::State::kContent;
    params.max_new_tokens = options.max_new_tokens;
    params.min_new_tokens = options.min_new_tokens;
    params.wants_logprobs = options.wants_logprobs;
    params.num_top_logprobs = options.num_top_logprobs;
    params.rules = options.rules;
    params.separates_reasoning = options.separates_reasoning;
    params.streams_reasoning = options.streams_reasoning;
    params.wants_tokens = true;
    return params;
  }
  const Options options_;
  ChoiceState state_;
  int64_t num_sent_ = 0;
};

TEST(ChoiceStateTest, OneTokenIsTheWholeAnswerOfMaxTokensOne) {
  Script script({.max_new_tokens = 1});
  script.OneByOne({'x'}, SequenceFinish::kLength);
  EXPECT_EQ(script.content, "x");
  EXPECT_EQ(script.end.finish, AnswerFinish::kLength);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(script.end.matched_stop));
  EXPECT_EQ(script.state().num_generated(), 1);
  ASSERT_EQ(script.logprobs.size(), 1u);
  EXPECT_EQ(script.logprobs[0].token, TokenId{'x'});
}

// A worker counts from its own start: those of an attempt that is over are kept beside.
TEST(ChoiceStateTest, DraftsOfAllAttemptsAreAddedUp) {
  Script script;
  int64_t position = 0;
  const auto take = [&](const DraftCounts& drafts, SequenceFinish finish = SequenceFinish::kNone) {
    GeneratedTokens message;
    message.first_position = position++;
    message.tokens = {'x'};
    message.logprobs = {-1};
    message.finish = finish;
    message.drafts = drafts;
    EXPECT_TRUE(script.Take(message).ok());
  };
  take({});
  take({.windows = 2, .drafted = 6, .accepted = 4});
  take({.windows = 5, .drafted = 15, .accepted = 9});
  take({.windows = 1, .drafted = 3, .accepted = 2});  // elsewhere
  take({.windows = 3, .drafted = 8, .accepted = 5}, SequenceFinish::kLength);
  EXPECT_EQ(script.end.drafts.windows, 8);
  EXPECT_EQ(script.end.drafts.drafted, 23);
  EXPECT_EQ(script.end.drafts.accepted, 14);
}

TEST(ChoiceStateTest, ReasoningMayStayInTheContentOrComeInOnePiece) {
  std::vector<TokenId> tokens = B::Bytes("why");
  tokens.push_back(B::kThinkEnd);
  for (const TokenId token : B::Bytes("so")) tokens.push_back(token);
  tokens.push_back(B::kEos);

  Script joined({.is_thinking = true, .separates_reasoning = false});
  joined.OneByOne(tokens, SequenceFinish::kStopToken);
  EXPECT_EQ(joined.content, "why</think>so");
  EXPECT_EQ(joined.reasoning, "");
  EXPECT_EQ(joined.deltas.front(), "w") << "as it comes";
  EXPECT_EQ(joined.state().num_reasoning_tokens(), 4);
  EXPECT_EQ(joined.logprobs.size(), tokens.size());

  Script held({.is_thinking = true, .streams_reasoning = false});
  held.OneByOne(tokens, SequenceFinish::kStopToken);
  EXPECT_EQ(held.reasoning, "why");
  EXPECT_EQ(held.content, "so");
  EXPECT_EQ(held.deltas.front(), "why");
  EXPECT_EQ(held.logprobs.size(), tokens.size());
  EXPECT_EQ(held.given_tokens, tokens);

  Script cut({.is_thinking = true, .max_new_tokens = 2, .streams_reasoning = false});
  cut.OneByOne(B::Bytes("wh"), SequenceFinish::kLength);
  EXPECT_EQ(cut.reasoning, "wh") << "at the end it is told, ended or not";
  Script cut_joined({.is_thinking = true, .max_new_tokens = 2, .separates_reasoning = false});
  cut_joined.OneByOne(B::Bytes("wh"), SequenceFinish::kLength);
  EXPECT_EQ(cut_joined.content, "wh");
}

TEST(ChoiceStateTest, NoTokenIsTheWholeAnswerOfMaxTokensZero) {
  Script script({.max_new_tokens = 0});
  EXPECT_TRUE(script.Tokens({'x'}, SequenceFinish::kLength).ok());
  EXPECT_EQ(script.content, "");
  EXPECT_EQ(script.num_ends, 1);
  EXPECT_EQ(script.end.finish, AnswerFinish::kLength);
  EXPECT_EQ(script.state().num_generated(), 0);
  EXPECT_TRUE(script.logprobs.empty());
}

TEST(ChoiceStateTest, AnAbortGivesOutWhatWasHeldBack) {
  Script script({.stops = {"END"}});
  EXPECT_TRUE(script.Text("abEN").ok());
  EXPECT_EQ(script.content, "ab");
  ChoiceDelta delta;
  script.state().Abort(&delta);
  EXPECT_EQ(delta.text.content, "EN");
  ASSERT_TRUE(delta.end.has_value());
  EXPECT_EQ(delta.end->finish, AnswerFinish::kAbort);
  EXPECT_EQ(script.given_tokens, B::Bytes("abEN")) << "tokens are told as they are counted, held back or not";
  EXPECT_TRUE(delta.tokens.empty());
  EXPECT_FALSE(script.state().is_open());
}

TEST(ChoiceStateTest, EosAsTheFirstTokenIsAnEmptyAnswerWithItsLogprob) {
  Script script;
  script.OneByOne({B::kEos}, SequenceFinish::kStopToken);
  EXPECT_EQ(script.content, "");
  EXPECT_EQ(script.end.finish, AnswerFinish::kStop);
  EXPECT_EQ(std::get<TokenId>(script.end.matched_stop), B::kEos);
  EXPECT_EQ(script.state().num_generated(), 1);
  ASSERT_EQ(script.logprobs.size(), 1u) << "as many as completion_tokens";
  EXPECT_EQ(script.logprobs[0].token, B::kEos);
}

TEST(ChoiceStateTest, StopStringThatIsTheFirstTokenLeavesNothing) {
  Script script({.stops = {"x"}});
  script.OneByOne({'x'});
  EXPECT_EQ(script.content, "");
  EXPECT_EQ(script.end.finish, AnswerFinish::kStop);
  EXPECT_EQ(std::get<std::string>(script.end.matched_stop), "x");
  EXPECT_EQ(script.state().num_generated(), 1);
  EXPECT_TRUE(script.logprobs.empty()) << "nothing of a stop is ever sent";
}

TEST(ChoiceStateTest, NothingOfAStopIsShownAndWhatWasHeldIsFlushed) {
  const struct {
    std::string text;
    std::vector<std::string> stops;
    std::string shown;
    std::string matched;  // "" = none
  } kCases[] = {
      {"ABC DEFGHIJ K", {"DEFGHIJ"}, "ABC ", "DEFGHIJ"},
      {"xabc", {"ab", "abc"}, "x", "ab"},
      {"aaab", {"aab"}, "a", "aab"},
      {"ends in DEFGH", {"DEFGHIJ"}, "ends in DEFGH", ""},
      {"DEFDEFGHIJ", {"DEFGHIJ"}, "DEF", "DEFGHIJ"},
      {"\u00e9\u20ac#", {"\u20ac"}, "\u00e9", "\u20ac"},
  };
  for (const auto& test_case : kCases) {
    Script script({.stops = test_case.stops});
    script.OneByOne(B::Bytes(test_case.text), SequenceFinish::kLength);
    EXPECT_EQ(script.content, test_case.shown) << test_case.text;
    EXPECT_EQ(script.num_ends, 1);
    if (test_case.matched.empty()) {
      EXPECT_EQ(script.end.finish, AnswerFinish::kLength) << test_case.text;
    } else {
      EXPECT_EQ(std::get<std::string>(script.end.matched_stop), test_case.matched) << test_case.text;
    }
    EXPECT_EQ(script.LogprobBytes(), test_case.shown) << "one byte a token: exactly the tokens that are shown";
  }
}

TEST(ChoiceStateTest, NoDeltaIsEmptyWhileAStopIsHeldBack) {
  Script script({.stops = {"###"}});
  script.OneByOne(B::Bytes("# Title"));
  EXPECT_EQ(script.deltas.front(), "# ") << "held until it cannot match";
  EXPECT_EQ(script.content, "# Title");
  EXPECT_EQ(std::count(script.deltas.begin(), script.deltas.end(), ""), 0);
}

TEST(ChoiceStateTest, StopsAreSearchedBehindTheFirstMinTokens) {
  Script script({.stops = {"b"}, .min_new_tokens = 3});
  script.OneByOne(B::Bytes("abcab"));
  EXPECT_EQ(script.content, "abca");
  EXPECT_EQ(script.state().num_generated(), 5);
}

TEST(ChoiceStateTest, LogprobsCoverEveryCountedTokenReasoningAndMarksIncluded) {
  Script script({.is_thinking = true, .num_top_logprobs = 2});
  std::vector<TokenId> tokens = {'w', 0xc3, 0xa9, B::kThinkEnd, 'o', B::kUser, 'k', B::kEos};
  script.OneByOne(tokens, SequenceFinish::kStopToken);
  EXPECT_EQ(script.reasoning, "w\u00e9");
  EXPECT_EQ(script.content, "ok");
  ASSERT_EQ(script.logprobs.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(script.logprobs[i].token, tokens[i]);
    EXPECT_EQ(script.logprobs[i].logprob, -static_cast<float>(i));
    ASSERT_EQ(script.logprobs[i].top.size(), 2u);
    EXPECT_EQ(script.logprobs[i].top[1].token, tokens[i] + 1);
  }
}

TEST(ChoiceStateTest, TokenThatAStopCutsInTwoKeepsItsLogprob) {
  Script script({.stops = {"k>x"}});
  script.OneByOne({'a', B::kThinkBegin, 'x'});
  EXPECT_EQ(script.content, "a<thin");
  ASSERT_EQ(script.logprobs.size(), 2u);
  EXPECT_EQ(script.logprobs[1].token, B::kThinkBegin) << "a part of it is shown";
}

TEST(ChoiceStateTest, TextOffsetsAreCharactersOfTheText) {
  Script script;
  script.OneByOne({'a', 0xc3, 0xa9, 0xe2, 0x82, 0xac, 'b', B::kEos}, SequenceFinish::kStopToken);
  std::vector<int64_t> offsets;
  for (const TokenLogprob& entry : script.logprobs) offsets.push_back(entry.text_offset);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1, 1, 2, 2, 2, 3, 4})) << "a part of a character is where it begins";
}

// A call as the model's tokens: the mark is one token, and special.
std::vector<TokenId> CallTokens(const std::vector<std::string>& parts) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) tokens.push_back(B::kDsml);
    for (const TokenId byte : B::Bytes(parts[i])) tokens.push_back(byte);
  }
  return tokens;
}

const std::vector<TokenId>& OneCall() {
  static const auto* const tokens = new std::vector<TokenId>(
      CallTokens({"ok\n\n<", "function_calls>\n<", "invoke name=\"f\">\n<",
                  "parameter name=\"x\" string=\"true\">a b</", "parameter>\n</", "invoke>\n</", "function_calls>"}));
  return *tokens;
}

Options ReadsCalls() {
  Options options;
  options.rules.markup = CallMarkup::kDsml;
  return options;
}

TEST(ChoiceStateTest, AnAnswerWithACallFinishesWithToolCalls) {
  Script script(ReadsCalls());
  script.OneByOne(OneCall());
  EXPECT_TRUE(script.Tokens({B::kEos}, SequenceFinish::kStopToken).ok());
  EXPECT_EQ(script.content, "ok");
  EXPECT_EQ(script.calls, "\n0 f {\"x\": \"a b\"}");
  EXPECT_EQ(script.end.finish, AnswerFinish::kToolCalls);
  EXPECT_EQ(script.logprobs.size(), OneCall().size() + 1) << "markup is counted, and so has its logprobs";
}

TEST(ChoiceStateTest, ACallThatLengthCutsIsIncompleteAndSaysSo) {
  Script script(ReadsCalls());
  std::vector<TokenId> tokens(OneCall().begin(), OneCall().end() - 42);
  script.OneByOne(tokens, SequenceFinish::kLength);
  EXPECT_EQ(script.end.finish, AnswerFinish::kLength);
  EXPECT_TRUE(absl::StartsWith(script.calls, "\n0 f {\"x\": \"")) << script.calls;
  EXPECT_FALSE(absl::EndsWith(script.calls, "}")) << script.calls;
}

TEST(ChoiceStateTest, AStopStringInsideACallLeavesItIncomplete) {
  Options options = ReadsCalls();
  options.stops = {"b</"};
  Script script(options);
  script.OneByOne(OneCall());
  EXPECT_EQ(script.calls, "\n0 f {\"x\": \"a ");
  EXPECT_EQ(script.end.finish, AnswerFinish::kStop);
  options.stops = {"tail"};
  Script behind(options);
  std::vector<TokenId> tokens = OneCall();
  for (const TokenId byte : B::Bytes("tail")) tokens.push_back(byte);
  behind.OneByOne(tokens);
  EXPECT_EQ(behind.calls, "\n0 f {\"x\": \"a b\"}");
  EXPECT_EQ(behind.end.finish, AnswerFinish::kToolCalls);
}

TEST(ChoiceStateTest, WhereOneCallIsAllowedTheChoiceEndsWithIt) {
  Options options = ReadsCalls();
  options.rules.is_single_call = true;
  Script script(options);
  script.OneByOne(OneCall());
  EXPECT_FALSE(script.state().is_open());
  EXPECT_EQ(script.num_ends, 1);
  EXPECT_EQ(script.end.finish, AnswerFinish::kToolCalls);
  EXPECT_LT(script.state().num_generated(), static_cast<int64_t>(OneCall().size()));
}

TEST(ChoiceStateTest, ForbiddenCallsLeaveAnEmptyAnswerThatStopped) {
  Options options = ReadsCalls();
  options.rules.shows_calls = false;
  Script script(options);
  script.OneByOne(OneCall(), SequenceFinish::kStopToken);
  EXPECT_EQ(script.content, "ok");
  EXPECT_EQ(script.calls, "");
  EXPECT_EQ(script.end.finish, AnswerFinish::kStop);
}

TEST(ChoiceStateTest, WithoutToolsMarkupIsText) {
  Script script;
  script.OneByOne(CallTokens({"<", "invoke name=\"f\">"}), SequenceFinish::kLength);
  EXPECT_EQ(script.content, "<｜DSML｜invoke name=\"f\">");
}

TEST(ChoiceStateTest, TokenThatBreaksACharacterOffBeginsBehindItsReplacement) {
  Script script;
  script.OneByOne({0xe5, 0xb9, B::kThinkBegin, 0xe0, 0x80, 'a'}, SequenceFinish::kLength);
  EXPECT_EQ(script.content, "\uFFFD<think>\uFFFD\uFFFDa");
  std::vector<int64_t> offsets;
  for (const TokenLogprob& entry : script.logprobs) offsets.push_back(entry.text_offset);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 0, 1, 8, 9, 10}));
}

TEST(ChoiceStateTest, WithoutLogprobsNoneAreKept) {
  Script script({.wants_logprobs = false});
  script.OneByOne(B::Bytes("abc"), SequenceFinish::kLength);
  EXPECT_EQ(script.content, "abc");
  EXPECT_TRUE(script.logprobs.empty());
}

TEST(ChoiceStateTest, WorkerThatLeavesOutLogprobsBreaksTheRules) {
  Script script;
  GeneratedTokens message;
  message.tokens = {'a', 'b'};
  message.logprobs = {-1};
  const absl::Status status = script.Take(message);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "worker sent 1 logprobs for 2 tokens");
  EXPECT_EQ(script.state().num_generated(), 0);

  Script with_top({.num_top_logprobs = 1});
  message.logprobs = {-1, -1};
  EXPECT_EQ(with_top.Take(message).message(), "worker sent 0 top_logprobs for 2 tokens");
}

// Random texts of one to four bytes a character (Hangul, joined emoji, single bytes that are no UTF-8), one to four
// tokens a message, with and without stops, cut by the limit anywhere.
class AnyCutTest : public testing::Test {
 protected:
  static std::string RandomText(std::mt19937& random) {
    static const std::vector<std::string> kPieces = {
        "a",          "#",      "##",
        " ",          "\u00e9", "\ud55c",
        "\uae00",     "\u20ac", "\U0001F468\u200D\U0001F469\u200D\U0001F467",
        "\U0001F642", "\n"};
    std::string text;
    for (size_t i = 0, n = random() % 20; i < n; ++i) text += kPieces[random() % kPieces.size()];
    return text;
  }
};

TEST_F(AnyCutTest, TextIsTheWholeDecodeAndLogprobsAreItsTokens) {
  std::mt19937 random(6);
  for (int round = 0; round < 3000; ++round) {
    std::string text = RandomText(random);
    if (!text.empty() && random() % 2 == 0) text.resize(1 + random() % text.size());  // perhaps inside a character
    std::vector<TokenId> tokens = B::Bytes(text);
    if (tokens.empty()) continue;
    const std::string expected = Tokenizer().Decode(tokens);
    Script script;
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t size = std::min<size_t>(1 + random() % 4, tokens.size() - begin);
      const bool is_last = begin + size == tokens.size();
      ASSERT_TRUE(script
                      .Tokens({tokens.begin() + begin, tokens.begin() + begin + size},
                              is_last ? SequenceFinish::kLength : SequenceFinish::kNone)
                      .ok());
      begin += size;
    }
    ASSERT_EQ(script.content, expected);
    ASSERT_EQ(script.LogprobBytes(), text);
    const size_t replacement = script.content.find("\uFFFD");
    ASSERT_TRUE(replacement == std::string::npos || replacement + 3 == script.content.size())
        << "only at the very end, once";
  }
}

TEST_F(AnyCutTest, StopEndsTextAndLogprobsWhereTheWholeTextSays) {
  std::mt19937 random(7);
  int num_stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = RandomText(random) + "##" + RandomText(random);
    const std::string stop = std::vector<std::string>{"##", "#a", "\ud55c", "\U0001F642"}[random() % 4];
    const std::vector<TokenId> tokens = B::Bytes(text);
    Script script({.stops = {stop}});
    for (size_t begin = 0; begin < tokens.size() && script.state().is_open();) {
      const size_t size = std::min<size_t>(1 + random() % 4, tokens.size() - begin);
      const bool is_last = begin + size == tokens.size();
      ASSERT_TRUE(script
                      .Tokens({tokens.begin() + begin, tokens.begin() + begin + size},
                              is_last ? SequenceFinish::kLength : SequenceFinish::kNone)
                      .ok());
      begin += size;
    }
    const std::string expected = text.substr(0, text.find(stop));
    ASSERT_EQ(script.content, expected) << text << " stop " << stop;
    ASSERT_EQ(script.LogprobBytes(), expected);
    if (absl::StrContains(text, stop)) {
      ++num_stopped;
      ASSERT_EQ(script.state().num_generated(), static_cast<int64_t>(text.find(stop) + stop.size()));
    }
  }
  EXPECT_GT(num_stopped, 1000);
}

}  // namespace
}  // namespace tandem::router
