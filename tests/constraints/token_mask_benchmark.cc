// What masks cost: microseconds of one thread for each token of an answer, first with nothing kept, then again.
//   token_mask_benchmark TOKENIZER_JSON VOCAB_SIZE
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "model/token_mask/token_bytes.h"
#include "router/tokenizer/tokenizer.h"
#include "router/tokenizer/utf8.h"
#include "tests/constraints/constraint_probe.h"

namespace tandem {
namespace {

double ThreadMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Case {
  const char* name;
  router::AnswerConstraint answer;
};

router::AnswerConstraint Schema(const char* schema) {
  return {.form = router::AnswerForm{.schema = testing::Json(schema), .field = "schema"}};
}

router::AnswerConstraint Call(const char* parameters) {
  router::AnswerConstraint answer;
  answer.markup = router::CallMarkup::kToolMarks;
  answer.calls = router::AnswerConstraint::Calls::kRequired;
  router::ConstrainedTool& tool = answer.tools.emplace_back();
  tool.name = "get_weather";
  tool.parameters = testing::Json(parameters);
  tool.has_parameters = true;
  tool.field = "tools";
  return answer;
}

using Kind = router::AnswerForm::Kind;

router::AnswerConstraint Form(Kind kind, std::string text) {
  return {.form = router::AnswerForm{.kind = kind, .text = std::move(text), .field = "form"}};
}

// As many characters may come first, each with a state of its own behind it.
std::string LettersApart(uint32_t count) {
  std::string regex;
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0) regex += '|';
    router::AppendUtf8(0x4E00 + i, &regex);
    regex += 'a' + static_cast<char>(i % 26);
  }
  return regex;
}

// What takes the most work before it is refused.
void PrintRefusals() {
  for (const char* regex : {"[ab]*a[ab]{30}", "(a?b?c?d?e?f?g?h?){400}", "([^a]*b|[^b]*c|[^c]*d|[^d]*e|[^e]*f){1,200}",
                            "(\\w+\\s?){1,2000}", "(x{0,5000}y?){9}", "(([ab]{0,99}c?){0,9}d?){9}"}) {
    const double begin = ThreadMicroseconds();
    const auto compiled = testing::CompileAnswer(Form(Kind::kRegex, regex));
    std::printf("%-60s %s, %.0f ms\n", regex, compiled.ok() ? "compiled" : "refused",
                (ThreadMicroseconds() - begin) / 1e3);
  }
}

std::vector<Case> Cases() {
  constexpr char kParameters[] =
      R"({"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["celsius","fahrenheit"]},
          "days":{"type":"integer","minimum":1,"maximum":14},"tags":{"type":"array","items":{"type":"string"}}},
          "required":["city","tags"]})";
  return {{"json_object", Schema(R"({"type":"object"})")},
          {"schema", Schema(kParameters)},
          {"maxLength 200", Schema(R"({"type":"string","maxLength":200})")},
          {"pattern", Schema(R"({"type":"string","pattern":"^([a-z]+ ?){1,20}$"})")},
          {"required call", Call(kParameters)},
          {"regex", Form(Kind::kRegex, R"((\w+@\w+\.(com|org)(, )?){1,5})")},
          {"ebnf", Form(Kind::kEbnf,
                        "root ::= expr\nexpr ::= term ((\"+\" | \"-\") term)*\n"
                        "term ::= [0-9]+ | \"(\" expr \")\"")},
          {"8,000 letters", Form(Kind::kRegex, LettersApart(8000))}};
}

// Tokens that are likely in text are drawn more often than marks and single bytes: uniform among ten random allowed
// tokens, the longest of them.
void Run(const Case& of, const router::Tokenizer& tokenizer,
         const std::shared_ptr<const model::Vocabulary>& vocabulary) {
  const double compile_begin = ThreadMicroseconds();
  static constexpr uint32_t kEnd[] = {1};
  const auto compiled = router::CompileConstraint(of.answer, tokenizer, kEnd);
  const double compile_us = ThreadMicroseconds() - compile_begin;
  TANDEM_CHECK(compiled.ok(), "a benchmark's schema");
  worker_shell::AnswerConstraints constraints(vocabulary);
  const double prepare_begin = ThreadMicroseconds();
  const auto constraint = constraints.Prepare(**compiled);
  const double prepare_us = ThreadMicroseconds() - prepare_begin;
  TANDEM_CHECK(constraint.ok(), "a worker takes it");
  std::printf("%-14s %6d states %8.0f us to compile %7.0f us to prepare", of.name, (*compiled)->states_size(),
              compile_us, prepare_us);
  for (int round = 0; round < 2; ++round) {
    std::vector<double> mask_us;
    double accept_us = 0;
    for (uint32_t seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      model::TokenMatcher matcher(*constraint);
      for (int step = 0; step < 100 && !matcher.has_ended(); ++step) {
        double begin = ThreadMicroseconds();
        const model::TokenMask& mask = constraints.MaskAfter(matcher);
        mask_us.push_back(ThreadMicroseconds() - begin);
        std::vector<int32_t> allowed;
        for (int32_t token = 0; token < vocabulary->size(); ++token) {
          if (mask.Allows(token)) allowed.push_back(token);
        }
        int32_t drawn = allowed[random() % allowed.size()];
        for (int i = 0; i < 9; ++i) {
          const int32_t other = allowed[random() % allowed.size()];
          if (vocabulary->bytes(other).size() > vocabulary->bytes(drawn).size()) drawn = other;
        }
        begin = ThreadMicroseconds();
        TANDEM_CHECK(matcher.Accept(drawn).ok(), "what is allowed");
        accept_us += ThreadMicroseconds() - begin;
      }
    }
    std::sort(mask_us.begin(), mask_us.end());
    double sum = 0;
    for (const double us : mask_us) sum += us;
    std::printf(" | %s mean %7.1f p50 %7.1f p99 %8.1f max %8.1f accept %.1f", round == 0 ? "first" : "again",
                sum / static_cast<double>(mask_us.size()), mask_us[mask_us.size() / 2],
                mask_us[mask_us.size() * 99 / 100], mask_us.back(), accept_us / static_cast<double>(mask_us.size()));
  }
  std::printf("\n");
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  int vocab_size = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &vocab_size)) {
    std::fprintf(stderr, "usage: token_mask_benchmark TOKENIZER_JSON VOCAB_SIZE\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string json(std::istreambuf_iterator<char>(file), {});
  double begin = tandem::ThreadMicroseconds();
  auto bytes = tandem::model::ParseTokenBytes(json, vocab_size);
  if (!bytes.ok()) {
    std::fprintf(stderr, "%s\n", bytes.status().ToString().c_str());
    return 1;
  }
  const double parsed_us = tandem::ThreadMicroseconds() - begin;
  begin = tandem::ThreadMicroseconds();
  const auto vocabulary = std::make_shared<const tandem::model::Vocabulary>(*std::move(bytes));
  std::printf("%d tokens: %.0f ms to read, %.0f ms to lay out; nodes: plain %zu, rest %zu\n", vocab_size,
              parsed_us / 1e3, (tandem::ThreadMicroseconds() - begin) / 1e3, vocabulary->plain().nodes().size(),
              vocabulary->rest().nodes().size());
  const auto tokenizer = tandem::router::Tokenizer::Parse(json);
  if (!tokenizer.ok()) return 1;
  tandem::PrintRefusals();
  for (const tandem::Case& of : tandem::Cases()) tandem::Run(of, **tokenizer, vocabulary);
  return 0;
}
