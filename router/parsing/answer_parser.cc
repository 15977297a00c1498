#include "router/parsing/answer_parser.h"

#include <utility>

#include "base/check.h"
#include "router/parsing/dsml_parser.h"
#include "router/parsing/tool_mark_parser.h"

namespace tandem::router {
namespace {

class PlainParser final : public AnswerParser {
 public:
  explicit PlainParser(ReasoningSplitter::State start) : splitter_(start) {}

  void Append(absl::string_view text, AnswerDelta* delta) override { splitter_.Append(text, delta); }
  void Finish(bool, AnswerDelta* delta) override { splitter_.Finish(delta); }
  bool is_reasoning() const override { return splitter_.state() == ReasoningSplitter::State::kReasoning; }
  bool is_complete() const override { return false; }
  int num_calls() const override { return 0; }
  bool has_incomplete_call() const override { return false; }

 private:
  ReasoningSplitter splitter_;
};

}  // namespace

std::unique_ptr<AnswerParser> MakeAnswerParser(ReasoningSplitter::State start, const AnswerRules& rules) {
  switch (rules.markup) {
    case CallMarkup::kNone:
      return std::make_unique<PlainParser>(start);
    case CallMarkup::kDsml:
      return std::make_unique<DsmlParser>(start, rules);
    case CallMarkup::kToolMarks:
      return std::make_unique<ToolMarkParser>(start, rules);
  }
  TANDEM_CHECK(false, "a markup outside its enum");
}

}  // namespace tandem::router
