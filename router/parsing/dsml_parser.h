// Reads DeepSeek-V3.2's answers: reasoning up to `</think>`, content, and calls in DSML (dsml_tag.h).
//
//   \n\n<｜DSML｜function_calls>
//   <｜DSML｜invoke name="f">
//   <｜DSML｜parameter name="k" string="true">v</｜DSML｜parameter>
//   </｜DSML｜invoke>
//   </｜DSML｜function_calls>
//
// Arguments are written as Python would dump them. A value with string="true" is text as it stands, all its white space
// too, and leaves as it comes; any other must be JSON, is kept until it is whole, leaves as it was written, and as a
// string where it is no JSON.
//
// Read as well, since models err:
// - an invoke without function_calls around it; a call inside the reasoning, which goes on behind it; text between or
//   behind calls, which is content;
// - ends that are missing: a value ends at the next marked tag of any kind (less one line feed before it), a call at
// the
//   next call;
// - a JSON object in place of parameters; arguments wrapped once more as {"arguments": {..}} or {"input": {..}}, where
//   the tool's schema has no such parameter and has all those inside;
// - tags without the mark ｜DSML｜: between calls and parameters always, as an end of a marked value where a marked tag
//   or the end of the text follows, as the start of a call in content where they name a tool of the request; never in
//   reasoning.
// A call without a readable name is dropped with what is in it; of two parameters of one name the first counts. A tag
// that the end of the text cuts is dropped, not shown.
//
// A stream keeps the unfinished tag, at most kDsmlTagBytesMax, and the value that is not text. Time is linear in the
// text for all but such tags.
// Tested by dsml_parser_test.cc and dsml_parser_fuzz_test.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "router/parsing/answer_parser.h"
#include "router/parsing/call_writer.h"
#include "router/parsing/dsml_tag.h"

namespace tandem::router {

class DsmlParser final : public AnswerParser {
 public:
  DsmlParser(ReasoningSplitter::State start, const AnswerRules& rules);

  void Append(absl::string_view text, AnswerDelta* delta) override;
  void Finish(bool is_cut, AnswerDelta* delta) override;
  bool is_reasoning() const override { return is_reasoning_; }
  bool is_complete() const override { return writer_.is_full(); }
  int num_calls() const override { return writer_.num_begun(); }
  bool has_incomplete_call() const override { return writer_.has_incomplete(); }

 private:
  enum class Place { kText, kCall, kValue };  // outside of calls; between a call's parameters; inside a value

  // How a value becomes JSON.
  enum class ValueForm {
    kText,      // string="true"
    kJson,      // string="false"
    kAny,       // it does not say: JSON if it is
    kWrapped,   // a parameter that may hold all the arguments
    kWholeBody  // a JSON object in place of the parameters
  };

  struct Value {
    std::string key;
    ValueForm form = ValueForm::kText;
    bool is_text = false;  // string="true" of a kWrapped value
    bool is_bare = false;  // its tag has no mark
    bool is_dropped = false;
    std::string kept;  // of all forms but kText
  };

  // Each reads what it can of rest() and says whether to go on: false where more text must come first.
  bool StepText();
  bool StepCall();
  bool StepValue();

  void TakeTagInText(const DsmlTag& tag);
  TagMatch MatchOpening(absl::string_view text, DsmlTag* tag) const;
  TagMatch MatchEndOfValue(absl::string_view text, DsmlTag* tag) const;
  void BeginCall(const DsmlTag& tag);
  void EndCall();
  void BeginValue(const DsmlTag& tag);
  void AppendToValue(absl::string_view text);
  void EndValue();
  void WriteKey(absl::string_view key);
  // A parameter that is no text: as JSON if it may be and is, else as a string.
  void WriteParameter(const Value& value);
  // A value that the end of a cut text left unfinished: as it stands.
  void WriteCut(const Value& value);
  // The parameter that stood alone: all the arguments, or one like others.
  void WriteWrapped();
  void WriteWholeBody(const std::string& body);
  // Whether a parameter of this name may hold all the arguments: the tool has none such.
  bool MayWrap(absl::string_view key) const;
  bool FitsTool(absl::string_view json_object) const;

  void Show(absl::string_view text);
  void WriteArguments(absl::string_view text) { writer_.AppendArguments(text, delta_); }
  absl::string_view rest() const { return absl::string_view(pending_).substr(at_); }
  void Run(AnswerDelta* delta);

  const std::shared_ptr<const ToolCatalog> catalog_;
  CallWriter writer_;
  const bool is_markup_exact_;
  bool is_reasoning_;
  Place place_ = Place::kText;
  bool is_in_section_ = false;  // between function_calls and its end
  bool skips_space_ = false;    // kText: white space behind a tag is no content
  // kCall and kValue:
  bool is_call_bare_ = false;
  bool is_call_dropped_ = false;
  const Tool* tool_ = nullptr;     // in the catalogue, or nullptr
  std::vector<std::string> keys_;  // of the call so far
  bool is_call_fresh_ = false;     // nothing but white space has come yet
  bool has_whole_body_ = false;
  Value value_;
  std::optional<Value> wrapped_;  // complete, but not written: it may hold all the arguments

  std::string pending_;  // text not read yet: from at_ on
  size_t at_ = 0;
  bool is_end_ = false;
  bool is_cut_ = false;
  AnswerDelta* delta_ = nullptr;  // during Run
};

}  // namespace tandem::router
