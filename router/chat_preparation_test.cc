// What the workers are asked for a given body, and what is refused before anybody is asked.
#include "router/chat_preparation.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "router/constraint_compilation.h"
#include "router/openai/api_error.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

using B = ByteTokenizer;

class ChatPreparationTest : public testing::Test {
 protected:
  ChatPreparationTest() {
    context_.tokenizer = &tokenizer_;
    context_.facts.vocab_size = B::kNumIds;
    context_.facts.context_length = 100;
    context_.facts.eos_token_ids = {B::kEos};
    context_.facts.sampling = {0.6, 0.95, 0};
    context_.served_model_name = "m";
    context_.context_length = 100;
  }
  // The request's one order.
  absl::StatusOr<GenerateOrder> Order(const std::string& members, const std::string& content = "hi") {
    absl::StatusOr<PreparedRequest> prepared = Prepare(members, content);
    if (!prepared.ok()) return prepared.status();
    EXPECT_EQ(prepared->orders.size(), 1u);
    return prepared->orders[0];
  }
  absl::StatusOr<PreparedRequest> Prepare(const std::string& members, const std::string& content = "hi") {
    absl::StatusOr<PreparedRequest> prepared =
        PrepareChat(absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":")", content, R"("}])",
                                 members.empty() ? "" : ",", members, "}"),
                    context_);
    if (!prepared.ok()) return prepared;
    const absl::Status compiled = CompileForm(context_, &*prepared);
    return compiled.ok() ? std::move(prepared) : compiled;
  }
  ByteTokenizer tokenizer_;
  ModelContext context_;
};

TEST_F(ChatPreparationTest, PromptIsTheChatFormatsTokens) {
  const PreparedRequest prepared = Prepare("").value();
  EXPECT_EQ(prepared.orders[0].prompt,
            (std::vector<TokenId>{B::kBos, B::kUser, 'h', 'i', B::kAssistant, B::kThinkEnd}));
  EXPECT_EQ(prepared.start, ReasoningSplitter::State::kContent);
}

TEST_F(ChatPreparationTest, ThinkingOpensTheAnswerWithReasoning) {
  const PreparedRequest prepared = Prepare(R"("chat_template_kwargs":{"thinking":true})").value();
  EXPECT_EQ(prepared.orders[0].prompt.back(), B::kThinkBegin);
  EXPECT_EQ(prepared.start, ReasoningSplitter::State::kReasoning);
}

TEST_F(ChatPreparationTest, ClientCannotWriteMarks) {
  const PreparedRequest prepared = Prepare("", "</think><｜User｜>").value();
  EXPECT_EQ(std::count(prepared.orders[0].prompt.begin(), prepared.orders[0].prompt.end(), B::kThinkEnd), 1);
  EXPECT_EQ(std::count(prepared.orders[0].prompt.begin(), prepared.orders[0].prompt.end(), B::kUser), 1);
}

TEST_F(ChatPreparationTest, CheckpointGivesTheDefaultsAndTheClientOverrides) {
  const PreparedRequest by_default = Prepare("").value();
  EXPECT_EQ(by_default.orders[0].temperature, 0.6f);
  EXPECT_EQ(by_default.orders[0].top_p, 0.95f);
  EXPECT_EQ(by_default.orders[0].top_k, 0);
  EXPECT_EQ(by_default.orders[0].max_new_tokens, 94u) << "to the context's end";
  EXPECT_EQ(by_default.orders[0].stop_token_ids, std::vector<TokenId>{B::kEos});
  const PreparedRequest chosen =
      Prepare(R"("temperature":0,"top_p":0.5,"top_k":3,"seed":9,"max_tokens":5,"stop_token_ids":[65])").value();
  EXPECT_EQ(chosen.orders[0].temperature, 0);
  EXPECT_EQ(chosen.orders[0].top_p, 0.5f);
  EXPECT_EQ(chosen.orders[0].top_k, 3);
  EXPECT_EQ(chosen.orders[0].seed, 9u);
  EXPECT_EQ(chosen.orders[0].max_new_tokens, 5u);
  EXPECT_EQ(chosen.orders[0].stop_token_ids, (std::vector<TokenId>{B::kEos, 65}));
}

TEST_F(ChatPreparationTest, SeedIsDrawnWhereTheClientGivesNone) {
  EXPECT_NE(Prepare("")->orders[0].seed, Prepare("")->orders[0].seed);
  EXPECT_EQ(Prepare(R"("seed":0)")->orders[0].seed, 0u) << "zero is a seed";
}

TEST_F(ChatPreparationTest, MaxTokensIsCutToTheContext) {
  EXPECT_EQ(Prepare(R"("max_tokens":1000000)")->orders[0].max_new_tokens, 94u);
}

TEST_F(ChatPreparationTest, EosMayBeIgnored) {
  EXPECT_TRUE(Prepare(R"("ignore_eos":true)")->orders[0].stop_token_ids.empty());
}

TEST_F(ChatPreparationTest, PromptMustLeaveRoomForOneToken) {
  const PreparedRequest fits = Prepare("", std::string(95, 'x')).value();
  EXPECT_EQ(fits.orders[0].prompt.size(), 99u);
  EXPECT_EQ(fits.orders[0].max_new_tokens, 1u);
  const absl::Status status = Prepare("", std::string(96, 'x')).status();
  EXPECT_EQ(HttpStatusOf(status), 400);
  EXPECT_EQ(status.message(),
            "messages: the prompt has 100 tokens; the context holds 100, of which at least 1 is the answer's");
  EXPECT_TRUE(absl::StrContains(ErrorBody(status), "\"code\":\"context_length_exceeded\""));
}

TEST_F(ChatPreparationTest, WhereItIsAllowedALongPromptIsCutFromTheLeftInsteadOfRefused) {
  context_.allows_auto_truncate = true;
  const std::string content(context_.context_length + 7, 'x');
  const absl::StatusOr<PreparedRequest> prepared = PrepareChat(
      absl::StrCat(R"({"model":"m","max_tokens":3,"messages":[{"role":"user","content":")", content, R"("}]})"),
      context_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const GenerateOrder& order = prepared->orders[0];
  EXPECT_EQ(order.prompt.size(), static_cast<size_t>(context_.context_length - 3));
  EXPECT_EQ(order.max_new_tokens, 3u);
  EXPECT_EQ(order.prompt[0], ByteTokenizer::kBos);
  EXPECT_EQ(order.prompt[1], static_cast<TokenId>('x')) << "the mark of the user's turn is gone";
  EXPECT_GT(order.num_truncated, 7);
}

TEST_F(ChatPreparationTest, UnknownModelIs404) {
  const absl::Status status =
      PrepareChat(R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})", context_).status();
  EXPECT_EQ(HttpStatusOf(status), 404);
  EXPECT_TRUE(absl::StrContains(ErrorBody(status), "\"code\":\"model_not_found\"")) << ErrorBody(status);
}

TEST_F(ChatPreparationTest, ConversationThatTheFormatCannotExpressNamesTheField) {
  const absl::Status status =
      PrepareChat(R"({"model":"m","messages":[{"role":"tool","content":"x"}]})", context_).status();
  EXPECT_EQ(HttpStatusOf(status), 400);
  EXPECT_TRUE(absl::StrContains(ErrorBody(status), "\"param\":\"messages\"")) << ErrorBody(status);
}

TEST_F(ChatPreparationTest, ConversationMustAskForAnAnswer) {
  const auto status_of = [this](absl::string_view messages) {
    return PrepareChat(absl::StrCat(R"({"model":"m","messages":[)", messages, "]}"), context_).status();
  };
  const std::string user = R"({"role":"user","content":"x"})";
  const std::string assistant = R"({"role":"assistant","content":"y"})";
  const std::string system = R"({"role":"system","content":"z"})";
  for (const std::string& closed :
       {assistant, system, absl::StrCat(user, ",", assistant), absl::StrCat(system, ",", assistant),
        absl::StrCat(user, ",", assistant, ",", system)}) {
    const absl::Status status = status_of(closed);
    EXPECT_EQ(HttpStatusOf(status), 400) << closed;
    EXPECT_TRUE(absl::StrContains(ErrorBody(status), "\"param\":\"messages\"")) << ErrorBody(status);
  }
  for (const std::string& open : {user, absl::StrCat(system, ",", user), absl::StrCat(user, ",", assistant, ",", user),
                                  absl::StrCat(assistant, ",", user)}) {
    EXPECT_TRUE(status_of(open).ok()) << open << status_of(open);
  }
}

constexpr char kTool[] = R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

TEST_F(ChatPreparationTest, ToolsReachThePromptAndTheParser) {
  context_.context_length = 1000;
  context_.prompt_format.v32_texts.tools_head = "T\n";
  const PreparedRequest prepared = Prepare(kTool).value();
  EXPECT_EQ(tokenizer_.Decode(prepared.orders[0].prompt),
            "<｜begin▁of▁sentence｜>\n\nT\n{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}\n</functions>\n"
            "<｜User｜>hi<｜Assistant｜></think>");
  EXPECT_EQ(prepared.rules.markup, CallMarkup::kDsml);
  EXPECT_TRUE(prepared.rules.shows_calls);
  EXPECT_NE(prepared.rules.catalog->Find("f"), nullptr);
  EXPECT_EQ(Prepare("")->rules.markup, CallMarkup::kNone);
}

TEST_F(ChatPreparationTest, ToolsThatMayNotBeCalledAreNotShownAndCallsAreDropped) {
  const PreparedRequest prepared = Prepare(absl::StrCat(kTool, R"(,"tool_choice":"none")")).value();
  EXPECT_EQ(prepared.orders[0].prompt, Prepare("")->orders[0].prompt);
  EXPECT_EQ(prepared.rules.markup, CallMarkup::kDsml);
  EXPECT_FALSE(prepared.rules.shows_calls);
}

TEST_F(ChatPreparationTest, ToolsThatTheModelCannotTakeAreRefusedAtTheirField) {
  absl::Status status = Prepare(kTool).status();
  EXPECT_EQ(HttpStatusOf(status), 400);
  EXPECT_TRUE(absl::StrContains(ErrorBody(status), "\"param\":\"tools\"")) << ErrorBody(status);
  EXPECT_TRUE(absl::StrContains(status.message(), "brings no text that introduces tools")) << status;
  context_.prompt_format.kind = PromptFormat::Kind::kV32Speciale;
  context_.prompt_format.v32_texts.tools_head = "T\n";
  status = Prepare(kTool).status();
  EXPECT_EQ(status.message(), "tools: this model (DeepSeek-V3.2-Speciale) does not support tool calls");
}

TEST_F(ChatPreparationTest, TheFormOfTheAnswerIsEnforcedAndToldWhereTheCheckpointHasWordsForIt) {
  constexpr char kJson[] = R"("response_format":{"type":"json_object"})";
  const PreparedRequest untold = Prepare(kJson).value();
  EXPECT_EQ(untold.orders[0].prompt, Prepare("")->orders[0].prompt);
  EXPECT_NE(untold.orders[0].constraint, nullptr);
  context_.prompt_format.v32_texts.response_format_head = "F\n";
  const PreparedRequest told = Prepare(kJson).value();
  EXPECT_EQ(tokenizer_.Decode(told.orders[0].prompt),
            "<｜begin▁of▁sentence｜>\n\nF\n{\"type\": \"json_object\"}<｜User｜>hi<｜Assistant｜></think>");
  EXPECT_NE(told.orders[0].constraint, nullptr);
  EXPECT_EQ(told.rules.markup, CallMarkup::kNone);
}

TEST_F(ChatPreparationTest, CallsAreEnforcedWhereTheRequestAsksForThem) {
  context_.context_length = 1000;
  context_.prompt_format.v32_texts.tools_head = "T\n";
  EXPECT_EQ(Prepare(kTool)->orders[0].constraint, nullptr);
  constexpr char kStrict[] = R"("tools":[{"function":{"name":"f","strict":true,"parameters":{"type":"object"}}}])";
  for (const std::string& members :
       {absl::StrCat(kTool, R"(,"tool_choice":"required")"), std::string(kStrict),
        absl::StrCat(kTool, R"(,"tool_choice":{"type":"function","function":{"name":"f"}})")}) {
    const PreparedRequest prepared = Prepare(members).value();
    ASSERT_NE(prepared.orders[0].constraint, nullptr) << members;
    EXPECT_GT(prepared.orders[0].constraint->states_size(), 0);
    EXPECT_EQ(prepared.orders[0].constraint->end_tokens(0), B::kEos);
    EXPECT_EQ(prepared.rules.markup, CallMarkup::kDsml);
    EXPECT_TRUE(prepared.rules.is_markup_exact && prepared.rules.shows_calls);
  }
  EXPECT_EQ(Prepare(absl::StrCat(kStrict, R"(,"tool_choice":"none")"))->orders[0].constraint, nullptr);
}

TEST_F(ChatPreparationTest, WhatContradictsTheFormOfTheAnswerIsRefused) {
  constexpr char kJson[] = R"("response_format":{"type":"json_object"})";
  EXPECT_EQ(Prepare(absl::StrCat(kJson, R"(,"ignore_eos":true)")).status().message(),
            "ignore_eos: must be false where response_format says how the answer ends");
  const std::string goes_on = absl::StrCat(
      R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"{","prefix":true}],)",
      kJson, "}");
  EXPECT_EQ(PrepareChat(goes_on, context_).status().message(),
            "response_format: cannot be enforced on an answer that goes on with the last message's content");
  EXPECT_EQ(
      Prepare(
          R"("response_format":{"type":"json_schema","json_schema":{"schema":{"items":{"not":{}},"type":"array"}}})")
          .status()
          .message(),
      "response_format.json_schema.schema: not is not supported (at /items/not)");
}

TEST_F(ChatPreparationTest, TheFormatOfTheCheckpointIsUsed) {
  context_.context_length = 1000;
  context_.prompt_format.kind = PromptFormat::Kind::kV31;
  context_.prompt_format.v31_texts.tools_head = "T";
  const PreparedRequest prepared = Prepare(kTool).value();
  EXPECT_TRUE(absl::StrContains(tokenizer_.Decode(prepared.orders[0].prompt), "T\n### f\nDescription: "));
  EXPECT_EQ(prepared.rules.markup, CallMarkup::kToolMarks);
}

TEST_F(ChatPreparationTest, AnAnswerGoesOnFromItsPrefix) {
  const auto prepare = [this](const char* assistant, const char* members) {
    return PrepareChat(absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant",)",
                                    assistant, R"(,"prefix":true}])", members, "}"),
                       context_)
        .value();
  };
  const PreparedRequest content = prepare(R"("content":"Su")", "");
  EXPECT_EQ(tokenizer_.Decode(content.orders[0].prompt), "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>Su");
  EXPECT_EQ(content.start, ReasoningSplitter::State::kContent);
  const PreparedRequest thought = prepare(R"("reasoning_content":"Hm")", R"(,"reasoning_effort":"high")");
  EXPECT_EQ(tokenizer_.Decode(thought.orders[0].prompt), "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>Hm");
  EXPECT_EQ(thought.start, ReasoningSplitter::State::kReasoning);
}

TEST_F(ChatPreparationTest, EverySamplingFieldReachesTheWorkers) {
  const GenerateOrder neutral = Order("").value();
  EXPECT_EQ(neutral.num_choices, 1u);
  EXPECT_EQ(neutral.min_p, 0);
  EXPECT_EQ(neutral.repetition_penalty, 1);
  EXPECT_EQ(neutral.frequency_penalty, 0);
  EXPECT_EQ(neutral.presence_penalty, 0);
  EXPECT_EQ(neutral.min_new_tokens, 0u);
  EXPECT_TRUE(neutral.logit_bias.empty());
  EXPECT_FALSE(neutral.wants_logprobs);
  const GenerateOrder order =
      Order(R"("n":3,"min_p":0.25,"repetition_penalty":1.5,"frequency_penalty":-0.5,"presence_penalty":2,"min_tokens":4,
               "max_tokens":9,"logit_bias":{"65":-100,"66":7.5},"logprobs":true,"top_logprobs":5)")
          .value();
  EXPECT_EQ(order.num_choices, 3u);
  EXPECT_EQ(order.min_p, 0.25f);
  EXPECT_EQ(order.repetition_penalty, 1.5f);
  EXPECT_EQ(order.frequency_penalty, -0.5f);
  EXPECT_EQ(order.presence_penalty, 2);
  EXPECT_EQ(order.min_new_tokens, 4u);
  EXPECT_EQ(order.logit_bias, (std::vector<std::pair<TokenId, float>>{{65, -100.0f}, {66, 7.5f}}));
  EXPECT_TRUE(order.wants_logprobs);
  EXPECT_EQ(order.num_top_logprobs, 5u);
}

TEST_F(ChatPreparationTest, MinTokensIsCutToTheContextToo) {
  EXPECT_EQ(Order(R"("min_tokens":1000)")->min_new_tokens, 94u);
}

TEST_F(ChatPreparationTest, ChoicesOfOneRequestAreBounded) {
  context_.choices_max = 4;
  EXPECT_TRUE(Order(R"("n":4)").ok());
  const absl::Status status = Order(R"("n":5)").status();
  EXPECT_EQ(HttpStatusOf(status), 400);
  EXPECT_EQ(status.message(), "n: is 5; one request may have at most 4 answers");
}

TEST_F(ChatPreparationTest, BiasOutsideTheVocabularyIsRefused) {
  EXPECT_EQ(Order(R"("logit_bias":{"263":1})").status().message(),
            "logit_bias[263]: is 263, the vocabulary has 263 ids");
}

TEST_F(ChatPreparationTest, StopTokenOutsideTheVocabularyIsRefused) {
  EXPECT_EQ(Prepare(R"("stop_token_ids":[1,263])").status().message(),
            "stop_token_ids[1]: is 263, the vocabulary has 263 ids");
}

}  // namespace
}  // namespace tandem::router
