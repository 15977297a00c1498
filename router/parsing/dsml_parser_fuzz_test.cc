// Input: a byte of switches (thinking, cut, one call, calls hidden), a byte that says how to cut, then the answer. The
// parser must give over the pieces what it gives over the whole, and put no marked tag into reasoning or content.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "router/parsing/answer_parser.h"

namespace {

using namespace tandem::router;

struct Answer {
  std::string reasoning, content, calls;
  bool operator==(const Answer&) const = default;
};

Answer Parse(uint8_t switches, const std::string& text, size_t length) {
  static const auto* const kCatalog =
      new std::shared_ptr<const ToolCatalog>(new ToolCatalog{{{"f", {{"x", false}, {"s", true}}}, {"g", {}}}});
  const AnswerRules rules = {.markup = CallMarkup::kDsml,
                             .catalog = *kCatalog,
                             .shows_calls = (switches & 8) == 0,
                             .is_single_call = (switches & 4) != 0};
  const auto start = switches & 1 ? ReasoningSplitter::State::kReasoning : ReasoningSplitter::State::kContent;
  const std::unique_ptr<AnswerParser> parser = MakeAnswerParser(start, rules);
  AnswerDelta delta;
  for (size_t at = 0; at < text.size(); at += length) parser->Append(text.substr(at, length), &delta);
  parser->Finish((switches & 2) != 0, &delta);
  Answer answer = {delta.reasoning, delta.content, ""};
  int index = -1;
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (!call.name.empty()) answer.calls += "\n" + call.name + " ";
    if (call.index < index || call.index > index + 1 || (call.index > index && call.name.empty())) std::abort();
    index = call.index;
    answer.calls += call.arguments;
  }
  if (index + 1 != parser->num_calls()) std::abort();
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  const Answer whole = Parse(bytes[0], text, text.size() + 1);
  if (Parse(bytes[0], text, 1 + bytes[1] % 16) != whole) std::abort();
  for (const std::string& shown : {whole.reasoning, whole.content}) {
    for (const char* tag : {"<｜DSML｜invoke>", "<｜DSML｜invoke name=", "</｜DSML｜invoke>", "</｜DSML｜parameter>"}) {
      if (absl::StrContains(shown, tag)) std::abort();
    }
  }
  return 0;
}
