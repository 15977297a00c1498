// Scripts of what a worker, a client and time may do to one request, against what the router must do.
#include "router/request_state.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

using Finish = SequenceFinish;
constexpr absl::Duration kNow = absl::Seconds(10);
constexpr char kEndThink[] = "</think>";

// A request under test and everything it has said so far.
class Script {
 public:
  explicit Script(std::vector<std::string> stops = {}, bool is_thinking = false, int64_t max_new_tokens = 1000,
                  absl::Duration deadline = absl::InfiniteDuration())
      : state_(MakeParams(std::move(stops), is_thinking, max_new_tokens, deadline)) {}

  // The next tokens, in order.
  void Tokens(const std::vector<TokenId>& tokens, Finish finish = Finish::kNone) {
    const int64_t position = next_position_;
    next_position_ += static_cast<int64_t>(tokens.size());
    Again(position, tokens, finish);
  }
  void Again(int64_t position, const std::vector<TokenId>& tokens, Finish finish = Finish::kNone) {
    GeneratedTokens message;
    message.first_position = position;
    message.tokens = tokens;
    message.finish = finish;
    Take(state_.OnTokens(message, kNow));
  }
  void Text(absl::string_view text, Finish finish = Finish::kNone) { Tokens(ByteTokenizer::Bytes(text), finish); }
  void Take(const RequestState::Output& output) {
    content += output.delta.text.content;
    reasoning += output.delta.text.reasoning;
    if (output.delta.end.has_value()) ++num_finishes, finish = output.delta.end->finish;
    if (!output.error.ok()) ++num_errors, error = output.error;
    if (!output.cancel_reason.empty()) cancels.push_back(output.cancel_reason);
    if (output.is_released) ++num_releases;
    if (output.delta.has_text()) ++num_deltas;
  }
  RequestState& state() { return state_; }

  std::string content;
  std::string reasoning;
  AnswerFinish finish = AnswerFinish::kStop;
  absl::Status error;
  std::vector<std::string> cancels;
  int num_finishes = 0;
  int num_errors = 0;
  int num_releases = 0;
  int num_deltas = 0;

 private:
  static RequestState::Params MakeParams(std::vector<std::string> stops, bool is_thinking, int64_t max_new_tokens,
                                         absl::Duration deadline) {
    static const ByteTokenizer* tokenizer = new ByteTokenizer;
    RequestState::Params params;
    params.choice.tokenizer = tokenizer;
    params.choice.stops = std::make_shared<const StopSet>(StopSet::Build(std::move(stops)).value());
    params.choice.start = is_thinking ? ReasoningSplitter::State::kReasoning : ReasoningSplitter::State::kContent;
    params.choice.max_new_tokens = max_new_tokens;
    params.num_prompt_tokens = 7;
    params.started_at = kNow;
    params.deadline = deadline;
    return params;
  }

  RequestState state_;
  int64_t next_position_ = 0;
};

std::vector<TokenId> Join(std::vector<TokenId> first, const std::vector<TokenId>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(RequestStateTest, CachedTokensAreThoseOfTheFirstTokenAndOfThePromptOnly) {
  static const ByteTokenizer* const tokenizer = new ByteTokenizer;
  RequestState::Params params;
  params.choice.tokenizer = tokenizer;
  params.choice.max_new_tokens = 9;
  params.num_choices = 2;
  params.num_prompt_tokens = 200;
  RequestState state(params);
  GeneratedTokens message;
  message.tokens = {'x'};
  message.num_cached_prompt_tokens = 128;
  EXPECT_EQ(state.OnTokens(message, kNow).delta.num_cached_tokens, 128);
  EXPECT_EQ(state.usage().cached_tokens, 128);
  message.choice = 1;
  EXPECT_EQ(state.OnTokens(message, kNow).delta.num_cached_tokens, 128) << "each choice's client hears it";
  message.first_position = 1;
  message.num_cached_prompt_tokens = 0;
  EXPECT_EQ(state.OnTokens(message, kNow).delta.num_cached_tokens, std::nullopt) << "once is enough";
  EXPECT_EQ(state.usage().cached_tokens, 128);

  RequestState lied_to(params);
  message = {};
  message.tokens = {'x'};
  message.num_cached_prompt_tokens = 1000;
  lied_to.OnTokens(message, kNow);
  EXPECT_EQ(lied_to.usage().cached_tokens, 200);
}

TEST(RequestStateTest, APromptsLogprobsComeWithTheFirstNewsOfEachChoice) {
  static const ByteTokenizer* const tokenizer = new ByteTokenizer;
  RequestState::Params params;
  params.choice.tokenizer = tokenizer;
  params.choice.max_new_tokens = 9;
  params.choice.wants_logprobs = true;
  params.num_choices = 2;
  params.num_prompt_logprobs = 2;
  const auto tokens = [](int choice, bool has_prompt, size_t num_prompt = 2) {
    GeneratedTokens message;
    message.choice = choice;
    message.tokens = {'x'};
    message.logprobs = {-1};
    if (has_prompt) {
      message.prompt_logprobs =
          std::make_shared<const PromptLogprobs>(PromptLogprobs{std::vector<float>(num_prompt, -2.0f), {}});
    }
    return message;
  };
  RequestState state(params);
  EXPECT_EQ(state.OnTokens(tokens(0, true), kNow).delta.prompt_logprobs->logprobs.size(), 2u);
  EXPECT_NE(state.OnTokens(tokens(1, false), kNow).delta.prompt_logprobs, nullptr);
  GeneratedTokens more = tokens(0, false);
  more.first_position = 1;
  EXPECT_EQ(state.OnTokens(more, kNow).delta.prompt_logprobs, nullptr) << "once is enough";

  RequestState without(params);
  EXPECT_EQ(without.OnTokens(tokens(0, false), kNow).error.code(), absl::StatusCode::kInternal);
  RequestState with_fewer(params);
  EXPECT_EQ(with_fewer.OnTokens(tokens(0, true, 1), kNow).error.code(), absl::StatusCode::kInternal);
}

TEST(RequestStateTest, AnAbortEndsEveryOpenChoiceAndCancelsOnce) {
  Script script;
  script.Text("hi");
  script.Take(script.state().OnAbort(kNow + absl::Seconds(1)));
  EXPECT_EQ(script.content, "hi");
  EXPECT_EQ(script.finish, AnswerFinish::kAbort);
  EXPECT_EQ(script.num_finishes, 1);
  EXPECT_EQ(script.cancels, std::vector<std::string>{"abort"});
  EXPECT_FALSE(script.state().is_answer_open());
  script.Take(script.state().OnAbort(kNow));
  EXPECT_EQ(script.num_finishes, 1);
  EXPECT_EQ(script.num_errors, 0);
}

TEST(RequestStateTest, StopTokenEndsTheAnswerAndIsCountedButNotShown) {
  Script script;
  script.Text("hi");
  script.Tokens({ByteTokenizer::kEos}, Finish::kStopToken);
  EXPECT_EQ(script.content, "hi");
  EXPECT_EQ(script.num_finishes, 1);
  EXPECT_EQ(script.finish, AnswerFinish::kStop);
  EXPECT_EQ(script.state().usage().prompt_tokens, 7);
  EXPECT_EQ(script.state().time_to_first_token(), absl::ZeroDuration());
  EXPECT_EQ(script.state().usage().completion_tokens, 3);
  EXPECT_EQ(script.state().usage().reasoning_tokens, 0);
  EXPECT_TRUE(script.cancels.empty()) << "nothing is left to cancel";
  EXPECT_FALSE(script.state().is_released()) << "the workers have not confirmed yet";
  script.Take(script.state().OnEnded(absl::OkStatus(), false));
  EXPECT_EQ(script.num_releases, 1);
  EXPECT_EQ(script.num_errors, 0);
}

TEST(RequestStateTest, StopTokenAsTheFirstTokenIsAnEmptyAnswer) {
  Script script;
  script.Tokens({ByteTokenizer::kEos}, Finish::kStopToken);
  EXPECT_EQ(script.content, "");
  EXPECT_EQ(script.finish, AnswerFinish::kStop);
  EXPECT_EQ(script.state().usage().completion_tokens, 1);
}

TEST(RequestStateTest, LastTokenOfALimitedAnswerIsShown) {
  Script script({}, false, 2);
  script.Text("a");
  script.Text("b", Finish::kLength);
  EXPECT_EQ(script.content, "ab");
  EXPECT_EQ(script.finish, AnswerFinish::kLength);
}

TEST(RequestStateTest, CharactersCutAcrossTokensArriveWhole) {
  Script script;
  const std::string text = "\U0001F642\uD55C";
  for (char byte : text) script.Text(absl::string_view(&byte, 1));
  EXPECT_EQ(script.content, text);
  EXPECT_EQ(script.num_deltas, 2) << "no delta without a character";
}

TEST(RequestStateTest, CharacterCutByTheLimitIsOneReplacementCharacterAtTheEnd) {
  Script script({}, false, 4);
  script.Text("a\xf0\x9f\x99", Finish::kLength);
  EXPECT_EQ(script.content, "a\uFFFD");
}

TEST(RequestStateTest, StopStringAcrossDeltasIsNeverShownAndCancelsAtOnce) {
  Script script({"DEFG"});
  for (char byte : std::string("ABC DEFGHI")) {
    if (!script.state().is_answer_open()) break;
    script.Text(absl::string_view(&byte, 1));
  }
  EXPECT_EQ(script.content, "ABC ");
  EXPECT_EQ(script.finish, AnswerFinish::kStop);
  EXPECT_EQ(script.cancels, std::vector<std::string>{"stop string"});
  EXPECT_EQ(script.state().usage().completion_tokens, 8) << "up to the token that completed the stop";
  script.Text("HIJ");  // was under way
  EXPECT_EQ(script.content, "ABC ");
  EXPECT_EQ(script.state().usage().completion_tokens, 8);
  script.Take(script.state().OnEnded(absl::OkStatus(), true));
  EXPECT_EQ(script.num_releases, 1);
  EXPECT_EQ(script.num_errors, 0);
  EXPECT_EQ(script.num_finishes, 1);
}

TEST(RequestStateTest, TokensBehindAStopStringInTheSameBatchAreDiscardedAndNotCounted) {
  Script script({"b"});
  script.Text("abcdef");
  EXPECT_EQ(script.content, "a");
  EXPECT_EQ(script.state().usage().completion_tokens, 2);
}

TEST(RequestStateTest, StopStringInTheLastBatchNeedsNoCancel) {
  Script script({"b"}, false, 3);
  script.Text("abc", Finish::kLength);
  EXPECT_EQ(script.content, "a");
  EXPECT_EQ(script.finish, AnswerFinish::kStop);
  EXPECT_TRUE(script.cancels.empty());
}

TEST(RequestStateTest, TextHeldForAStopIsFlushedWhereTheStopNeverCompletes) {
  Script script({"###"}, false, 3);
  script.Text("a##", Finish::kLength);
  EXPECT_EQ(script.content, "a##");
  EXPECT_EQ(script.finish, AnswerFinish::kLength);
}

TEST(RequestStateTest, ThinkingIsSplitFromContentAndCounted) {
  Script script({}, /*is_thinking=*/true);
  script.Text("why");
  script.Tokens({ByteTokenizer::kThinkEnd});
  script.Text("so");
  script.Tokens({ByteTokenizer::kEos}, Finish::kStopToken);
  EXPECT_EQ(script.reasoning, "why");
  EXPECT_EQ(script.content, "so");
  EXPECT_EQ(script.state().usage().completion_tokens, 7);
  EXPECT_EQ(script.state().usage().reasoning_tokens, 4) << "the mark that ends the reasoning belongs to it";
}

TEST(RequestStateTest, WithoutThinkingTheMarkIsText) {
  Script script;
  script.Text("a");
  script.Tokens({ByteTokenizer::kThinkEnd});
  EXPECT_EQ(script.content, std::string("a") + kEndThink);
  EXPECT_EQ(script.reasoning, "");
}

TEST(RequestStateTest, ThinkingThatNeverEndsIsAllReasoning) {
  Script script({}, /*is_thinking=*/true, 5);
  script.Text("a</th", Finish::kLength);
  EXPECT_EQ(script.reasoning, "a</th");
  EXPECT_EQ(script.content, "");
  EXPECT_EQ(script.state().usage().reasoning_tokens, 5);
}

TEST(RequestStateTest, SpecialTokensInsideAnAnswerAreCountedButNotShown) {
  Script script;
  script.Tokens(Join(Join(ByteTokenizer::Bytes("a"), {ByteTokenizer::kEos}), ByteTokenizer::Bytes("b")));
  EXPECT_EQ(script.content, "ab");
  EXPECT_EQ(script.state().num_generated(), 3);
}

TEST(RequestStateTest, MarksThatParsersReadAreShownEvenWhereTheyAreSpecial) {
  static_assert(ByteTokenizer::kDsml < ByteTokenizer::kNumIds);
  ASSERT_TRUE(ByteTokenizer().IsSpecial(ByteTokenizer::kDsml));
  Script script;
  script.Tokens({'<', ByteTokenizer::kDsml, 'f', '>', ByteTokenizer::kUser, ByteTokenizer::kThinkEnd});
  EXPECT_EQ(script.content, "<｜DSML｜f></think>");
  EXPECT_EQ(script.state().usage().completion_tokens, 6);
}

TEST(RequestStateTest, AnyCutOfTheTokensGivesTheSameAnswer) {
  const std::vector<TokenId> tokens =
      Join(Join(ByteTokenizer::Bytes("r\u00e9as\U0001F642on"), {ByteTokenizer::kThinkEnd}),
           ByteTokenizer::Bytes("c\u00f6ntent STO STOP tail"));
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    Script script({"STOP"}, /*is_thinking=*/true);
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t size = std::min<size_t>(1 + random() % 5, tokens.size() - begin);
      script.Tokens(std::vector<TokenId>(tokens.begin() + begin, tokens.begin() + begin + size));
      begin += size;
    }
    ASSERT_EQ(script.reasoning, "r\u00e9as\U0001F642on");
    ASSERT_EQ(script.content, "c\u00f6ntent STO ");
    ASSERT_EQ(script.state().usage().completion_tokens, static_cast<int64_t>(tokens.size()) - 5);
    ASSERT_EQ(script.cancels.size(), 1u);
    ASSERT_EQ(script.num_finishes, 1);
  }
}

TEST(RequestStateTest, EqualDuplicatesAreDropped) {
  Script script;
  script.Text("abc");
  script.Again(1, ByteTokenizer::Bytes("bcd"));
  EXPECT_EQ(script.content, "abcd");
  script.Again(0, ByteTokenizer::Bytes("ab"));
  EXPECT_EQ(script.content, "abcd");
  EXPECT_EQ(script.num_errors, 0);
}

TEST(RequestStateTest, UnequalDuplicatesGapsAndTooManyTokensEndTheRequest) {
  const auto expect_breach = [](Script& script, const std::string& what) {
    EXPECT_EQ(script.error.code(), absl::StatusCode::kInternal);
    EXPECT_NE(script.error.message().find(what), absl::string_view::npos) << script.error;
    EXPECT_EQ(script.cancels.size(), 1u);
    EXPECT_EQ(script.num_finishes, 0);
  };
  Script contradiction;
  contradiction.Text("abc");
  contradiction.Again(1, ByteTokenizer::Bytes("x"));
  expect_breach(contradiction, "position 1 was 98, is now 120");

  Script gap;
  gap.Text("abc");
  gap.Again(4, ByteTokenizer::Bytes("e"));
  expect_breach(gap, "next position is 3, got 4");

  Script too_many({}, false, 2);
  too_many.Text("abc");
  expect_breach(too_many, "worker sent 3 tokens, max_new_tokens is 2");
}

TEST(RequestStateTest, EndWithoutFinishReasonIsAFailureNotAnEnd) {
  Script script;
  script.Text("abc");
  script.Take(script.state().OnEnded(absl::OkStatus(), false));
  EXPECT_EQ(script.error.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(script.num_finishes, 0);
  EXPECT_EQ(script.num_releases, 1);
}

TEST(RequestStateTest, WorkersErrorReachesTheClientAsItIs) {
  Script script;
  script.Take(script.state().OnEnded(absl::UnavailableError("prefill p0 died"), false));
  EXPECT_EQ(script.error, absl::UnavailableError("prefill p0 died"));
  EXPECT_EQ(script.num_releases, 1);
}

TEST(RequestStateTest, LostWorkerFailsTheAnswerOnceAndReleasesIt) {
  Script script;
  script.Text("abc");
  script.Take(script.state().OnWorkerLost(absl::UnavailableError("decode d0: stream closed")));
  EXPECT_EQ(script.num_errors, 1);
  EXPECT_EQ(script.num_releases, 1);
  EXPECT_TRUE(script.cancels.empty()) << "there is nobody to tell";
  script.Take(script.state().OnWorkerLost(absl::UnavailableError("again")));
  EXPECT_EQ(script.num_errors, 1);
  EXPECT_EQ(script.num_releases, 1);
}

TEST(RequestStateTest, LossOfTheWorkerAfterTheAnswerIsNoError) {
  Script script;
  script.Text("a");
  script.Tokens({ByteTokenizer::kEos}, Finish::kStopToken);
  script.Take(script.state().OnWorkerLost(absl::UnavailableError("gone")));
  EXPECT_EQ(script.num_errors, 0);
  EXPECT_EQ(script.num_releases, 1);
}

TEST(RequestStateTest, ClientThatLeavesCancelsOnceAndWaitsForTheConfirmation) {
  Script script;
  script.Text("abc");
  script.Take(script.state().OnClientLeft(kNow));
  script.Take(script.state().OnClientLeft(kNow));
  EXPECT_EQ(script.cancels, std::vector<std::string>{"client left"});
  EXPECT_EQ(script.num_releases, 0);
  script.Text("def");
  EXPECT_EQ(script.content, "abc");
  script.Take(script.state().OnEnded(absl::OkStatus(), true));
  EXPECT_EQ(script.num_releases, 1);
  EXPECT_EQ(script.num_errors, 0);
}

TEST(RequestStateTest, ClientThatLeavesBeforeTheFirstTokenCancelsToo) {
  Script script;
  script.Take(script.state().OnClientLeft(kNow));
  EXPECT_EQ(script.cancels.size(), 1u);
}

TEST(RequestStateTest, ClientThatLeavesAfterTheLastTokenCancelsNothing) {
  Script script({}, false, 1);
  script.Text("a", Finish::kLength);
  script.Take(script.state().OnClientLeft(kNow));
  EXPECT_TRUE(script.cancels.empty());
}

TEST(RequestStateTest, DeadlineFailsTheAnswerAndCancels) {
  Script script({}, false, 100, kNow + absl::Seconds(3));
  EXPECT_EQ(script.state().NextWakeup(), kNow + absl::Seconds(3));
  script.Text("abc");
  script.Take(script.state().OnTime(kNow + absl::Seconds(2)));
  EXPECT_EQ(script.num_errors, 0);
  script.Take(script.state().OnTime(kNow + absl::Seconds(3)));
  EXPECT_EQ(script.error.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(script.cancels, std::vector<std::string>{"deadline"});
}

TEST(RequestStateTest, UnconfirmedCancelIsReleasedAfterABoundedTime) {
  Script script;
  EXPECT_EQ(script.state().NextWakeup(), absl::InfiniteDuration());
  script.Take(script.state().OnClientLeft(kNow));
  const absl::Duration release_at = kNow + RequestState::kReleaseWaitMax;
  EXPECT_EQ(script.state().NextWakeup(), release_at);
  script.Take(script.state().OnTime(release_at - absl::Nanoseconds(1)));
  EXPECT_EQ(script.num_releases, 0);
  script.Take(script.state().OnTime(release_at));
  EXPECT_EQ(script.num_releases, 1);
}

// Whatever comes in whatever order: one end of the answer, one release, at most one cancel, nothing shown afterwards.
TEST(RequestStateTest, EveryOrderOfEventsEndsOnce) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    Script script({"zz"}, random() % 2 == 0, 20, kNow + absl::Seconds(3));
    absl::Duration now = kNow;
    bool client_left = false;
    for (int step = 0; step < 12; ++step) {
      const bool was_open = script.state().is_answer_open();
      const std::string shown = script.content + script.reasoning;
      switch (random() % 8) {
        case 0:
          script.Take(script.state().OnClientLeft(now)), client_left = true;
          break;
        case 1:
          script.Take(script.state().OnEnded(absl::OkStatus(), random() % 2 == 0));
          break;
        case 2:
          script.Take(script.state().OnWorkerLost(absl::UnavailableError("lost")));
          break;
        case 3:
          script.Take(script.state().OnTime(now += absl::Seconds(1)));
          break;
        case 4:
          script.Text("z");
          break;
        case 5:
          script.Tokens({ByteTokenizer::kEos}, Finish::kStopToken);
          break;
        case 6:
          script.Take(script.state().OnGiveUp(absl::UnavailableError("draining"), now));
          break;
        default:
          script.Text("ab");
          break;
      }
      if (!was_open) {
        ASSERT_EQ(script.content + script.reasoning, shown);
      }
    }
    script.Take(script.state().OnEnded(absl::OkStatus(), true));
    ASSERT_LE(script.cancels.size(), 1u);
    ASSERT_EQ(script.num_releases, 1);
    ASSERT_LE(script.num_finishes + script.num_errors, 1);
    ASSERT_TRUE(client_left || script.num_finishes + script.num_errors == 1);
  }
}

}  // namespace
}  // namespace tandem::router
