#include "router/tokenizer/tokenizer.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/tokenizer/added_token_finder.h"
#include "router/tokenizer/byte_pair_merger.h"
#include "router/tokenizer/pre_tokenizer.h"
#include "router/tokenizer/tokenizer_file.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

// Positions in a piece are 32 bits wide (byte_pair_merger.cc).
constexpr size_t kTextBytesMax = (size_t{1} << 31) - 1;

class FileTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<const FileTokenizer>> Build(const TokenizerFile& file);

  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, AddedTokens added_tokens) const override;
  absl::StatusOr<std::vector<TokenId>> Encode(const MarkedText& prompt) const override;
  absl::string_view TokenBytes(TokenId id) const override;
  std::string Decode(absl::Span<const TokenId> ids) const override;
  std::optional<TokenId> FindAddedToken(absl::string_view content) const override;
  bool IsSpecial(TokenId id) const override;
  TokenId num_ids() const override;

 private:
  FileTokenizer(const TokenizerFile& file, PreTokenizer pre_tokenizer, BytePairMerger merger);

  absl::StatusOr<std::vector<TokenId>> EncodeRuns(absl::string_view text, absl::Span<const MarkedText::Run> runs) const;
  absl::Status EncodeStretch(absl::string_view stretch, std::vector<TokenId>* ids) const;

  AddedTokenFinder added_tokens_;
  PreTokenizer pre_tokenizer_;
  BytePairMerger merger_;
  std::string token_bytes_;                 // of all ids, one after the other
  std::vector<uint32_t> token_offsets_{0};  // [num_ids + 1] into token_bytes_
  std::vector<bool> is_special_;            // [num_ids]
};

absl::StatusOr<std::unique_ptr<const FileTokenizer>> FileTokenizer::Build(const TokenizerFile& file) {
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Build(file.split_steps));
  ASSIGN_OR_RETURN(BytePairMerger merger, BytePairMerger::Build(file.byte_tokens, file.merges));
  for (const AddedToken& token : file.added_tokens) {
    if (!merger.CanYield(token.id)) continue;
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: added token \"", token.content, "\" has id ",
                                                   token.id, ", which ordinary text can produce too"));
  }
  return std::unique_ptr<const FileTokenizer>(new FileTokenizer(file, std::move(pre_tokenizer), std::move(merger)));
}

FileTokenizer::FileTokenizer(const TokenizerFile& file, PreTokenizer pre_tokenizer, BytePairMerger merger)
    : added_tokens_(file.added_tokens),
      pre_tokenizer_(std::move(pre_tokenizer)),
      merger_(std::move(merger)),
      is_special_(file.token_bytes.size()) {
  for (const AddedToken& token : file.added_tokens) is_special_[token.id] = token.is_special;
  for (const std::string& bytes : file.token_bytes) {
    token_bytes_.append(bytes);
    token_offsets_.push_back(static_cast<uint32_t>(token_bytes_.size()));
  }
  std::vector<absl::string_view> views;
  views.reserve(num_ids());
  for (TokenId id = 0; id < num_ids(); ++id) views.push_back(TokenBytes(id));
  merger_.IndexWholeTokens(views);
}

absl::StatusOr<std::vector<TokenId>> FileTokenizer::Encode(absl::string_view text, AddedTokens added_tokens) const {
  const MarkedText::Run whole{0, text.size(), added_tokens == AddedTokens::kMatch};
  return EncodeRuns(text, absl::MakeConstSpan(&whole, 1));
}

absl::StatusOr<std::vector<TokenId>> FileTokenizer::Encode(const MarkedText& prompt) const {
  return EncodeRuns(prompt.text(), prompt.runs());
}

absl::StatusOr<std::vector<TokenId>> FileTokenizer::EncodeRuns(absl::string_view text,
                                                               absl::Span<const MarkedText::Run> runs) const {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("text has ", text.size(), " bytes, more than the limit of ", kTextBytesMax));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", invalid));
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);
  size_t begin = 0;
  for (const AddedTokenFinder::Occurrence& added : added_tokens_.Find(text, runs)) {
    RETURN_IF_ERROR(EncodeStretch(text.substr(begin, added.begin - begin), &ids));
    ids.push_back(added.id);
    begin = added.end;
  }
  RETURN_IF_ERROR(EncodeStretch(text.substr(begin), &ids));
  return ids;
}

absl::Status FileTokenizer::EncodeStretch(absl::string_view stretch, std::vector<TokenId>* ids) const {
  std::vector<absl::string_view> pieces;
  RETURN_IF_ERROR(pre_tokenizer_.Split(stretch, &pieces));
  for (const absl::string_view piece : pieces) merger_.Merge(piece, ids);
  return absl::OkStatus();
}

absl::string_view FileTokenizer::TokenBytes(TokenId id) const {
  if (id >= num_ids()) return {};
  return absl::string_view(token_bytes_).substr(token_offsets_[id], token_offsets_[id + 1] - token_offsets_[id]);
}

std::string FileTokenizer::Decode(absl::Span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) absl::StrAppend(&bytes, TokenBytes(id));
  std::string text;
  if (AppendDecodedUtf8(bytes, &text) != bytes.size()) absl::StrAppend(&text, kReplacementCharacter);
  return text;
}

std::optional<TokenId> FileTokenizer::FindAddedToken(absl::string_view content) const {
  return added_tokens_.IdOf(content);
}

bool FileTokenizer::IsSpecial(TokenId id) const { return id < is_special_.size() && is_special_[id]; }

TokenId FileTokenizer::num_ids() const { return static_cast<TokenId>(token_offsets_.size() - 1); }

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::ostringstream content;
  content << file.rdbuf();
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read ", path));
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Parse(std::move(content).str());
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(), absl::StrCat(path, ": ", tokenizer.status().message()));
  }
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Parse(absl::string_view tokenizer_json) {
  ASSIGN_OR_RETURN(const TokenizerFile file, ParseTokenizerFile(tokenizer_json));
  return FileTokenizer::Build(file);
}

}  // namespace tandem::router
