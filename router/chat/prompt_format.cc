#include "router/chat/prompt_format.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "router/chat/ordered_json.h"
#include "router/chat/python_text.h"

namespace tandem::router {
namespace {

namespace fs = std::filesystem;

constexpr char kPlaceOfTools[] = "{tools}";
constexpr char kPlaceOfToolsInPython[] = "{tool_schemas}";
constexpr char kPlaceOfSchemaInPython[] = "{schema}";

// Nothing where there is no such file.
absl::StatusOr<std::optional<std::string>> ReadFile(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("cannot read ", path.string()));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

struct Preamble {
  std::string head;
  std::optional<std::string> tail;  // where the text says where the tools stand
};

Preamble SplitPreamble(absl::string_view text, absl::string_view place) {
  const size_t at = text.find(place);
  if (at == absl::string_view::npos) return {std::string(text), std::nullopt};
  return {std::string(text.substr(0, at)), std::string(text.substr(at + place.size()))};
}

void SetTools(const Preamble& preamble, PromptFormat* format) {
  if (format->kind == PromptFormat::Kind::kV31) {
    format->v31_texts.tools_head = preamble.head;
    format->v31_texts.tools_tail = preamble.tail.value_or("");
    return;
  }
  format->v32_texts.tools_head = preamble.head;
  if (preamble.tail.has_value()) format->v32_texts.tools_tail = *preamble.tail;
}

// A text constant of the checkpoint's Python file with its other constants put in, but for the `place` left open.
absl::StatusOr<Preamble> ReadConstant(absl::string_view source, const char* name, absl::string_view place) {
  ASSIGN_OR_RETURN(const std::string text, ReadPythonText(source, name));
  std::vector<std::pair<std::string, std::string>> values;
  for (const char* constant : {"dsml_token", "thinking_start_token", "thinking_end_token"}) {
    absl::StatusOr<std::string> value = ReadPythonText(source, constant);
    if (value.ok()) values.emplace_back(constant, *std::move(value));
  }
  const Preamble parts = SplitPreamble(text, place);
  if (!parts.tail.has_value()) return absl::InvalidArgumentError(absl::StrCat(name, ": has no ", place));
  Preamble formatted;
  ASSIGN_OR_RETURN(formatted.head, FormatPythonText(parts.head, values));
  ASSIGN_OR_RETURN(formatted.tail, FormatPythonText(*parts.tail, values));
  return formatted;
}

absl::Status ReadPythonTexts(const fs::path& path, PromptFormat* format) {
  ASSIGN_OR_RETURN(const std::optional<std::string> source, ReadFile(path));
  if (!source.has_value()) return absl::OkStatus();
  const auto at_file = [&](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", status.message()));
  };
  const absl::StatusOr<Preamble> tools = ReadConstant(*source, "TOOLS_SYSTEM_TEMPLATE", kPlaceOfToolsInPython);
  if (!tools.ok()) return at_file(tools.status());
  SetTools(*tools, format);
  const absl::StatusOr<Preamble> answer = ReadConstant(*source, "response_format_template", kPlaceOfSchemaInPython);
  if (answer.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  if (!answer.ok()) return at_file(answer.status());
  format->v32_texts.response_format_head = answer->head;
  return absl::OkStatus();
}

absl::Status ReadCheckpointTexts(const fs::path& encoding, PromptFormat* format) {
  if (format->kind != PromptFormat::Kind::kV31)
    RETURN_IF_ERROR(ReadPythonTexts(encoding / "encoding_dsv32.py", format));
  ASSIGN_OR_RETURN(const std::optional<std::string> tools, ReadFile(encoding / "tools_preamble.txt"));
  if (tools.has_value()) SetTools(SplitPreamble(*tools, kPlaceOfTools), format);
  ASSIGN_OR_RETURN(const std::optional<std::string> answer, ReadFile(encoding / "response_format_preamble.txt"));
  if (answer.has_value() && format->kind != PromptFormat::Kind::kV31) format->v32_texts.response_format_head = *answer;
  return absl::OkStatus();
}

// The Jinja text of the checkpoint's chat template; nothing where it has none.
absl::StatusOr<std::optional<std::string>> ReadTemplate(const fs::path& folder) {
  ASSIGN_OR_RETURN(std::optional<std::string> jinja, ReadFile(folder / "chat_template.jinja"));
  if (jinja.has_value()) return jinja;
  const fs::path path = folder / "tokenizer_config.json";
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadFile(path));
  if (!text.has_value()) return std::nullopt;
  const absl::StatusOr<OrderedJson> config = ParseOrderedJson(*text);
  if (!config.ok()) return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", config.status().message()));
  const OrderedJson* found = config->Find("chat_template");
  if (found == nullptr || found->kind != OrderedJson::Kind::kString) return std::nullopt;
  return found->text;
}

absl::StatusOr<PromptFormat::Kind> ChooseKind(const fs::path& folder) {
  ASSIGN_OR_RETURN(const std::optional<std::string> jinja, ReadTemplate(folder));
  if (jinja.has_value()) {
    // V3 and R1 write <｜tool▁outputs▁begin｜> around their results, V3.1 and Exp do not.
    if (absl::StrContains(*jinja, "<｜tool▁output▁begin｜>") &&
        !absl::StrContains(*jinja, "<｜tool▁outputs▁begin｜>")) {
      return PromptFormat::Kind::kV31;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        folder.string(), ": its chat template is none that is known; name a format by process.chat.format"));
  }
  return absl::StrContains(absl::AsciiStrToLower(folder.string()), "speciale") ? PromptFormat::Kind::kV32Speciale
                                                                               : PromptFormat::Kind::kV32;
}

}  // namespace

const char* PromptFormat::name() const {
  switch (kind) {
    case Kind::kV32:
      return "v3.2";
    case Kind::kV32Speciale:
      return "v3.2-speciale";
    case Kind::kV31:
      return "v3.1";
  }
  TANDEM_CHECK(false, "a format outside its enum");
}

absl::Status PromptFormat::CheckTakesTools() const {
  if (kind == Kind::kV32Speciale) {
    return absl::InvalidArgumentError("this model (DeepSeek-V3.2-Speciale) does not support tool calls");
  }
  const bool has_text = kind == Kind::kV31 ? v31_texts.tools_head.has_value() : v32_texts.tools_head.has_value();
  if (has_text) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "this checkpoint brings no text that introduces tools; the operator may name one by process.chat.tools_preamble");
}

absl::Status PromptFormat::CheckTakesResponseFormat() const {
  if (kind != Kind::kV31 && v32_texts.response_format_head.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError("this checkpoint brings no text that tells the model of a response format");
}

absl::StatusOr<PromptFormat> LoadPromptFormat(const std::string& model_path, absl::string_view name,
                                              const std::string& tools_preamble) {
  const fs::path folder(model_path);
  PromptFormat format;
  if (name == "auto") {
    ASSIGN_OR_RETURN(format.kind, ChooseKind(folder));
  } else {
    bool is_known = false;
    for (const PromptFormat::Kind kind :
         {PromptFormat::Kind::kV32, PromptFormat::Kind::kV32Speciale, PromptFormat::Kind::kV31}) {
      format.kind = kind;
      if (is_known = name == format.name(); is_known) break;
    }
    if (!is_known) return absl::InvalidArgumentError(absl::StrCat("there is no chat format ", name));
  }
  RETURN_IF_ERROR(ReadCheckpointTexts(folder / "encoding", &format));
  if (tools_preamble.empty()) return format;
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadFile(tools_preamble));
  if (!text.has_value())
    return absl::NotFoundError(absl::StrCat("process.chat.tools_preamble: no file ", tools_preamble));
  SetTools(SplitPreamble(*text, kPlaceOfTools), &format);
  return format;
}

absl::StatusOr<MarkedText> EncodeChat(const Conversation& conversation, ThinkingMode mode, const PromptFormat& format) {
  if (format.kind == PromptFormat::Kind::kV31) {
    return EncodeV31(conversation, {.thinking_mode = mode, .texts = &format.v31_texts});
  }
  return EncodeV32(conversation, {.thinking_mode = mode, .texts = &format.v32_texts});
}

}  // namespace tandem::router
