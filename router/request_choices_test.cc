// Requests of several choices, against what the router must do: each ends alone, the request with its last one, and a
// next attempt goes on with those that are open.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "router/request_state.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

using Finish = SequenceFinish;
constexpr absl::Duration kNow = absl::Seconds(10);

// A request of several choices, and what each has said so far.
class Choices {
 public:
  explicit Choices(int num_choices, std::vector<std::string> stops = {}) : state_(MakeParams(num_choices, stops)) {}

  void Text(int choice, absl::string_view text, Finish finish = Finish::kNone) {
    GeneratedTokens message;
    message.choice = choice;
    message.tokens = ByteTokenizer::Bytes(text);
    message.first_position = next_position_[choice];
    message.finish = finish;
    next_position_[choice] += static_cast<int64_t>(text.size());
    Take(state_.OnTokens(message, kNow));
  }
  void Take(const RequestState::Output& output) {
    content[output.delta.choice] += output.delta.text.content;
    if (output.delta.end.has_value()) ++num_ends[output.delta.choice];
    if (!output.error.ok()) ++num_errors, error = output.error;
    if (output.is_released) ++num_releases;
    if (output.cancel_reason.empty()) return;
    output.cancel_choice.has_value() ? cancelled_choices.push_back(*output.cancel_choice) : void(++num_cancels);
  }
  RequestState& state() { return state_; }

  std::map<int, std::string> content;
  std::map<int, int> num_ends;
  std::vector<int> cancelled_choices;
  absl::Status error;
  int num_cancels = 0;  // of the whole request
  int num_errors = 0;
  int num_releases = 0;

 private:
  static RequestState::Params MakeParams(int num_choices, std::vector<std::string> stops) {
    static const ByteTokenizer* tokenizer = new ByteTokenizer;
    RequestState::Params params;
    params.choice.tokenizer = tokenizer;
    params.choice.stops = std::make_shared<const StopSet>(StopSet::Build(std::move(stops)).value());
    params.choice.max_new_tokens = 100;
    params.num_choices = num_choices;
    params.num_prompt_tokens = 7;
    params.started_at = kNow;
    return params;
  }
  RequestState state_;
  std::map<int, int64_t> next_position_;
};

TEST(RequestChoicesTest, ChoicesAreKeptApartAndThePromptIsCountedOnce) {
  Choices choices(3);
  choices.Text(0, "a\xc3");
  choices.Text(2, "x");
  choices.Text(0, "\xa9");
  choices.Text(1, "m", Finish::kLength);
  EXPECT_TRUE(choices.state().is_answer_open());
  choices.Text(2, "y", Finish::kLength);
  choices.Text(0, "b", Finish::kLength);
  EXPECT_EQ(choices.content, (std::map<int, std::string>{{0, "a\u00e9b"}, {1, "m"}, {2, "xy"}}));
  EXPECT_EQ(choices.num_ends, (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_FALSE(choices.state().is_answer_open());
  EXPECT_EQ(choices.state().usage().prompt_tokens, 7);
  EXPECT_EQ(choices.state().usage().completion_tokens, 7);
  EXPECT_EQ(choices.num_cancels, 0);
  choices.Take(choices.state().OnEnded(absl::OkStatus(), false));
  EXPECT_EQ(choices.num_releases, 1);
  EXPECT_EQ(choices.num_errors, 0);
}

TEST(RequestChoicesTest, StopStringOfOneChoiceCancelsThatChoiceAlone) {
  Choices choices(2, {"END"});
  choices.Text(0, "oneEND");
  EXPECT_EQ(choices.cancelled_choices, std::vector<int>{0});
  EXPECT_EQ(choices.num_cancels, 0);
  choices.Text(0, "under way");
  choices.Text(1, "two");
  EXPECT_EQ(choices.content, (std::map<int, std::string>{{0, "one"}, {1, "two"}}));
  EXPECT_EQ(choices.state().usage().completion_tokens, 9);
  EXPECT_EQ(choices.state().NextWakeup(), absl::InfiniteDuration()) << "the other choice goes on as long as it likes";
  choices.Text(1, "END");
  EXPECT_EQ(choices.num_cancels, 1) << "the last one takes the request with it";
  EXPECT_EQ(choices.cancelled_choices, std::vector<int>{0});
  choices.Take(choices.state().OnEnded(absl::OkStatus(), true));
  EXPECT_EQ(choices.num_errors, 0);
  EXPECT_EQ(choices.num_releases, 1);
}

TEST(RequestChoicesTest, ChoiceThatStoppedByItselfAfterOneThatWasCancelledNeedsNoCancel) {
  Choices choices(2, {"END"});
  choices.Text(0, "END");
  choices.Text(1, "two", Finish::kLength);
  EXPECT_FALSE(choices.state().is_answer_open());
  EXPECT_EQ(choices.num_cancels, 0) << "nothing runs any more";
  EXPECT_EQ(choices.state().NextWakeup(), kNow + RequestState::kReleaseWaitMax);
  choices.Take(choices.state().OnEnded(absl::OkStatus(), false));
  EXPECT_EQ(choices.num_releases, 1);
}

TEST(RequestChoicesTest, StopStringInAChoicesLastMessageCancelsNothing) {
  Choices choices(2, {"END"});
  choices.Text(0, "END", Finish::kLength);
  EXPECT_TRUE(choices.cancelled_choices.empty());
  choices.Text(1, "END", Finish::kLength);
  EXPECT_EQ(choices.num_cancels, 0);
  EXPECT_FALSE(choices.state().is_answer_open());
}

TEST(RequestChoicesTest, RequestThatEndsBeforeAllItsChoicesIsAFailure) {
  Choices choices(2);
  choices.Text(0, "a", Finish::kLength);
  choices.Take(choices.state().OnEnded(absl::OkStatus(), false));
  EXPECT_EQ(choices.error.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(choices.num_releases, 1);
}

TEST(RequestChoicesTest, ChoiceThatDoesNotExistIsABreach) {
  Choices choices(2);
  choices.Text(2, "a");
  EXPECT_EQ(choices.error.message(), "worker sent tokens of choice 2, there are 2");
  EXPECT_EQ(choices.num_cancels, 1);
}

TEST(RequestChoicesTest, ANextAttemptGoesOnWithWhatIsOpen) {
  Choices choices(3);
  choices.Text(0, "ab");
  choices.Text(1, "x", Finish::kLength);
  ASSERT_TRUE(choices.state().may_go_on());
  choices.state().EndAttempt();
  choices.state().BeginAttempt();
  const std::vector<ResumedChoice> resumed = choices.state().resumed_choices();
  ASSERT_EQ(resumed.size(), 3u);
  EXPECT_EQ(resumed[0].tokens.size(), 2u);
  EXPECT_FALSE(resumed[0].has_ended);
  EXPECT_TRUE(resumed[1].has_ended);
  EXPECT_TRUE(resumed[1].tokens.empty());
  EXPECT_TRUE(resumed[2].tokens.empty());
  EXPECT_FALSE(resumed[2].has_ended);
  EXPECT_EQ(choices.state().NextWakeup(), absl::InfiniteDuration());
  choices.Text(0, "c", Finish::kLength);
  EXPECT_EQ(choices.state().NextWakeup(), absl::InfiniteDuration()) << "choice 2 runs";
  choices.Text(2, "d", Finish::kLength);
  EXPECT_LT(choices.state().NextWakeup(), absl::InfiniteDuration()) << "Ended is due";
  choices.Take(choices.state().OnEnded(absl::OkStatus(), false));
  EXPECT_TRUE(choices.error.ok()) << choices.error;
  EXPECT_EQ(choices.num_releases, 1);
}

TEST(RequestChoicesTest, BetweenTwoAttemptsEveryEndReleasesAtOnceAndCancelsNothing) {
  for (const bool client_leaves : {true, false}) {
    Choices choices(2);
    choices.Text(0, "ab");
    choices.state().EndAttempt();
    choices.Take(client_leaves ? choices.state().OnClientLeft(absl::Seconds(5))
                               : choices.state().OnGiveUp(absl::UnavailableError("nobody"), absl::Seconds(5)));
    EXPECT_EQ(choices.num_cancels, 0);
    EXPECT_EQ(choices.num_releases, 1);
    EXPECT_EQ(choices.error.ok(), client_leaves);
    EXPECT_FALSE(choices.state().may_go_on());
    EXPECT_TRUE(choices.state().is_released());
  }
}

}  // namespace
}  // namespace tandem::router
