#include "router/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/tokenizer/byte_alphabet.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

// Far above any vocabulary; keeps a damaged file from asking for gigabytes of tables.
constexpr int64_t kIdMax = (int64_t{1} << 24) - 1;

absl::Status Invalid(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", field, ": ", what));
}

absl::string_view View(const json::string& text) { return {text.data(), text.size()}; }
absl::string_view View(const json::string_view& text) { return {text.data(), text.size()}; }

// The member, or null where it is absent: the format gives both the same meaning.
const json::value& Member(const json::object& object, absl::string_view name) {
  static const json::value* const kNull = new json::value(nullptr);
  const json::value* const member = object.if_contains(json::string_view(name.data(), name.size()));
  return member == nullptr ? *kNull : *member;
}

bool IsFalseOrAbsent(const json::value& value) { return value.is_null() || (value.is_bool() && !value.get_bool()); }

bool IsEmptyOrAbsent(const json::value& value) {
  return value.is_null() || (value.is_string() && value.get_string().empty());
}

absl::string_view TypeOf(const json::object& object) {
  const json::value& type = Member(object, "type");
  return type.is_string() ? View(type.get_string()) : absl::string_view("(no type)");
}

absl::StatusOr<TokenId> ReadId(absl::string_view field, const json::value& value) {
  if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() > kIdMax) {
    return Invalid(field, absl::StrCat("an id is not an integer in [0, ", kIdMax, "]"));
  }
  return static_cast<TokenId>(value.get_int64());
}

absl::Status CheckModelOptions(const json::object& model) {
  if (TypeOf(model) != "BPE") return Invalid("model.type", absl::StrCat(TypeOf(model), " is not supported, only BPE"));
  if (!Member(model, "dropout").is_null()) return Invalid("model.dropout", "is set: encoding would be random");
  if (!Member(model, "unk_token").is_null()) return Invalid("model.unk_token", "is set: not supported");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!IsEmptyOrAbsent(Member(model, name))) return Invalid(absl::StrCat("model.", name), "is set: not supported");
  }
  for (const char* name : {"byte_fallback", "ignore_merges"}) {
    if (!IsFalseOrAbsent(Member(model, name))) return Invalid(absl::StrCat("model.", name), "is true: not supported");
  }
  return absl::OkStatus();
}

absl::Status CheckNormalizer(const json::value& normalizer) {
  if (normalizer.is_null()) return absl::OkStatus();
  if (!normalizer.is_object()) return Invalid("normalizer", "is not an object");
  const json::value& steps = Member(normalizer.get_object(), "normalizers");
  const bool is_identity =
      TypeOf(normalizer.get_object()) == "Sequence" && steps.is_array() && steps.get_array().empty();
  if (is_identity) return absl::OkStatus();
  return Invalid("normalizer",
                 absl::StrCat(TypeOf(normalizer.get_object()), " is not supported, only null or an empty Sequence"));
}

absl::Status CheckByteLevel(const json::object& step) {
  if (!IsFalseOrAbsent(Member(step, "add_prefix_space"))) {
    return Invalid("pre_tokenizer", "ByteLevel with add_prefix_space is not supported");
  }
  const json::value& use_regex = Member(step, "use_regex");  // true where absent
  if (!use_regex.is_bool() || use_regex.get_bool()) {
    return Invalid("pre_tokenizer", "ByteLevel with use_regex is not supported");
  }
  return absl::OkStatus();
}

absl::StatusOr<SplitStep> ReadSplit(const json::object& step) {
  const json::value& behavior = Member(step, "behavior");
  if (!behavior.is_string() || View(behavior.get_string()) != "Isolated") {
    return Invalid("pre_tokenizer", "a Split has a behavior other than Isolated");
  }
  if (!IsFalseOrAbsent(Member(step, "invert"))) return Invalid("pre_tokenizer", "a Split is inverted");
  const json::value& pattern = Member(step, "pattern");
  if (pattern.is_object()) {
    const json::value& regex = Member(pattern.get_object(), "Regex");
    if (regex.is_string()) return SplitStep{std::string(View(regex.get_string())), true};
    const json::value& literal = Member(pattern.get_object(), "String");
    if (literal.is_string()) return SplitStep{std::string(View(literal.get_string())), false};
  }
  return Invalid("pre_tokenizer", "a Split has no pattern of kind Regex or String");
}

absl::StatusOr<std::vector<SplitStep>> ReadPreTokenizer(const json::value& pre_tokenizer) {
  if (!pre_tokenizer.is_object()) return Invalid("pre_tokenizer", "is not an object");
  std::vector<const json::object*> steps;
  if (TypeOf(pre_tokenizer.get_object()) == "Sequence") {
    const json::value& sequence = Member(pre_tokenizer.get_object(), "pretokenizers");
    if (!sequence.is_array()) return Invalid("pre_tokenizer.pretokenizers", "is not an array");
    for (const json::value& step : sequence.get_array()) {
      if (!step.is_object()) return Invalid("pre_tokenizer.pretokenizers", "holds something other than objects");
      steps.push_back(&step.get_object());
    }
  } else {
    steps.push_back(&pre_tokenizer.get_object());
  }
  if (steps.empty() || TypeOf(*steps.back()) != "ByteLevel") {
    return Invalid("pre_tokenizer", "does not end with a ByteLevel step");
  }
  RETURN_IF_ERROR(CheckByteLevel(*steps.back()));
  steps.pop_back();
  std::vector<SplitStep> splits;
  for (const json::object* step : steps) {
    if (TypeOf(*step) != "Split") {
      return Invalid("pre_tokenizer", absl::StrCat("step ", TypeOf(*step),
                                                   " is not supported, only Split and a final "
                                                   "ByteLevel"));
    }
    ASSIGN_OR_RETURN(SplitStep split, ReadSplit(*step));
    splits.push_back(std::move(split));
  }
  return splits;
}

absl::Status CheckDecoder(const json::value& decoder) {
  if (decoder.is_object() && TypeOf(decoder.get_object()) == "ByteLevel") return absl::OkStatus();
  return Invalid("decoder", "is not of type ByteLevel");
}

using Ids = absl::flat_hash_map<absl::string_view, TokenId>;  // by spelling

absl::Status ReadVocabulary(const json::object& vocabulary, Ids* ids, TokenizerFile* file) {
  ids->reserve(vocabulary.size());
  TokenId id_max = 0;
  for (const auto& entry : vocabulary) {
    ASSIGN_OR_RETURN(const TokenId id, ReadId("model.vocab", entry.value()));
    ids->emplace(View(entry.key()), id);
    id_max = std::max(id_max, id);
  }
  file->token_bytes.resize(size_t{id_max} + 1);
  for (const auto& [spelling, id] : *ids) {
    if (spelling.empty()) return Invalid("model.vocab", "has an empty token");
    if (!file->token_bytes[id].empty()) return Invalid("model.vocab", absl::StrCat("id ", id, " is given twice"));
    // Spellings outside the byte alphabet are copies of added tokens; they stand for their own letters.
    file->token_bytes[id] = BytesFromLetters(spelling).value_or(std::string(spelling));
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    AppendUtf8(ByteLetter(static_cast<uint8_t>(byte)), &letter);
    const auto it = ids->find(letter);
    if (it == ids->end()) return Invalid("model.vocab", absl::StrCat("has no token for byte ", byte));
    file->byte_tokens[byte] = it->second;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::pair<absl::string_view, absl::string_view>> ReadMerge(const json::value& merge) {
  if (merge.is_string()) {
    const absl::string_view both = View(merge.get_string());
    const size_t space = both.find(' ');
    if (space == absl::string_view::npos || both.find(' ', space + 1) != absl::string_view::npos) {
      return Invalid("model.merges", absl::StrCat("\"", both, "\" is not two tokens with a space between"));
    }
    return std::make_pair(both.substr(0, space), both.substr(space + 1));
  }
  if (merge.is_array() && merge.get_array().size() == 2 && merge.get_array()[0].is_string() &&
      merge.get_array()[1].is_string()) {
    return std::make_pair(View(merge.get_array()[0].get_string()), View(merge.get_array()[1].get_string()));
  }
  return Invalid("model.merges", "an entry is neither a string nor an array of two strings");
}

absl::Status ReadMerges(const json::array& merges, const Ids& ids, TokenizerFile* file) {
  file->merges.reserve(merges.size());
  std::string joined;
  for (const json::value& merge : merges) {
    ASSIGN_OR_RETURN(const auto pair, ReadMerge(merge));
    joined = absl::StrCat(pair.first, pair.second);
    TokenId found[3];
    const absl::string_view spellings[3] = {pair.first, pair.second, joined};
    for (int i = 0; i < 3; ++i) {
      const auto it = ids.find(spellings[i]);
      if (it == ids.end()) {
        return Invalid("model.merges",
                       absl::StrCat("rank ", file->merges.size(), ": \"", spellings[i], "\" is not in model.vocab"));
      }
      found[i] = it->second;
    }
    file->merges.push_back({found[0], found[1], found[2]});
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const json::value& added_tokens, TokenizerFile* file) {
  if (added_tokens.is_null()) return absl::OkStatus();
  if (!added_tokens.is_array()) return Invalid("added_tokens", "is not an array");
  for (const json::value& entry : added_tokens.get_array()) {
    if (!entry.is_object()) return Invalid("added_tokens", "holds something other than objects");
    const json::object& token = entry.get_object();
    ASSIGN_OR_RETURN(const TokenId id, ReadId("added_tokens", Member(token, "id")));
    const json::value& content = Member(token, "content");
    if (IsEmptyOrAbsent(content) || !content.is_string()) {
      return Invalid("added_tokens", absl::StrCat("id ", id, " has no content"));
    }
    for (const char* name : {"single_word", "lstrip", "rstrip"}) {
      if (!IsFalseOrAbsent(Member(token, name))) {
        return Invalid("added_tokens",
                       absl::StrCat("\"", View(content.get_string()), "\": ", name, " is not supported"));
      }
    }
    file->added_tokens.push_back({.id = id,
                                  .content = std::string(View(content.get_string())),
                                  .is_special = !IsFalseOrAbsent(Member(token, "special")),
                                  .is_normalized = !IsFalseOrAbsent(Member(token, "normalized"))});
    if (id >= file->token_bytes.size()) file->token_bytes.resize(size_t{id} + 1);
    file->token_bytes[id] = file->added_tokens.back().content;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerFile> ParseTokenizerFile(absl::string_view text) {
  // The parser makes some 400,000 small strings that die together.
  json::monotonic_resource memory(text.size() * 4 + 4096);
  json::error_code error;
  const json::value root = json::parse(json::string_view(text.data(), text.size()), error, &memory);
  if (error) return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: not valid JSON: ", error.message()));
  if (!root.is_object()) return absl::InvalidArgumentError("tokenizer.json: not a JSON object");
  const json::value& model = Member(root.get_object(), "model");
  if (!model.is_object()) return Invalid("model", "is not an object");
  const json::value& vocabulary = Member(model.get_object(), "vocab");
  const json::value& merges = Member(model.get_object(), "merges");
  if (!vocabulary.is_object()) return Invalid("model.vocab", "is not an object");
  if (!merges.is_array()) return Invalid("model.merges", "is not an array");

  TokenizerFile file;
  RETURN_IF_ERROR(CheckModelOptions(model.get_object()));
  RETURN_IF_ERROR(CheckNormalizer(Member(root.get_object(), "normalizer")));
  RETURN_IF_ERROR(CheckDecoder(Member(root.get_object(), "decoder")));
  ASSIGN_OR_RETURN(file.split_steps, ReadPreTokenizer(Member(root.get_object(), "pre_tokenizer")));
  Ids ids;
  RETURN_IF_ERROR(ReadVocabulary(vocabulary.get_object(), &ids, &file));
  RETURN_IF_ERROR(ReadMerges(merges.get_array(), ids, &file));
  RETURN_IF_ERROR(ReadAddedTokens(Member(root.get_object(), "added_tokens"), &file));
  return file;
}

}  // namespace tandem::router
