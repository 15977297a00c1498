#include "router/tokenizer/small_tokenizer.h"

#include <boost/json.hpp>

#include "base/check.h"
#include "router/tokenizer/byte_alphabet.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

constexpr int kFirstByteId = 3;

std::string Spell(const std::string& bytes) {
  std::string spelling;
  for (const char byte : bytes) AppendUtf8(ByteLetter(static_cast<uint8_t>(byte)), &spelling);
  return spelling;
}

json::object MakeModel(const SmallVocabulary& vocabulary, int* num_ids) {
  json::object ids;
  json::array merges;
  *num_ids = kFirstByteId;
  for (int byte = 0; byte < 256; ++byte) ids[Spell(std::string(1, static_cast<char>(byte)))] = (*num_ids)++;
  for (const auto& [left, right] : vocabulary.merges) {
    const std::string merged = Spell(left + right);
    if (!ids.contains(merged)) ids[merged] = (*num_ids)++;
    if (vocabulary.has_merges_as_arrays) {
      merges.push_back(json::array{Spell(left), Spell(right)});
    } else {
      merges.push_back(json::value(Spell(left) + " " + Spell(right)));
    }
  }
  return {{"type", "BPE"},          {"dropout", nullptr}, {"unk_token", nullptr},       {"fuse_unk", false},
          {"byte_fallback", false}, {"vocab", ids},       {"merges", std::move(merges)}};
}

json::array MakeAddedTokens(const SmallVocabulary& vocabulary, int num_ids) {
  json::array added_tokens;
  for (const AddedToken& token : vocabulary.added_tokens) {
    const size_t place = added_tokens.size();
    added_tokens.push_back(json::object{{"id", place < kFirstByteId ? static_cast<int>(place) : num_ids++},
                                        {"content", token.content},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", token.is_normalized},
                                        {"special", token.is_special}});
  }
  return added_tokens;
}

}  // namespace

std::string SmallTokenizerJson(const SmallVocabulary& vocabulary) {
  json::array steps;
  for (const std::string& pattern : vocabulary.patterns) {
    steps.push_back(json::object{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(
      json::object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  int num_ids = 0;
  json::object model = MakeModel(vocabulary, &num_ids);
  return json::serialize(json::object{{"version", "1.0"},
                                      {"truncation", nullptr},
                                      {"padding", nullptr},
                                      {"added_tokens", MakeAddedTokens(vocabulary, num_ids)},
                                      {"normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}},
                                      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}},
                                      {"post_processor", nullptr},
                                      {"decoder", {{"type", "ByteLevel"}}},
                                      {"model", std::move(model)}});
}

std::unique_ptr<const Tokenizer> MakeSmallTokenizer(const SmallVocabulary& vocabulary) {
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Parse(SmallTokenizerJson(vocabulary));
  TANDEM_CHECK(tokenizer.ok(), std::string(tokenizer.status().message()));
  return *std::move(tokenizer);
}

}  // namespace tandem::router
