// What the workers are asked for each form of a prompt, and what is refused before anybody is asked.
#include "router/completion_preparation.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "router/constraint_compilation.h"
#include "router/openai/api_error.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

using B = ByteTokenizer;

class CompletionPreparationTest : public testing::Test {
 protected:
  CompletionPreparationTest() {
    context_.tokenizer = &tokenizer_;
    context_.facts.vocab_size = B::kNumIds;
    context_.facts.context_length = 20;
    context_.facts.bos_token_id = B::kBos;
    context_.facts.eos_token_ids = {B::kEos};
    context_.served_model_name = "m";
    context_.context_length = 20;
  }
  absl::StatusOr<PreparedRequest> Prepare(const std::string& prompt, const std::string& members = "") {
    return PrepareCompletion(
        absl::StrCat(R"({"model":"m","prompt":)", prompt, members.empty() ? "" : ",", members, "}"), context_);
  }
  std::vector<TokenId> Prompt(const std::string& prompt, const std::string& members = "") {
    const absl::StatusOr<PreparedRequest> prepared = Prepare(prompt, members);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? prepared->orders.at(0).prompt : std::vector<TokenId>();
  }
  ByteTokenizer tokenizer_;
  ModelContext context_;
};

TEST_F(CompletionPreparationTest, TextGetsOneBeginningOfSentenceAndItsMarksAreHonoured) {
  EXPECT_EQ(Prompt(R"("hi")"), (std::vector<TokenId>{B::kBos, 'h', 'i'}));
  EXPECT_EQ(Prompt(R"("")"), (std::vector<TokenId>{B::kBos}));
  EXPECT_EQ(Prompt(R"("<｜begin▁of▁sentence｜><｜User｜>h")"), (std::vector<TokenId>{B::kBos, B::kUser, 'h'}));
  EXPECT_EQ(Prompt(R"("hi")", R"("add_special_tokens":false)"), (std::vector<TokenId>{'h', 'i'}));
  context_.facts.bos_token_id.reset();
  EXPECT_EQ(Prompt(R"("hi")"), (std::vector<TokenId>{'h', 'i'}));
}

TEST_F(CompletionPreparationTest, IdsAreTakenAsTheyAre) {
  EXPECT_EQ(Prompt("[104,257,262]"), (std::vector<TokenId>{104, 257, 262}));
}

TEST_F(CompletionPreparationTest, EachPromptIsAnOrderOfItsOwn) {
  const PreparedRequest prepared = Prepare(R"(["a","bc"])", R"("n":3,"seed":5)").value();
  ASSERT_EQ(prepared.orders.size(), 2u);
  EXPECT_EQ(prepared.orders[0].prompt, (std::vector<TokenId>{B::kBos, 'a'}));
  EXPECT_EQ(prepared.orders[1].prompt, (std::vector<TokenId>{B::kBos, 'b', 'c'}));
  for (const GenerateOrder& order : prepared.orders) {
    EXPECT_EQ(order.num_choices, 3u);
    EXPECT_EQ(order.seed, 5u) << "a prompt among others is answered as it would be alone";
    EXPECT_EQ(order.max_new_tokens, 16u);
  }
  const PreparedRequest unseeded = Prepare(R"(["a","a"])").value();
  EXPECT_NE(unseeded.orders[0].seed, unseeded.orders[1].seed);
}

TEST_F(CompletionPreparationTest, MaxTokensIsCutToTheContextForEachPrompt) {
  const PreparedRequest prepared = Prepare(R"(["","1234567890"])").value();
  EXPECT_EQ(prepared.orders[0].max_new_tokens, 16u);
  EXPECT_EQ(prepared.orders[1].max_new_tokens, 9u);
}

TEST_F(CompletionPreparationTest, EchoIsThePromptsText) {
  const auto text_of = [](const PreparedRequest& prepared) {
    return prepared.make_format({"i", 0, "m"})->WholeBody(std::vector<WholeChoice>(1), {});
  };
  EXPECT_TRUE(absl::StrContains(text_of(Prepare(R"("hi")", R"("echo":true)").value()), R"("text":"hi")"));
  EXPECT_TRUE(absl::StrContains(text_of(Prepare("[104,105,195]", R"("echo":true)").value()), "\"text\":\"hi\uFFFD\""));
  EXPECT_TRUE(absl::StrContains(text_of(Prepare(R"("hi")").value()), R"("text":"")"));
}

TEST_F(CompletionPreparationTest, FaultsNameThePrompt) {
  const struct {
    std::string prompt;
    std::string members;
    std::string message;
  } kCases[] = {
      {"[1,263]", "", "prompt[1]: is 263, the vocabulary has 263 ids"},
      {"[[1],[2,300]]", "", "prompt[1][1]: is 300, the vocabulary has 263 ids"},
      {R"("")", R"("add_special_tokens":false)", "prompt: has no tokens, must have at least one"},
      {R"(["a",""])", R"("add_special_tokens":false)", "prompt[1]: has no tokens, must have at least one"},
      {R"(["a","12345678901234567890"])", "",
       "prompt[1]: the prompt has 21 tokens; the context holds 20, of which at least 1 is the answer's"},
  };
  for (const auto& test_case : kCases) {
    const absl::Status status = Prepare(test_case.prompt, test_case.members).status();
    EXPECT_EQ(status.message(), test_case.message);
    EXPECT_EQ(HttpStatusOf(status), 400);
  }
}

TEST_F(CompletionPreparationTest, PromptsTimesChoicesAreBounded) {
  context_.choices_max = 6;
  EXPECT_TRUE(Prepare(R"(["a","b"])", R"("n":3)").ok());
  EXPECT_EQ(Prepare(R"(["a","b"])", R"("n":4)").status().message(),
            "n: is 4 for 2 prompts; one request may have at most 6 answers");
  EXPECT_EQ(Prepare(R"(["a","b","c","d","e","f","g"])").status().message(),
            "prompt: must have at most 6 prompts, got 7");
}

TEST_F(CompletionPreparationTest, EveryPromptIsHeldToTheForm) {
  for (const char* form : {R"("regex":"a*")", R"("ebnf":"root ::= \"a\"*")", R"("json_schema":"{\"type\":\"null\"}")",
                           R"("response_format":{"type":"json_object"})"}) {
    PreparedRequest prepared = Prepare(R"(["a","b"])", form).value();
    EXPECT_EQ(prepared.orders[0].constraint, nullptr) << "compiled apart";
    ASSERT_TRUE(prepared.constraint.has_value()) << form;
    ASSERT_TRUE(CompileForm(context_, &prepared).ok()) << form;
    EXPECT_NE(prepared.orders[0].constraint, nullptr);
    EXPECT_EQ(prepared.orders[0].constraint, prepared.orders[1].constraint);
  }
  PreparedRequest free = Prepare(R"("a")").value();
  ASSERT_TRUE(CompileForm(context_, &free).ok());
  EXPECT_EQ(free.orders[0].constraint, nullptr);
  EXPECT_EQ(Prepare(R"("a")", R"("regex":"a","ignore_eos":true)").status().message(),
            "ignore_eos: must be false where regex says how the answer ends");
  EXPECT_EQ(Prepare(R"("a")", R"("regex":"a","response_format":{"type":"json_object"})").status().message(),
            "regex: is allowed only where response_format is not sent");
}

TEST_F(CompletionPreparationTest, UnknownModelIs404) {
  EXPECT_EQ(HttpStatusOf(PrepareCompletion(R"({"model":"x","prompt":"a"})", context_).status()), 404);
}

}  // namespace
}  // namespace tandem::router
