// The prompt format of a checkpoint: which one, and the fixed texts that belong to it.
//
// A format is chosen from the checkpoint's folder, or by name. Its fixed texts, above all the preamble that introduces
// tools, are data of the checkpoint and never code:
// - encoding/tools_preamble.txt, encoding/response_format_preamble.txt: as they are;
// - encoding/encoding_dsv32.py, as DeepSeek-V3.2 ships it: its text constants are read, no Python is run;
// - a file that the user names in place of them.
// In a text {tools} says where the tools stand; without it they stand behind it, and what the format writes behind
// tools follows. docs/chat_formats.md tells users. Tested by prompt_format_test.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/chat/chat_message.h"
#include "router/chat/thinking_mode.h"
#include "router/chat/v31_encoder.h"
#include "router/chat/v32_encoder.h"
#include "router/tokenizer/marked_text.h"

namespace tandem::router {

struct PromptFormat {
  enum class Kind {
    kV32,          // DSML calls
    kV32Speciale,  // the same text, but a model that knows no tools
    kV31,          // V3.1-Terminus and V3.2-Exp
  };

  Kind kind = Kind::kV32;
  V32Texts v32_texts;
  V31Texts v31_texts;

  // "v3.2", "v3.2-speciale", "v3.1"
  const char* name() const;
  // OK where requests may bring tools, else why not.
  absl::Status CheckTakesTools() const;
  // OK where requests may say how the answer is to be formatted, else why not.
  absl::Status CheckTakesResponseFormat() const;
};

// name: as PromptFormat::name(), or "auto": v3.1 where the checkpoint brings that chat template, Speciale where a part
// of its path says so, else v3.2. tools_preamble: path of a file, or "" for the checkpoint's own text. INVALID_ARGUMENT
// or NOT_FOUND name the file. A checkpoint without texts is no error: its requests may bring no tools.
absl::StatusOr<PromptFormat> LoadPromptFormat(const std::string& model_path, absl::string_view name,
                                              const std::string& tools_preamble);

absl::StatusOr<MarkedText> EncodeChat(const Conversation& conversation, ThinkingMode mode, const PromptFormat& format);

}  // namespace tandem::router
