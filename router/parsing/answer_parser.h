// Tells the streamed text of an answer apart: reasoning, content, tool calls.
//
// One implementation for each way in which a model writes calls, chosen by MakeAnswerParser(). Text goes in as it
// comes, what it makes certain comes out at once: a call's name as soon as its opening tag is complete, its arguments
// as they are written. Nothing is lost, markup never reaches reasoning or content, and the result does not depend on
// where the text was cut. Held back is at most an unfinished tag and the line feeds before it. Tested by
// dsml_parser_test.cc and tool_mark_parser_test.cc: every split of every case, against a second parser that sees the
// whole text.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "router/parsing/answer_delta.h"
#include "router/parsing/reasoning_splitter.h"
#include "router/parsing/tool_catalog.h"

namespace tandem::router {

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  // text: whole characters of valid UTF-8. Nothing more is read once is_complete().
  virtual void Append(absl::string_view text, AnswerDelta* delta) = 0;

  // The text has ended. is_cut: not by the model's own will (length, a stop string), so a call that is not complete
  // stays so, its arguments being no JSON; a call that the model itself left open is closed.
  virtual void Finish(bool is_cut, AnswerDelta* delta) = 0;

  virtual bool is_reasoning() const = 0;
  // The request allows one call and it is complete: the answer may end here.
  virtual bool is_complete() const = 0;
  // Calls begun, and whether the last of them was left incomplete by a cut.
  virtual int num_calls() const = 0;
  virtual bool has_incomplete_call() const = 0;
};

// How a model writes its calls.
enum class CallMarkup {
  kNone,       // the text is never searched for calls
  kDsml,       // dsml_parser.h
  kToolMarks,  // tool_mark_parser.h
};

struct AnswerRules {
  CallMarkup markup = CallMarkup::kNone;
  // The tools of the request; nullptr = none. Shared by the choices of a request.
  std::shared_ptr<const ToolCatalog> catalog;
  bool shows_calls = true;      // false: calls are read and dropped
  bool is_single_call = false;  // the answer ends with its first call
  // The model cannot err in its markup (router/constraints): what stands without marks is text.
  bool is_markup_exact = false;
};

std::unique_ptr<AnswerParser> MakeAnswerParser(ReasoningSplitter::State start, const AnswerRules& rules);

}  // namespace tandem::router
