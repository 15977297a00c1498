#include "router/parsing/whole_dsml.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <regex>

#include "router/chat/ordered_json.h"

namespace tandem::router {
namespace {

struct Token {
  enum Kind { kText, kTag, kThinkEnd, kTornTag } kind;
  std::string text;
  std::string element;  // of a tag: "function_calls", "invoke", "parameter"
  bool is_end = false, is_marked = false, is_empty = false, is_malformed = false;
  std::string name;
  std::string is_string;  // "true", "false", ""
};

// Whether the front of a marked tag, up to the end of the text, is that of a tag that is known.
bool MayBecomeTag(const std::string& front) {
  const std::string mark = "｜DSML｜";
  const std::string name = front.substr(front.find(mark) + mark.size());
  for (const std::string element : {"function_calls", "invoke", "parameter"}) {
    if (element.compare(0, name.size(), name) == 0) return true;
    if (name.compare(0, element.size(), element) != 0) continue;
    const char next = name[element.size()];
    return !std::isalnum(static_cast<unsigned char>(next)) && next != '_';
  }
  return false;
}

std::vector<Token> Tokenize(const std::string& text) {
  static const std::regex kThinkEnd("</think>");
  static const std::regex kEnd("</(｜DSML｜)?(function_calls|invoke|parameter)\\s*>");
  static const std::regex kSection("<(｜DSML｜)?(function_calls)\\s*>");
  static const std::regex kInvoke("<(｜DSML｜)?(invoke)\\s*name\\s*=\\s*\"([^\"]+)\"\\s*(/?)>");
  static const std::regex kParameter(
      "<(｜DSML｜)?(parameter)\\s*(?:string\\s*=\\s*\"(true|false)\"\\s*)?name\\s*=\\s*\"([^\"]+)\"\\s*"
      "(?:string\\s*=\\s*\"(true|false)\"\\s*)?(/?)>");
  static const std::regex kMalformed(
      "<(/?)｜DSML｜(function_calls|invoke|parameter)(?![A-Za-z0-9_])[^<>\n]*(>|(?=[<\n]))");
  static const std::regex kTorn("</?｜DSML｜[^>\n]*$");
  std::vector<Token> tokens;
  for (size_t at = 0; at < text.size();) {
    std::smatch m;
    const auto is_at = [&](const std::regex& regex) {
      return std::regex_search(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), m, regex,
                               std::regex_constants::match_continuous);
    };
    Token token;
    if (text[at] == '<') {
      if (is_at(kThinkEnd)) {
        token = {.kind = Token::kThinkEnd, .text = m.str()};
      } else if (is_at(kEnd)) {
        token = {.kind = Token::kTag, .text = m.str(), .element = m[2], .is_end = true, .is_marked = m[1].matched};
      } else if (is_at(kSection)) {
        token = {.kind = Token::kTag, .text = m.str(), .element = m[2], .is_marked = m[1].matched};
      } else if (is_at(kInvoke)) {
        token = {.kind = Token::kTag,
                 .text = m.str(),
                 .element = m[2],
                 .is_marked = m[1].matched,
                 .is_empty = m[4].length() > 0,
                 .name = m[3]};
      } else if (is_at(kParameter)) {
        token = {.kind = Token::kTag,
                 .text = m.str(),
                 .element = m[2],
                 .is_marked = m[1].matched,
                 .is_empty = m[6].length() > 0,
                 .name = m[4],
                 .is_string = m[3].matched ? m[3] : m[5]};
      } else if (is_at(kMalformed)) {
        token = {.kind = Token::kTag,
                 .text = m.str(),
                 .element = m[2],
                 .is_end = m[1].length() > 0,
                 .is_marked = true,
                 .is_malformed = true};
      } else if (is_at(kTorn)) {
        if (MayBecomeTag(m.str())) token = {.kind = Token::kTornTag, .text = m.str()};
      }
    }
    if (token.text.empty()) {
      if (tokens.empty() || tokens.back().kind != Token::kText) tokens.push_back({.kind = Token::kText});
      tokens.back().text += text[at++];
      continue;
    }
    at += token.text.size();
    tokens.push_back(token);
  }
  return tokens;
}

std::string Quote(const std::string& text) {
  std::string json;
  AppendPythonJsonString(text, &json);
  return json;
}

bool IsJson(const std::string& text) { return ParseOrderedJson(text).ok(); }
bool IsSpace(const std::string& text) { return text.find_first_not_of(" \t\n\r") == std::string::npos; }

std::string Strip(std::string text) {
  const size_t begin = text.find_first_not_of(" \t\n\r\v\f");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\n\r\v\f") + 1 - begin);
}

struct Parameter {
  std::string key, value, is_string;
};

class Interpreter {
 public:
  Interpreter(const ParserSetup& setup, std::vector<Token> tokens)
      : setup_(setup), tokens_(std::move(tokens)), is_reasoning_(setup.start == ReasoningSplitter::State::kReasoning) {}

  ParsedAnswer Interpret() {
    while (at_ < tokens_.size() && !is_done_) InterpretOne();
    return answer_;
  }

 private:
  const Tool* Known(const std::string& name) const {
    return setup_.rules.catalog == nullptr ? nullptr : setup_.rules.catalog->Find(name);
  }

  bool Counts(size_t index) const {
    const Token& tag = tokens_[index];
    if (tag.is_marked || is_in_section_ || index == certain_) return true;
    if (is_reasoning_ || tag.is_end) return false;
    if (tag.element == "invoke") return Known(tag.name) != nullptr;
    if (tag.element != "function_calls") return false;
    size_t next = index + 1;
    if (next < tokens_.size() && tokens_[next].kind == Token::kText) {
      if (!IsSpace(tokens_[next].text) || tokens_[next].text.size() > 8) return false;
      ++next;
    }
    if (next == tokens_.size() || tokens_[next].kind != Token::kTag) return false;
    const Token& call = tokens_[next];
    return call.element == "invoke" && !call.is_end && (call.is_marked || Known(call.name) != nullptr);
  }

  void Show(std::string text) {
    if (skips_space_) {
      text.erase(0, std::min(text.find_first_not_of(" \t\n\r"), text.size()));
      if (text.empty()) return;
    }
    skips_space_ = false;
    (is_reasoning_ ? answer_.reasoning : answer_.content) += text;
  }

  void InterpretOne() {
    const Token& token = tokens_[at_];
    const bool is_tag = token.kind == Token::kTornTag || (token.kind == Token::kTag && Counts(at_));
    if (is_tag) {
      // The line feeds that were shown just before the tag, at most two, were not text.
      std::string& shown = is_reasoning_ ? answer_.reasoning : answer_.content;
      for (int i = 0; i < 2 && shown.size() > shown_before_ && shown.back() == '\n'; ++i) shown.pop_back();
    }
    if (token.kind == Token::kTornTag) {
      ++at_;
    } else if (token.kind == Token::kThinkEnd && is_reasoning_) {
      is_reasoning_ = is_in_section_ = skips_space_ = false;
      ++at_;
      shown_before_ = answer_.content.size();
    } else if (is_tag && token.element == "function_calls") {
      is_in_section_ = !token.is_end;
      SkipTag();
    } else if (is_tag && token.element == "invoke" && !token.is_end) {
      InterpretCall();
    } else if (is_tag) {
      SkipTag();
    } else {
      Show(token.text);
      ++at_;
    }
  }

  void SkipTag() {
    ++at_;
    skips_space_ = true;
    shown_before_ = (is_reasoning_ ? answer_.reasoning : answer_.content).size();
  }

  void InterpretCall() {
    const Token open = tokens_[at_++];
    std::vector<Parameter> parameters;
    std::optional<std::string> body;
    bool is_unfinished = false;
    bool is_closed = open.is_empty;
    bool is_fresh = true;
    while (!is_closed && at_ < tokens_.size()) {
      Token& token = tokens_[at_];
      if (token.kind == Token::kThinkEnd && is_reasoning_) break;
      if (token.kind != Token::kTag) {
        const size_t begin = token.text.find_first_not_of(" \t\n\r");
        if (begin == std::string::npos) {
          ++at_;
        } else if (is_fresh && token.text[begin] == '{') {
          token.text.erase(0, begin);
          bool is_whole = false;
          body = TakeValue(open.is_marked, &is_whole);
          is_unfinished = !is_whole && setup_.is_cut;
          is_fresh = false;
        } else {
          ++at_;  // nothing can be made of it
          is_fresh = false;
        }
        continue;
      }
      is_fresh = false;
      if (token.element == "parameter") {
        const Token parameter = token;
        ++at_;
        if (parameter.is_end || parameter.is_malformed) continue;
        bool is_whole = parameter.is_empty;
        const std::string value = parameter.is_empty ? "" : TakeValue(parameter.is_marked, &is_whole);
        const bool is_known = body.has_value() || std::any_of(parameters.begin(), parameters.end(),
                                                              [&](const auto& p) { return p.key == parameter.name; });
        if (is_known) continue;
        parameters.push_back({parameter.name, value, parameter.is_string});
        if (!is_whole && setup_.is_cut) is_unfinished = true;
        continue;
      }
      if (token.element == "function_calls" && !token.is_end) {
        ++at_;
        continue;
      }
      if (token.element == "invoke" && token.is_end) {
        ++at_;
      } else {
        certain_ = at_;  // behind a call's parameters it is a tag, bare or not
      }
      is_closed = true;
    }
    const bool is_think_end = at_ < tokens_.size() && tokens_[at_].kind == Token::kThinkEnd && !is_closed;
    const bool is_complete = is_closed || is_think_end || !setup_.is_cut;
    skips_space_ = !is_think_end;
    shown_before_ = (is_reasoning_ ? answer_.reasoning : answer_.content).size();
    if (open.is_malformed || !setup_.rules.shows_calls) return;
    answer_.calls.push_back({open.name, Arguments(Known(open.name), parameters, body, is_unfinished, is_complete)});
    answer_.has_incomplete_call = !is_complete;
    if (setup_.rules.is_single_call && is_complete) is_done_ = true;
  }

  // From at_ to the tag that ends it. *is_whole: there is such a tag.
  std::string TakeValue(bool is_marked, bool* is_whole) {
    std::string value;
    for (; at_ < tokens_.size(); ++at_) {
      const Token& token = tokens_[at_];
      if (token.kind == Token::kTornTag) {
        if (!value.empty() && value.back() == '\n') value.pop_back();
        continue;
      }
      bool is_by_end_of_text = false;
      if (token.kind == Token::kTag && EndsValue(at_, is_marked, &is_by_end_of_text)) {
        if (is_by_end_of_text && setup_.is_cut) {
          if (!value.empty() && value.back() == '\n') value.pop_back();
          at_ = tokens_.size();
          return value;
        }
        *is_whole = true;
        if (token.element == "parameter" && token.is_end) {
          ++at_;
        } else if (!value.empty() && value.back() == '\n') {
          value.pop_back();
        }
        return value;
      }
      value += token.text;
    }
    const bool ends_with_feed = !value.empty() && value.back() == '\n' && tokens_.back().kind != Token::kTornTag;
    if (ends_with_feed && !setup_.is_cut) value.pop_back();
    return value;
  }

  bool EndsValue(size_t index, bool is_value_marked, bool* is_by_end_of_text) const {
    if (tokens_[index].is_marked || !is_value_marked) return true;
    if (!tokens_[index].is_end) return false;
    for (; index < tokens_.size(); ++index) {
      const Token& token = tokens_[index];
      if (token.kind == Token::kText && IsSpace(token.text)) continue;
      if (token.kind == Token::kTornTag) break;
      if (token.kind != Token::kTag) return false;
      if (token.is_marked) return true;
      if (!token.is_end) return false;
    }
    *is_by_end_of_text = true;
    return true;
  }

  static std::string AsJson(const Tool* tool, const Parameter& parameter) {
    const ToolParameter* declared = tool == nullptr ? nullptr : tool->Find(parameter.key);
    const bool is_text =
        parameter.is_string == "true" || (parameter.is_string.empty() && declared != nullptr && declared->is_string);
    return !is_text && IsJson(parameter.value) ? parameter.value : Quote(parameter.value);
  }

  static bool Fits(const Tool* tool, const std::string& json) {
    const auto object = ParseOrderedJson(json);
    if (!object.ok() || object->kind != OrderedJson::Kind::kObject) return false;
    for (const std::string& key : object->keys) {
      if (tool->Find(key) == nullptr) return false;
    }
    return true;
  }

  static bool Wraps(const Tool* tool, const std::string& key) {
    return tool != nullptr && (key == "arguments" || key == "input") && tool->Find(key) == nullptr;
  }

  static std::string Arguments(const Tool* tool, const std::vector<Parameter>& parameters,
                               const std::optional<std::string>& body, bool is_unfinished, bool is_complete) {
    if (body.has_value()) {
      if (is_unfinished) return *body;
      const std::string object = Strip(*body);
      const auto json = ParseOrderedJson(object);
      if (json.ok() && json->keys.size() == 1 && Wraps(tool, json->keys[0])) {
        std::string inner = json->items[0].text;
        if (json->items[0].kind != OrderedJson::Kind::kString) {
          inner.clear();
          AppendPythonJson(json->items[0], &inner);
        }
        if (Fits(tool, inner)) return inner;
      }
      return object;
    }
    if (parameters.empty()) return is_complete ? "{}" : "";
    if (parameters.size() == 1 && Wraps(tool, parameters[0].key)) {
      if (!is_complete) return "{" + Quote(parameters[0].key) + ": " + parameters[0].value;
      if (Fits(tool, parameters[0].value)) return Strip(parameters[0].value);
    }
    std::string arguments = "{";
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (i > 0) arguments += ", ";
      arguments += Quote(parameters[i].key) + ": ";
      if (i + 1 == parameters.size() && is_unfinished) {
        const ToolParameter* declared = tool == nullptr ? nullptr : tool->Find(parameters[i].key);
        const bool is_text = parameters[i].is_string == "true" ||
                             (parameters[i].is_string.empty() && declared != nullptr && declared->is_string);
        const std::string quoted = Quote(parameters[i].value);
        arguments += is_text ? quoted.substr(0, quoted.size() - 1) : parameters[i].value;
      } else {
        arguments += AsJson(tool, parameters[i]);
      }
    }
    return is_complete ? arguments + "}" : arguments;
  }

  const ParserSetup& setup_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  ParsedAnswer answer_;
  bool is_reasoning_;
  bool is_in_section_ = false;
  bool skips_space_ = false;
  bool is_done_ = false;
  size_t certain_ = std::string::npos;
  size_t shown_before_ = 0;  // text up to here stands before an earlier tag
};

}  // namespace

ParsedAnswer ParseWholeDsml(const ParserSetup& setup, const std::string& text) {
  return Interpreter(setup, Tokenize(text)).Interpret();
}

}  // namespace tandem::router
