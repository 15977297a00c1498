// From prompts as the client gave them to orders: for the endpoints that render no chat.
//
// A text's added tokens are honoured (it is the client's prompt as the model sees it), and it gets the
// beginning-of-sentence token where it does not begin with one; ids are taken as they are. Pure. Tested by
// completion_preparation_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/openai/generation_fields.h"
#include "router/openai/prompt_list.h"
#include "router/prepared_request.h"

namespace tandem::router {

// Perhaps of no token at all. INVALID_ARGUMENT at `path`: the text is not UTF-8.
absl::StatusOr<std::vector<TokenId>> EncodePrompt(const std::string& text, const std::string& path,
                                                  bool adds_special_tokens, const ModelContext& context);
// INVALID_ARGUMENT at `path`: an id is none of the vocabulary.
absl::Status CheckTokenIds(const std::vector<uint32_t>& ids, const std::string& path, const ModelContext& context);

// What an answer may say of its prompt.
struct PromptText {
  std::string text;
  bool has_added_bos = false;  // the prompt's first token is none of the text
};

// One order for each prompt. texts, where given, gets the text of each; of one that had to be cut, of what is left.
absl::StatusOr<std::vector<GenerateOrder>> PlanPrompts(PromptList prompts, bool adds_special_tokens,
                                                       const GenerationFields& fields, const ModelContext& context,
                                                       std::vector<PromptText>* texts);

}  // namespace tandem::router
