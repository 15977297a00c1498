#include "router/parsing/dsml_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/chat/ordered_json.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kReasoningEnd = "</think>";
constexpr absl::string_view kSpace = " \t\n\r";
constexpr size_t kLineFeedsBeforeCalls = 2;
constexpr size_t kBareGapMax = 8;  // white space between a bare function_calls and its first invoke

bool IsObject(absl::string_view json) {
  const absl::StatusOr<OrderedJson> value = ParseOrderedJson(json);
  return value.ok() && value->kind == OrderedJson::Kind::kObject;
}

TagMatch MatchWord(absl::string_view text, absl::string_view word) {
  if (absl::StartsWith(text, word)) return TagMatch::kYes;
  return absl::StartsWith(word, text) ? TagMatch::kPartial : TagMatch::kNo;
}

absl::string_view SkipSpace(absl::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

}  // namespace

DsmlParser::DsmlParser(ReasoningSplitter::State start, const AnswerRules& rules)
    : catalog_(rules.catalog),
      writer_(rules.shows_calls, rules.is_single_call),
      is_markup_exact_(rules.is_markup_exact),
      is_reasoning_(start == ReasoningSplitter::State::kReasoning) {}

void DsmlParser::Append(absl::string_view text, AnswerDelta* delta) {
  if (is_complete()) return;
  pending_.append(text.data(), text.size());
  Run(delta);
}

void DsmlParser::Finish(bool is_cut, AnswerDelta* delta) {
  if (is_complete()) return;
  is_end_ = true;
  is_cut_ = is_cut;
  Run(delta);
  delta_ = delta;
  if (place_ == Place::kValue) EndValue();
  if (place_ == Place::kCall && !is_cut) EndCall();
  if (wrapped_.has_value()) WriteCut(*wrapped_);
  delta_ = nullptr;
}

void DsmlParser::Run(AnswerDelta* delta) {
  delta_ = delta;
  bool goes_on = true;
  while (goes_on && at_ < pending_.size() && !is_complete()) {
    switch (place_) {
      case Place::kText:
        goes_on = StepText();
        break;
      case Place::kCall:
        goes_on = StepCall();
        break;
      case Place::kValue:
        goes_on = StepValue();
        break;
    }
  }
  pending_.erase(0, at_);
  at_ = 0;
  delta_ = nullptr;
}

void DsmlParser::Show(absl::string_view text) {
  absl::StrAppend(is_reasoning_ ? &delta_->reasoning : &delta_->content, text);
  at_ += text.size();
}

// --- outside of calls ---

bool DsmlParser::StepText() {
  if (skips_space_) {
    at_ = std::min(absl::string_view(pending_).find_first_not_of(kSpace, at_), pending_.size());
    if (at_ == pending_.size()) return false;
    skips_space_ = false;
  }
  const absl::string_view text = rest();
  const size_t begin = text.find_first_of("<\n");
  if (begin != 0) {
    Show(text.substr(0, begin));
    return true;
  }
  // Line feeds belong to the tag that follows them, as many as the format writes.
  const size_t num_feeds = std::min(text.find_first_not_of('\n'), text.size());
  const size_t num_certain = num_feeds - std::min(num_feeds, kLineFeedsBeforeCalls);
  if (num_certain > 0) {
    Show(text.substr(0, num_certain));
    return true;
  }
  const absl::string_view tag_text = text.substr(num_feeds);
  if (tag_text.empty() && !is_end_) return false;
  if (!absl::StartsWith(tag_text, "<")) {
    Show(text.substr(0, num_feeds));
    return true;
  }
  if (is_reasoning_) {
    const TagMatch match = MatchWord(tag_text, kReasoningEnd);
    if (match == TagMatch::kPartial && !is_end_) return false;
    if (match == TagMatch::kYes) {
      Show(text.substr(0, num_feeds));
      at_ += kReasoningEnd.size();
      is_reasoning_ = false;
      is_in_section_ = false;
      return true;
    }
  }
  DsmlTag tag;
  TagMatch match = MatchOpening(tag_text, &tag);
  if (match == TagMatch::kPartial && !is_end_) return false;
  if (match == TagMatch::kYes) {
    at_ += num_feeds;
    TakeTagInText(tag);
  } else if (match == TagMatch::kPartial && HasDsmlMark(tag_text)) {
    at_ = pending_.size();
  } else {
    Show(text.substr(0, num_feeds + 1));
  }
  return true;
}

// Whether `text` begins with a tag that counts outside of calls.
TagMatch DsmlParser::MatchOpening(absl::string_view text, DsmlTag* tag) const {
  const TagMatch match = MatchDsmlTag(text, tag);
  if (match != TagMatch::kYes) return match;
  if (is_markup_exact_ && tag->is_bare) return TagMatch::kNo;
  if (!tag->is_bare || is_in_section_) return match;
  if (is_reasoning_ || tag->is_end || catalog_ == nullptr) return TagMatch::kNo;
  if (tag->kind == DsmlTag::Kind::kInvoke && catalog_->Find(tag->name) != nullptr) return match;
  if (tag->kind != DsmlTag::Kind::kFunctionCalls) return TagMatch::kNo;
  const absl::string_view behind = text.substr(tag->length);
  const absl::string_view next = SkipSpace(behind);
  if (behind.size() - next.size() > kBareGapMax) return TagMatch::kNo;
  if (next.empty()) return TagMatch::kPartial;
  DsmlTag invoke;
  const TagMatch next_match = MatchDsmlTag(next, &invoke);
  if (next_match != TagMatch::kYes) return next_match;
  const bool is_call = invoke.kind == DsmlTag::Kind::kInvoke && !invoke.is_end &&
                       (!invoke.is_bare || catalog_->Find(invoke.name) != nullptr);
  return is_call ? TagMatch::kYes : TagMatch::kNo;
}

void DsmlParser::TakeTagInText(const DsmlTag& tag) {
  at_ += tag.length;
  skips_space_ = true;
  switch (tag.kind) {
    case DsmlTag::Kind::kFunctionCalls:
      is_in_section_ = !tag.is_end;
      return;
    case DsmlTag::Kind::kInvoke:
      if (!tag.is_end) BeginCall(tag);
      return;
    case DsmlTag::Kind::kParameter:  // outside of a call it has no meaning: its value is text
      return;
  }
}

// --- between a call's parameters ---

void DsmlParser::BeginCall(const DsmlTag& tag) {
  place_ = Place::kCall;
  is_call_bare_ = tag.is_bare;
  is_call_dropped_ = tag.is_malformed;
  tool_ = catalog_ == nullptr ? nullptr : catalog_->Find(tag.name);
  keys_.clear();
  has_whole_body_ = false;
  is_call_fresh_ = true;
  wrapped_.reset();
  if (!is_call_dropped_) writer_.Begin(tag.name, delta_);
  if (tag.is_empty) EndCall();
}

void DsmlParser::EndCall() {
  place_ = Place::kText;
  skips_space_ = true;
  if (is_call_dropped_) return;
  WriteWrapped();
  if (!has_whole_body_) WriteArguments(keys_.empty() ? "{}" : "}");
  writer_.End();
}

bool DsmlParser::StepCall() {
  at_ = std::min(absl::string_view(pending_).find_first_not_of(kSpace, at_), pending_.size());
  const absl::string_view text = rest();
  if (text.empty()) return false;
  if (std::exchange(is_call_fresh_, false) && text[0] == '{') {
    has_whole_body_ = true;
    value_ = {.form = ValueForm::kWholeBody, .is_bare = is_call_bare_, .is_dropped = is_call_dropped_};
    place_ = Place::kValue;
    return true;
  }
  if (text[0] != '<') {  // nothing can be made of text between parameters
    at_ = std::min(pending_.find('<', at_), pending_.size());
    return true;
  }
  if (is_reasoning_) {
    const TagMatch match = MatchWord(text, kReasoningEnd);
    if (match == TagMatch::kPartial && !is_end_) return false;
    if (match == TagMatch::kYes) {
      EndCall();
      skips_space_ = false;
      return true;
    }
  }
  DsmlTag tag;
  const TagMatch match = MatchDsmlTag(text, &tag);
  if (match == TagMatch::kPartial) {
    if (is_end_) at_ = pending_.size();
    return is_end_;
  }
  if (match == TagMatch::kNo) {
    ++at_;
    return true;
  }
  if (tag.kind == DsmlTag::Kind::kParameter) {
    at_ += tag.length;
    if (!tag.is_end && !tag.is_malformed) BeginValue(tag);
    return true;
  }
  if (tag.kind == DsmlTag::Kind::kFunctionCalls && !tag.is_end) {
    at_ += tag.length;
    return true;
  }
  EndCall();
  if (!is_complete()) TakeTagInText(tag);
  return true;
}

// --- inside a value ---

void DsmlParser::BeginValue(const DsmlTag& tag) {
  const bool is_known = std::find(keys_.begin(), keys_.end(), tag.name) != keys_.end() ||
                        (wrapped_.has_value() && wrapped_->key == tag.name);
  value_ = {.key = tag.name,
            .form = ValueForm::kAny,
            .is_text = tag.is_string.value_or(false),
            .is_bare = tag.is_bare,
            .is_dropped = is_call_dropped_ || has_whole_body_ || is_known};
  place_ = Place::kValue;
  if (!value_.is_dropped && wrapped_.has_value()) {  // it does not stand alone: a parameter like others
    WriteParameter(*std::exchange(wrapped_, std::nullopt));
  }
  const ToolParameter* parameter = tool_ == nullptr ? nullptr : tool_->Find(tag.name);
  if (keys_.empty() && MayWrap(tag.name)) {
    value_.form = ValueForm::kWrapped;
  } else if (tag.is_string.value_or(parameter != nullptr && parameter->is_string)) {
    value_.form = ValueForm::kText;
  } else if (tag.is_string.has_value()) {
    value_.form = ValueForm::kJson;
  }
  if (value_.form == ValueForm::kText && !value_.is_dropped) {
    WriteKey(value_.key);
    WriteArguments("\"");
  }
  if (tag.is_empty) EndValue();
}

bool DsmlParser::StepValue() {
  const absl::string_view text = rest();
  const size_t begin = text.find_first_of("<\n");
  if (begin != 0) {
    AppendToValue(text.substr(0, begin));
    return true;
  }
  const size_t num_feeds = text[0] == '\n' ? 1 : 0;  // before the next tag it is not of the value
  const absl::string_view tag_text = text.substr(num_feeds);
  if (tag_text.empty()) {
    if (!is_end_) return false;
    if (is_cut_) AppendToValue(text);
    at_ = pending_.size();
    return true;
  }
  if (!absl::StartsWith(tag_text, "<")) {
    AppendToValue(text.substr(0, num_feeds));
    return true;
  }
  DsmlTag tag;
  const TagMatch match = MatchEndOfValue(tag_text, &tag);
  if (match == TagMatch::kPartial && !is_end_) return false;
  const bool is_torn = match == TagMatch::kPartial && HasDsmlMark(tag_text);
  if (is_torn || (match == TagMatch::kYes && is_end_ && is_cut_)) {  // markup, but no end that the model wrote
    at_ = pending_.size();
    return true;
  }
  if (match != TagMatch::kYes) {
    AppendToValue(text.substr(0, num_feeds + 1));
    return true;
  }
  const bool is_own_end = tag.kind == DsmlTag::Kind::kParameter && tag.is_end;
  if (is_own_end) {
    AppendToValue(text.substr(0, num_feeds));
    at_ += tag.length;
  } else {
    at_ += num_feeds;
  }
  EndValue();
  return true;
}

// Whether `text` begins with a tag at which the value ends.
TagMatch DsmlParser::MatchEndOfValue(absl::string_view text, DsmlTag* tag) const {
  const TagMatch match = MatchDsmlTag(text, tag);
  if (match != TagMatch::kYes || !tag->is_bare || value_.is_bare) return match;
  if (!tag->is_end || is_markup_exact_) return TagMatch::kNo;
  // A bare end of a marked value: it counts where nothing but such ends stands before a marked tag or the end.
  size_t at = 0;
  DsmlTag next = *tag;
  while (next.is_bare && next.is_end) {
    at += next.length;
    const absl::string_view behind = SkipSpace(text.substr(at));
    at = text.size() - behind.size();
    if (at >= kDsmlTagBytesMax) return TagMatch::kNo;
    if (is_end_ && (behind.empty() || HasDsmlMark(behind))) return TagMatch::kYes;
    if (behind.empty()) return TagMatch::kPartial;
    const TagMatch next_match = MatchDsmlTag(behind, &next);
    if (next_match != TagMatch::kYes) return next_match;
  }
  return next.is_bare ? TagMatch::kNo : TagMatch::kYes;
}

void DsmlParser::AppendToValue(absl::string_view text) {
  at_ += text.size();
  if (value_.is_dropped) return;
  if (value_.form != ValueForm::kText) {
    value_.kept.append(text.data(), text.size());
    return;
  }
  std::string escaped;
  AppendPythonJsonEscaped(text, &escaped);
  WriteArguments(escaped);
}

void DsmlParser::EndValue() {
  place_ = Place::kCall;
  if (value_.is_dropped) return;
  const bool is_unfinished = is_end_ && is_cut_;
  switch (value_.form) {
    case ValueForm::kText:
      if (!is_unfinished) WriteArguments("\"");
      return;
    case ValueForm::kWholeBody:
      is_unfinished ? WriteArguments(value_.kept) : WriteWholeBody(value_.kept);
      return;
    case ValueForm::kWrapped:
      wrapped_ = std::move(value_);
      return;
    case ValueForm::kJson:
    case ValueForm::kAny:
      is_unfinished ? WriteCut(value_) : WriteParameter(value_);
      return;
  }
}

void DsmlParser::WriteCut(const Value& value) {
  WriteKey(value.key);
  WriteArguments(value.kept);
}

void DsmlParser::WriteParameter(const Value& value) {
  WriteKey(value.key);
  if (!value.is_text && ParseOrderedJson(value.kept).ok()) {
    WriteArguments(value.kept);
    return;
  }
  std::string json;
  AppendPythonJsonString(value.kept, &json);
  WriteArguments(json);
}

void DsmlParser::WriteKey(absl::string_view key) {
  std::string json = keys_.empty() ? "{" : ", ";
  AppendPythonJsonString(key, &json);
  json += ": ";
  WriteArguments(json);
  keys_.emplace_back(key);
}

bool DsmlParser::MayWrap(absl::string_view key) const {
  return (key == "arguments" || key == "input") && tool_ != nullptr && tool_->Find(key) == nullptr;
}

bool DsmlParser::FitsTool(absl::string_view json_object) const {
  const absl::StatusOr<OrderedJson> object = ParseOrderedJson(json_object);
  if (!object.ok() || object->kind != OrderedJson::Kind::kObject) return false;
  return std::all_of(object->keys.begin(), object->keys.end(),
                     [this](const std::string& key) { return tool_->Find(key) != nullptr; });
}

void DsmlParser::WriteWrapped() {
  if (!wrapped_.has_value()) return;
  const Value wrapped = *std::exchange(wrapped_, std::nullopt);
  if (FitsTool(wrapped.kept)) {
    has_whole_body_ = true;
    WriteArguments(absl::StripAsciiWhitespace(wrapped.kept));
  } else {
    WriteParameter(wrapped);
  }
}

void DsmlParser::WriteWholeBody(const std::string& body) {
  const absl::string_view object = absl::StripAsciiWhitespace(body);
  const absl::StatusOr<OrderedJson> parsed = ParseOrderedJson(object);
  if (parsed.ok() && parsed->keys.size() == 1 && MayWrap(parsed->keys[0])) {
    const OrderedJson& inner = parsed->items[0];
    std::string json = inner.text;  // of a string: perhaps JSON once more
    if (inner.kind != OrderedJson::Kind::kString) {
      json.clear();
      AppendPythonJson(inner, &json);
    }
    if (IsObject(json) && FitsTool(json)) {
      WriteArguments(json);
      return;
    }
  }
  WriteArguments(object);
}

}  // namespace tandem::router
