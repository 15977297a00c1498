// Logprobs in the two shapes of the OpenAI API, and in SGLang's.
//
// A token is shown as its text. Where it is no whole characters (a character cut across tokens), bytes that belong to
// none are shown as \xNN, as OpenAI does; "bytes" of the chat shape is exact always. A logprob that JSON cannot say
// (minus infinity, NaN) is -9999.
// Tested by logprobs_text_test.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/openai/answer.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {

// {"content":[{"token":...,"logprob":...,"bytes":[...],"top_logprobs":[...]},...],"refusal":null}
void AppendChatLogprobs(std::string& out, absl::Span<const TokenLogprob> entries, const Tokenizer& tokenizer);

// {"tokens":[...],"token_logprobs":[...],"top_logprobs":[{"token":logprob,...},...],"text_offset":[...]}; a token that
// is no whole characters is "bytes:\xNN\xNN". top_logprobs has the token itself too. prompt: of an echoed prompt,
// before the others; its first token has nulls, for nothing comes before it. entries_offset: added to the others'
// text_offset.
void AppendCompletionLogprobs(std::string& out, absl::Span<const TokenLogprob> prompt,
                              absl::Span<const TokenLogprob> entries, int64_t entries_offset,
                              const Tokenizer& tokenizer);

// [logprob,token,text], the text null unless it is asked for; spelt as in chat.
void AppendLogprobTriple(std::string& out, const LikelyToken& entry, const Tokenizer& tokenizer, bool has_text);
// The same of a token that has none: null in its place.
void AppendUnknownLogprobTriple(std::string& out, TokenId token, const Tokenizer& tokenizer, bool has_text);

}  // namespace tandem::router
