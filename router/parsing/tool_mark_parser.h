// Reads the answers of V3.1-Terminus and V3.2-Exp: reasoning up to `</think>`, content, and calls between marks:
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
// The arguments are the model's own JSON text and leave as they come, unchanged; none at all become {}. Read as well,
// since models err: a call without tool▁calls around it, a call inside the reasoning, which goes on behind it, ends
// that are missing, a call without tool▁sep, text between or behind calls, which is content. A call without a name is
// dropped. Each mark is one token of the vocabulary, so what is a mark's front alone is text.
// Tested by tool_mark_parser_test.cc and tool_mark_parser_fuzz_test.cc.
#pragma once

#include <string>

#include "router/parsing/answer_parser.h"
#include "router/parsing/call_writer.h"

namespace tandem::router {

class ToolMarkParser final : public AnswerParser {
 public:
  ToolMarkParser(ReasoningSplitter::State start, const AnswerRules& rules);

  void Append(absl::string_view text, AnswerDelta* delta) override;
  void Finish(bool is_cut, AnswerDelta* delta) override;
  bool is_reasoning() const override { return is_reasoning_; }
  bool is_complete() const override { return writer_.is_full(); }
  int num_calls() const override { return writer_.num_begun(); }
  bool has_incomplete_call() const override { return writer_.has_incomplete(); }

 private:
  enum class Place { kText, kName, kArguments };
  enum class Mark { kNone, kReasoningEnd, kCallsBegin, kCallsEnd, kCallBegin, kCallEnd, kSeparator };

  void Run(AnswerDelta* delta);
  // Text of the current place, up to a mark.
  void TakeText(absl::string_view text, AnswerDelta* delta);
  void TakeMark(Mark mark, AnswerDelta* delta);
  void BeginCall(AnswerDelta* delta);
  void EndCall(AnswerDelta* delta);

  CallWriter writer_;
  bool is_reasoning_;
  Place place_ = Place::kText;
  bool skips_space_ = false;  // white space behind a mark is no content, and no part of the arguments
  bool is_call_dropped_ = false;
  bool has_arguments_ = false;
  std::string name_;     // kName: so far
  std::string pending_;  // the front of a mark, perhaps
  bool is_end_ = false;
};

}  // namespace tandem::router
