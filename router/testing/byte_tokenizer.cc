#include "router/testing/byte_tokenizer.h"

#include <array>
#include <string>

#include "router/tokenizer/incremental_detokenizer.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kMarks[] = {"<｜begin▁of▁sentence｜>",
                                        "<｜end▁of▁sentence｜>",
                                        "<｜User｜>",
                                        "<｜Assistant｜>",
                                        "<think>",
                                        "</think>",
                                        "｜DSML｜"};

const std::array<char, 256>& AllBytes() {
  static const std::array<char, 256> bytes = [] {
    std::array<char, 256> all;
    for (int i = 0; i < 256; ++i) all[i] = static_cast<char>(i);
    return all;
  }();
  return bytes;
}

void AppendIds(absl::string_view text, bool matches_marks, std::vector<TokenId>* ids) {
  while (!text.empty()) {
    TokenId id = static_cast<unsigned char>(text[0]);
    size_t size = 1;
    for (size_t mark = 0; matches_marks && mark < std::size(kMarks); ++mark) {
      if (text.substr(0, kMarks[mark].size()) != kMarks[mark]) continue;
      id = ByteTokenizer::kBos + static_cast<TokenId>(mark);
      size = kMarks[mark].size();
    }
    ids->push_back(id);
    text.remove_prefix(size);
  }
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> ByteTokenizer::Encode(absl::string_view text, AddedTokens added_tokens) const {
  std::vector<TokenId> ids;
  AppendIds(text, added_tokens == AddedTokens::kMatch, &ids);
  return ids;
}

absl::StatusOr<std::vector<TokenId>> ByteTokenizer::Encode(const MarkedText& prompt) const {
  std::vector<TokenId> ids;
  for (const MarkedText::Run& run : prompt.runs()) {
    AppendIds(absl::string_view(prompt.text()).substr(run.begin, run.end - run.begin), run.is_markup, &ids);
  }
  return ids;
}

absl::string_view ByteTokenizer::TokenBytes(TokenId id) const {
  if (id < 256) return absl::string_view(&AllBytes()[id], 1);
  return id < kNumIds ? kMarks[id - kBos] : absl::string_view();
}

std::string ByteTokenizer::Decode(absl::Span<const TokenId> ids) const {
  std::string text;
  IncrementalDetokenizer detokenizer(*this);
  detokenizer.Append(ids, &text);
  detokenizer.Finish(&text);
  return text;
}

std::optional<TokenId> ByteTokenizer::FindAddedToken(absl::string_view content) const {
  for (size_t mark = 0; mark < std::size(kMarks); ++mark) {
    if (content == kMarks[mark]) return kBos + static_cast<TokenId>(mark);
  }
  return std::nullopt;
}

bool ByteTokenizer::IsSpecial(TokenId id) const { return (id >= kBos && id <= kAssistant) || id == kDsml; }

std::vector<TokenId> ByteTokenizer::Bytes(absl::string_view text) {
  std::vector<TokenId> ids;
  AppendIds(text, /*matches_marks=*/false, &ids);
  return ids;
}

}  // namespace tandem::router
