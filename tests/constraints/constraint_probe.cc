#include "tests/constraints/constraint_probe.h"

#include <random>
#include <utility>

#include "base/check.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::testing {
namespace {

using ::tandem::router::ByteTokenizer;

std::shared_ptr<const model::Vocabulary> ByteVocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.resize(ByteTokenizer::kNumIds);
  return std::make_shared<const model::Vocabulary>(std::move(bytes));
}

}  // namespace

ConstraintProbe::ConstraintProbe(const proto::Constraint& constraint) : constraints_(ByteVocabulary()) {
  auto prepared = constraints_.Prepare(constraint);
  TANDEM_CHECK(prepared.ok(), "workers take what the router compiles");
  constraint_ = *std::move(prepared);
}

std::optional<model::TokenMatcher> ConstraintProbe::Read(absl::string_view text) {
  return ReadTokens(*ByteTokenizer().Encode(text, router::Tokenizer::AddedTokens::kMatch));
}

std::optional<model::TokenMatcher> ConstraintProbe::ReadTokens(absl::Span<const router::TokenId> tokens) {
  model::TokenMatcher matcher(constraint_);
  for (const router::TokenId id : tokens) {
    if (!matcher.Accept(static_cast<int32_t>(id)).ok()) return std::nullopt;
  }
  return matcher;
}

bool ConstraintProbe::AcceptsBytes(absl::string_view text) {
  std::vector<router::TokenId> tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  const auto matcher = ReadTokens(tokens);
  return matcher.has_value() && matcher->may_end();
}

bool ConstraintProbe::Accepts(absl::string_view text) {
  const auto matcher = Read(text);
  return matcher.has_value() && matcher->may_end();
}

bool ConstraintProbe::AcceptsFront(absl::string_view text) { return Read(text).has_value(); }

std::optional<ConstraintProbe::Written> ConstraintProbe::Write(uint32_t seed, int num_tokens_soft, int num_tokens_max) {
  std::mt19937 random(seed);
  model::TokenMatcher matcher(constraint_);
  Written written;
  constexpr absl::string_view kEnders = "\"]}</";
  for (int step = 0; step < num_tokens_max; ++step) {
    const model::TokenMask& mask = constraints_.MaskAfter(matcher);
    std::vector<uint32_t> allowed, enders;
    for (uint32_t token = 0; token < ByteTokenizer::kNumIds; ++token) {
      if (!mask.Allows(static_cast<int32_t>(token))) continue;
      allowed.push_back(token);
      if (token >= 256 || kEnders.find(static_cast<char>(token)) != absl::string_view::npos) enders.push_back(token);
    }
    TANDEM_CHECK(!allowed.empty(), "no dead ends over a vocabulary with every byte");
    const bool ends = step >= num_tokens_soft && !enders.empty();
    const std::vector<uint32_t>& from = ends ? enders : allowed;
    const uint32_t token = from[random() % from.size()];
    TANDEM_CHECK(matcher.Accept(static_cast<int32_t>(token)).ok(), "what the mask allows is accepted");
    written.tokens.push_back(token);
    if (matcher.has_ended()) return written;
    const absl::string_view bytes = ByteTokenizer().TokenBytes(token);
    written.text.append(bytes.data(), bytes.size());
  }
  return std::nullopt;
}

router::OrderedJson Json(absl::string_view text) {
  absl::StatusOr<router::OrderedJson> value = router::ParseOrderedJson(text);
  TANDEM_CHECK(value.ok(), "a test's JSON");
  return *std::move(value);
}

absl::StatusOr<std::shared_ptr<const proto::Constraint>> CompileAnswer(const router::AnswerConstraint& answer) {
  static constexpr uint32_t kEnd[] = {ByteTokenizer::kEos};
  return router::CompileConstraint(answer, ByteTokenizer(), kEnd);
}

absl::StatusOr<std::shared_ptr<const proto::Constraint>> CompileSchema(absl::string_view schema) {
  return CompileAnswer({.form = router::AnswerForm{.schema = Json(schema), .field = "schema"}});
}

}  // namespace tandem::testing
