// What the router compiles from random schemas, run as the workers run it: every answer that the masks let through is
// JSON and is read back by the same constraint; an answer damaged at one byte is refused, or is another valid one, as a
// matcher that keeps every stack by itself says too. The values are judged by a validator that is not ours in
// tests/e2e/structured_output_test.py.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "router/chat/ordered_json.h"
#include "tests/constraints/constraint_probe.h"
#include "tests/constraints/random_schema.h"

namespace tandem::testing {
namespace {

TEST(StructuredOutputTest, RandomAnswersAreJsonAndAreReadBack) {
  int num_answers = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const std::string schema = RandomSchema(seed).Write(3);
    const auto constraint = CompileSchema(schema);
    ASSERT_TRUE(constraint.ok()) << schema << ": " << constraint.status();
    ConstraintProbe probe(**constraint);
    for (uint32_t i = 0; i < 4; ++i) {
      const auto written = probe.Write(i, 40, 4000);
      if (!written.has_value()) continue;
      ++num_answers;
      EXPECT_TRUE(router::ParseOrderedJson(written->text).ok()) << schema << "\n" << written->text;
      EXPECT_TRUE(probe.Accepts(written->text)) << written->text;
      EXPECT_FALSE(probe.Accepts(written->text + "x"));
      EXPECT_FALSE(probe.Accepts(written->text.substr(0, written->text.size() / 2) + "\x01"));
      EXPECT_TRUE(probe.AcceptsFront(written->text.substr(0, written->text.size() / 2)));
    }
  }
  EXPECT_GT(num_answers, 250);
}

// Whatever is accepted is JSON, also where it comes from damage.
TEST(StructuredOutputTest, DamagedAnswersAreRefusedOrStillJson) {
  std::mt19937 random(7);
  int num_refused = 0, num_accepted = 0;
  for (uint32_t seed = 100; seed < 140; ++seed) {
    const auto constraint = CompileSchema(RandomSchema(seed).Write(2));
    ASSERT_TRUE(constraint.ok());
    ConstraintProbe probe(**constraint);
    const auto written = probe.Write(seed, 30, 4000);
    if (!written.has_value() || written->text.empty()) continue;
    for (int i = 0; i < 40; ++i) {
      std::string damaged = written->text;
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged.erase(at, 1);
          break;
        case 1:
          damaged.insert(at, 1, static_cast<char>(random() % 256));
          break;
        default:
          damaged[at] = static_cast<char>(random() % 256);
      }
      const bool accepts = probe.Accepts(damaged);
      (accepts ? num_accepted : num_refused) += 1;
      EXPECT_TRUE(!accepts || router::ParseOrderedJson(damaged).ok()) << damaged;
    }
  }
  EXPECT_GT(num_refused, 300);
  EXPECT_GT(num_accepted, 50);
}

TEST(StructuredOutputTest, AnyJsonObjectIsBoundedInDepth) {
  const auto constraint = CompileSchema(R"({"type":"object"})");
  ASSERT_TRUE(constraint.ok());
  ConstraintProbe probe(**constraint);
  const auto nested = [](int depth) {
    std::string text = "{\"a\":", close = "}";
    for (int i = 1; i < depth; ++i) text += "[", close = "]" + close;
    return text + "1" + close;
  };
  EXPECT_TRUE(probe.Accepts(nested(50)));
  EXPECT_TRUE(probe.Accepts(nested(90)));
  EXPECT_FALSE(probe.AcceptsFront(nested(128)));
}

}  // namespace
}  // namespace tandem::testing
