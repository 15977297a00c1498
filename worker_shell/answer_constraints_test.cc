#include "worker_shell/answer_constraints.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

// One character, `c`.
proto::Constraint OneChar(char c) {
  proto::Constraint constraint;
  constraint.add_char_sets()->add_bounds(static_cast<uint32_t>(c));
  constraint.mutable_char_sets(0)->add_bounds(static_cast<uint32_t>(c));
  constraint.add_states()->add_chars(0);
  constraint.mutable_states(0)->add_chars(1);
  constraint.add_states()->set_is_accepting(true);
  constraint.add_end_tokens(0);
  return constraint;
}

std::shared_ptr<const model::Vocabulary> Letters() {
  std::vector<std::string> bytes = {""};
  for (char c = 'a'; c <= 'z'; ++c) bytes.emplace_back(1, c);
  return std::make_shared<const model::Vocabulary>(std::move(bytes));
}

TEST(AnswerConstraintsTest, EqualConstraintsAreOne) {
  AnswerConstraints constraints(Letters());
  const auto a = constraints.Prepare(OneChar('a'));
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(*a, *constraints.Prepare(OneChar('a')));
  EXPECT_NE(*a, *constraints.Prepare(OneChar('b')));
  const model::TokenMask& mask = constraints.MaskAfter(model::TokenMatcher(*a));
  EXPECT_EQ(mask.num_allowed(), 1);
  EXPECT_TRUE(mask.Allows(1));
}

TEST(AnswerConstraintsTest, KeepsTheLatestAndForgetsTheRest) {
  AnswerConstraints constraints(Letters());
  proto::Constraint first = OneChar('a');
  const auto kept = constraints.Prepare(first);
  for (size_t i = 0; i < AnswerConstraints::kKeptConstraints; ++i) {
    proto::Constraint other = OneChar('b');
    for (size_t j = 0; j <= i; ++j) other.add_states();
    ASSERT_TRUE(constraints.Prepare(other).ok());
  }
  EXPECT_NE(*kept, *constraints.Prepare(first));  // made anew; the old one still serves who holds it
  EXPECT_EQ(constraints.MaskAfter(model::TokenMatcher(*kept)).num_allowed(), 1);
}

TEST(AnswerConstraintsTest, RefusesByName) {
  AnswerConstraints constraints(Letters());
  proto::Constraint odd = OneChar('a');
  odd.mutable_states(0)->add_calls(1);
  EXPECT_EQ(std::string(constraints.Prepare(odd).status().message()), "constraint: numbers that come in pairs are odd");
  EXPECT_EQ(AnswerConstraints(nullptr).Prepare(OneChar('a')).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem::worker_shell
