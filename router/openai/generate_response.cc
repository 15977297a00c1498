#include "router/openai/generate_response.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/openai/json_text.h"
#include "router/openai/logprobs_text.h"

namespace tandem::router {
namespace {

constexpr size_t kEveryDeltaBytes = size_t{256} << 10;  // of one choice; 26,000 plain tokens
constexpr size_t kEventShare = 256;  // beyond it an event has at least that part of the whole that is new

}  // namespace

GenerateFormat::GenerateFormat(Options options, const Tokenizer* tokenizer)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      is_array_(options_.is_list || options_.choices_per_prompt > 1),
      progress_(options_.prompts.size() * static_cast<size_t>(options_.choices_per_prompt)) {}

void GenerateFormat::Add(Progress& progress, absl::string_view text, absl::Span<const TokenId> tokens,
                         absl::Span<const TokenLogprob> logprobs) const {
  AppendJsonEscaped(progress.text, text);
  for (const TokenId token : tokens) {
    absl::StrAppend(&progress.output_ids, progress.num_tokens == 0 ? "" : ",", token);
    ++progress.num_tokens;
  }
  for (const TokenLogprob& entry : logprobs) {
    const char* separator = progress.logprobs.empty() ? "" : ",";
    progress.logprobs += separator;
    const LikelyToken own = {entry.token, entry.logprob};
    AppendLogprobTriple(progress.logprobs, own, *tokenizer_, options_.has_logprob_texts);
    if (!options_.has_top_logprobs) continue;
    progress.top_logprobs += separator;
    progress.top_logprobs += '[';
    AppendTriples(progress.top_logprobs, entry.top);
    progress.top_logprobs += ']';
  }
}

void GenerateFormat::AddPrompt(Progress& progress, int index, const PromptLogprobs* logprobs) const {
  const Prompt& prompt = options_.prompts[static_cast<size_t>(index / options_.choices_per_prompt)];
  const std::vector<TokenId>& tokens = prompt.logprob_tokens;
  if (!options_.has_logprobs || !progress.prompt_logprobs.empty()) return;
  if (logprobs == nullptr && tokens.size() > 1) return;
  std::string own = ",\"input_token_logprobs\":[";
  std::string top = "],\"input_top_logprobs\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0) {
      AppendUnknownLogprobTriple(own, tokens[i], *tokenizer_, options_.has_logprob_texts);
      top += "null";
      continue;
    }
    own += ',';
    AppendLogprobTriple(own, {tokens[i], logprobs->logprobs[i - 1]}, *tokenizer_, options_.has_logprob_texts);
    if (!options_.has_top_logprobs) continue;
    top += ",[";
    AppendTriples(top, logprobs->top[i - 1]);
    top += ']';
  }
  progress.prompt_logprobs = options_.has_top_logprobs ? absl::StrCat(own, top, "]") : absl::StrCat(own, "]");
}

void GenerateFormat::AppendTriples(std::string& out, const std::vector<LikelyToken>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    AppendLogprobTriple(out, tokens[i], *tokenizer_, options_.has_logprob_texts);
  }
}

void GenerateFormat::AppendFinish(std::string& out, const Progress& progress, const ChoiceEnd& end) const {
  absl::StrAppend(&out, "{\"type\":\"", AnswerFinishName(end.finish), "\"");
  if (end.finish == AnswerFinish::kLength) {
    absl::StrAppend(&out, ",\"length\":", progress.num_tokens);
  } else if (end.finish == AnswerFinish::kAbort) {
    out += ",\"message\":\"aborted by request\"";
  } else if (const auto* token = std::get_if<TokenId>(&end.matched_stop)) {
    absl::StrAppend(&out, ",\"matched\":", *token);
  } else if (const auto* text = std::get_if<std::string>(&end.matched_stop)) {
    out += ",\"matched\":";
    AppendJsonString(out, *text);
  }
  out += '}';
}

// In SGLang's names. Nothing where no worker drafts.
void GenerateFormat::AppendDrafts(std::string& out, const DraftCounts& drafts) {
  if (drafts.windows == 0) return;
  const auto windows = static_cast<double>(drafts.windows), accepted = static_cast<double>(drafts.accepted);
  absl::StrAppendFormat(&out,
                        ",\"spec_verify_ct\":%d,\"spec_accept_length\":%.6g,\"spec_accept_rate\":%.6g,"
                        "\"spec_num_correct_drafts\":%d",
                        drafts.windows, (windows + accepted) / windows,
                        drafts.drafted == 0 ? 0 : accepted / static_cast<double>(drafts.drafted), drafts.accepted);
}

bool GenerateFormat::IsEventDue(const Progress& progress) {
  const size_t num_bytes = progress.num_bytes();
  return num_bytes <= kEveryDeltaBytes || (num_bytes - progress.num_told_bytes) * kEventShare >= num_bytes;
}

void GenerateFormat::AppendChoice(std::string& out, int index, const Progress& progress, const ChoiceEnd* end,
                                  bool has_prompt) const {
  const Prompt& prompt = options_.prompts[static_cast<size_t>(index / options_.choices_per_prompt)];
  absl::StrAppend(&out, "{\"text\":\"", progress.text, "\",\"output_ids\":[", progress.output_ids,
                  "],\"meta_info\":{\"id\":");
  AppendJsonString(out, prompt.id);
  out += ",\"finish_reason\":";
  if (end == nullptr) {
    out += "null";
  } else {
    AppendFinish(out, progress, *end);
  }
  absl::StrAppend(&out, ",\"prompt_tokens\":", prompt.num_tokens, ",\"completion_tokens\":", progress.num_tokens,
                  ",\"cached_tokens\":", progress.num_cached_tokens);
  if (has_prompt) out += progress.prompt_logprobs;
  if (options_.has_logprobs) absl::StrAppend(&out, ",\"output_token_logprobs\":[", progress.logprobs, "]");
  if (options_.has_top_logprobs) absl::StrAppend(&out, ",\"output_top_logprobs\":[", progress.top_logprobs, "]");
  if (end != nullptr) {
    absl::StrAppendFormat(&out, ",\"e2e_latency\":%.6f", absl::ToDoubleSeconds(end->after));
    AppendDrafts(out, end->drafts);
  }
  out += '}';
  if (is_array_) absl::StrAppend(&out, ",\"index\":", index);
  out += '}';
}

void GenerateFormat::AppendDelta(std::string& out, int index, const ChoiceDelta& delta) {
  Progress& progress = progress_[static_cast<size_t>(index)];
  AddPrompt(progress, index, delta.prompt_logprobs.get());
  if (delta.num_cached_tokens.has_value()) progress.num_cached_tokens = *delta.num_cached_tokens;
  Add(progress, delta.text.content, delta.tokens, delta.logprobs);
  const bool is_first = progress.num_told_bytes == 0;
  if (!is_first && !delta.end.has_value() && !IsEventDue(progress)) return;
  progress.num_told_bytes = progress.num_bytes();
  const ChoiceEnd* const end = delta.end.has_value() ? &*delta.end : nullptr;
  // A large prompt's logprobs come with the first event and the last.
  const bool is_small = progress.prompt_logprobs.size() + progress.num_bytes() <= kEveryDeltaBytes;
  out += "data: ";
  AppendChoice(out, index, progress, end, is_first || end != nullptr || is_small);
  out += "\n\n";
}

std::string GenerateFormat::WholeBody(absl::Span<const WholeChoice> choices, const Usage& /*usage*/) const {
  std::string out = is_array_ ? "[" : "";
  for (size_t i = 0; i < choices.size(); ++i) {
    Progress progress;
    AddPrompt(progress, static_cast<int>(i), choices[i].prompt_logprobs.get());
    progress.num_cached_tokens = choices[i].num_cached_tokens;
    Add(progress, choices[i].text.content, choices[i].tokens, choices[i].logprobs);
    if (i > 0) out += ',';
    AppendChoice(out, static_cast<int>(i), progress, &choices[i].end, /*has_prompt=*/true);
  }
  if (is_array_) out += ']';
  return out;
}

}  // namespace tandem::router
