#include "tools/make_checkpoint/tokenizer_json.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "tools/make_checkpoint/bpe_trainer.h"
#include "tools/make_checkpoint/sample_text.h"

namespace tandem::make_checkpoint {
namespace {

constexpr int kNumFirstTokens = 3;
constexpr int kNumPlaceHoldersMin = 16;
constexpr char kBos[] = "<｜begin▁of▁sentence｜>";
constexpr char kEos[] = "<｜end▁of▁sentence｜>";
constexpr char kPad[] = "<｜▁pad▁｜>";

struct Marker {
  const char* content;
  bool is_special;
};

// In the order of their ids, which end the vocabulary.
constexpr Marker kMarkers[] = {
    {"<｜search▁begin｜>", false},
    {"<｜search▁end｜>", false},
    {"<think>", false},
    {"</think>", false},
    {"<｜fim▁hole｜>", false},
    {"<｜fim▁begin｜>", false},
    {"<｜fim▁end｜>", false},
    {"<｜User｜>", false},
    {"<｜Assistant｜>", false},
    {"<|EOT|>", true},
    {"<｜tool▁calls▁begin｜>", false},
    {"<｜tool▁calls▁end｜>", false},
    {"<｜tool▁call▁begin｜>", false},
    {"<｜tool▁call▁end｜>", false},
    {"<｜tool▁outputs▁begin｜>", false},
    {"<｜tool▁outputs▁end｜>", false},
    {"<｜tool▁output▁begin｜>", false},
    {"<｜tool▁output▁end｜>", false},
    {"<｜tool▁sep｜>", false},
    {"｜DSML｜", true},
};
constexpr int kNumMarkers = static_cast<int>(std::size(kMarkers));

// The three Split patterns, in order.
constexpr const char* kSplitPatterns[] = {
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

std::string Utf8(uint32_t code) {
  TANDEM_CHECK(code < 0x800, "byte symbols lie below U+0800");
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// The printable character that stands for each byte, and the bytes in the order of those characters.
struct ByteSymbols {
  std::string symbol[256];
  std::vector<int> by_code_point;

  ByteSymbols() {
    std::vector<int> others;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      symbol[byte] = Utf8(is_itself ? byte : 0x100 + static_cast<int>(others.size()));
      (is_itself ? by_code_point : others).push_back(byte);
    }
    by_code_point.insert(by_code_point.end(), others.begin(), others.end());
  }
  std::string Spell(std::string_view bytes) const {
    std::string text;
    for (char c : bytes) text += symbol[static_cast<uint8_t>(c)];
    return text;
  }
};

boost::json::object AddedToken(int id, std::string_view content, bool is_special, bool is_normalized) {
  return {{"id", id},        {"content", content},          {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", is_normalized}, {"special", is_special}};
}

boost::json::object ByteLevel(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

boost::json::object PreTokenizer() {
  boost::json::array stages;
  for (const char* pattern : kSplitPatterns) {
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  stages.push_back(ByteLevel(false, true, false));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(stages)}};
}

}  // namespace

std::string BuildTokenizerJson(int vocab_size) {
  const int num_merges_max = vocab_size - kNumFirstTokens - 256 - kNumPlaceHoldersMin - kNumMarkers;
  TANDEM_CHECK(num_merges_max >= 0, "the vocabulary holds its fixed tokens");
  const ByteSymbols symbols;
  boost::json::object vocab;
  boost::json::array added;
  int next_id = 0;
  for (const char* content : {kBos, kEos, kPad}) {
    added.push_back(AddedToken(next_id, content, true, false));
    vocab[content] = next_id++;
  }
  for (int byte : symbols.by_code_point) vocab[symbols.symbol[byte]] = next_id++;
  boost::json::array merges;
  for (const auto& [left, right] : TrainMerges(kSampleText, num_merges_max)) {
    const std::string left_symbols = symbols.Spell(left);
    const std::string right_symbols = symbols.Spell(right);
    merges.emplace_back(absl::StrCat(left_symbols, " ", right_symbols));
    vocab[absl::StrCat(left_symbols, right_symbols)] = next_id++;
  }
  for (int number = 0; next_id < vocab_size - kNumMarkers; ++number) {
    added.push_back(AddedToken(next_id++, absl::StrCat("<｜place▁holder▁no▁", number, "｜>"), true, false));
  }
  for (const Marker& marker : kMarkers) {
    added.push_back(AddedToken(next_id++, marker.content, marker.is_special, !marker.is_special));
  }
  TANDEM_CHECK(next_id == vocab_size, "every id has an entry");

  const boost::json::object model = {{"type", "BPE"},
                                     {"dropout", nullptr},
                                     {"unk_token", nullptr},
                                     {"continuing_subword_prefix", nullptr},
                                     {"end_of_word_suffix", nullptr},
                                     {"fuse_unk", false},
                                     {"byte_fallback", false},
                                     {"vocab", std::move(vocab)},
                                     {"merges", std::move(merges)}};
  const boost::json::object root = {{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", std::move(added)},
                                    {"normalizer", {{"type", "Sequence"}, {"normalizers", boost::json::array()}}},
                                    {"pre_tokenizer", PreTokenizer()},
                                    {"post_processor", ByteLevel(true, false, true)},
                                    {"decoder", ByteLevel(true, true, true)},
                                    {"model", model}};
  return boost::json::serialize(root);
}

std::string BuildTokenizerConfigJson() {
  auto token = [](const char* content) {
    return boost::json::object{{"__type", "AddedToken"}, {"content", content}, {"lstrip", false},
                               {"normalized", true},     {"rstrip", false},    {"single_word", false}};
  };
  return boost::json::serialize(boost::json::object{{"add_bos_token", false},
                                                    {"add_eos_token", false},
                                                    {"bos_token", token(kBos)},
                                                    {"clean_up_tokenization_spaces", false},
                                                    {"eos_token", token(kEos)},
                                                    {"legacy", true},
                                                    {"model_max_length", 131072},
                                                    {"pad_token", token(kEos)},
                                                    {"unk_token", nullptr},
                                                    {"tokenizer_class", "LlamaTokenizerFast"}});
}

}  // namespace tandem::make_checkpoint
