#include "tools/make_checkpoint/bpe_trainer.h"

#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"

namespace tandem::make_checkpoint {
namespace {

// Longer tokens would be whole clauses of a text without spaces.
constexpr size_t kTokenBytesMax = 24;

enum class CharClass { kLetter, kDigit, kCjk, kPunctuation, kSpace };

struct Char {
  size_t num_bytes;
  CharClass char_class;
};

// The sample text is ours and valid UTF-8; any other byte counts as one letter.
Char ReadChar(std::string_view text) {
  const uint8_t lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) {
    if (lead == ' ' || lead == '\n' || lead == '\t' || lead == '\r') return {1, CharClass::kSpace};
    if (lead >= '0' && lead <= '9') return {1, CharClass::kDigit};
    const bool is_letter = (lead >= 'a' && lead <= 'z') || (lead >= 'A' && lead <= 'Z');
    return {1, is_letter ? CharClass::kLetter : CharClass::kPunctuation};
  }
  const size_t num_bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  if (num_bytes > text.size()) return {1, CharClass::kLetter};
  uint32_t code = lead & (0xffu >> (num_bytes + 1));
  for (size_t i = 1; i < num_bytes; ++i) code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3fu);
  if ((code >= 0x4e00 && code <= 0x9fa5) || (code >= 0x3040 && code <= 0x30ff)) return {num_bytes, CharClass::kCjk};
  if ((code >= 0x3000 && code < 0x3040) || code >= 0xff00) return {num_bytes, CharClass::kPunctuation};
  return {num_bytes, CharClass::kLetter};
}

struct Word {
  std::vector<int> symbols;
  int count = 0;
};

using Pair = std::pair<int, int>;

// Words, the counts of their adjacent pairs, and what each symbol spells.
class PairCounts final {
 public:
  explicit PairCounts(std::string_view text) {
    for (int byte = 0; byte < 256; ++byte) spelling_.push_back(std::string(1, static_cast<char>(byte)));
    std::map<std::string_view, int> piece_counts;
    for (std::string_view piece : SplitIntoPieces(text)) ++piece_counts[piece];
    for (const auto& [piece, count] : piece_counts) {
      Word word;
      for (char c : piece) word.symbols.push_back(static_cast<uint8_t>(c));
      word.count = count;
      words_.push_back(std::move(word));
      Count(words_.back(), +1);
    }
  }

  // False where no pair is left.
  bool FindBest(Pair* best) const {
    int best_count = 0;
    for (const auto& [pair, count] : counts_) {
      if (spelling_[pair.first].size() + spelling_[pair.second].size() > kTokenBytesMax) continue;
      if (count > best_count || (count == best_count && count > 0 && ComesFirst(pair, *best))) {
        best_count = count;
        *best = pair;
      }
    }
    return best_count > 0;
  }

  void Merge(Pair pair) {
    const int merged = static_cast<int>(spelling_.size());
    spelling_.push_back(spelling_[pair.first] + spelling_[pair.second]);
    for (Word& word : words_) {
      if (!Contains(word, pair)) continue;
      Count(word, -1);
      std::vector<int> symbols;
      for (size_t i = 0; i < word.symbols.size(); ++i) {
        const bool is_pair =
            i + 1 < word.symbols.size() && word.symbols[i] == pair.first && word.symbols[i + 1] == pair.second;
        symbols.push_back(is_pair ? merged : word.symbols[i]);
        if (is_pair) ++i;
      }
      word.symbols = std::move(symbols);
      Count(word, +1);
    }
  }

  const std::string& spelling(int symbol) const { return spelling_[symbol]; }

 private:
  bool ComesFirst(const Pair& a, const Pair& b) const {
    return std::tie(spelling_[a.first], spelling_[a.second]) < std::tie(spelling_[b.first], spelling_[b.second]);
  }
  static bool Contains(const Word& word, const Pair& pair) {
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      if (word.symbols[i] == pair.first && word.symbols[i + 1] == pair.second) return true;
    }
    return false;
  }
  void Count(const Word& word, int sign) {
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      auto it = counts_.try_emplace({word.symbols[i], word.symbols[i + 1]}, 0).first;
      it->second += sign * word.count;
      if (it->second == 0) counts_.erase(it);
    }
  }

  std::vector<std::string> spelling_;
  std::vector<Word> words_;
  absl::flat_hash_map<Pair, int> counts_;
};

}  // namespace

std::vector<std::string_view> SplitIntoPieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  while (begin < text.size()) {
    Char first = ReadChar(text.substr(begin));
    size_t end = begin + first.num_bytes;
    CharClass run = first.char_class;
    // One space joins the word or the punctuation after it.
    if (text[begin] == ' ' && end < text.size()) {
      const CharClass next = ReadChar(text.substr(end)).char_class;
      if (next == CharClass::kLetter || next == CharClass::kPunctuation) run = next;
    }
    while (run != CharClass::kDigit && end < text.size()) {
      const Char next = ReadChar(text.substr(end));
      if (next.char_class != run) break;
      // The last space of a run belongs to the word after it.
      if (run == CharClass::kSpace && text[end] == ' ' && end + 1 < text.size() &&
          ReadChar(text.substr(end + 1)).char_class != CharClass::kSpace) {
        break;
      }
      end += next.num_bytes;
    }
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

std::vector<std::pair<std::string, std::string>> TrainMerges(std::string_view text, int num_merges_max) {
  PairCounts counts(text);
  // Two ways to build the same spelling would give one token two ids: the later one is skipped, by merging it without
  // listing it, so that it is not found again.
  std::set<std::string> known;
  std::vector<std::pair<std::string, std::string>> merges;
  Pair best;
  while (static_cast<int>(merges.size()) < num_merges_max && counts.FindBest(&best)) {
    std::string left = counts.spelling(best.first);
    std::string right = counts.spelling(best.second);
    counts.Merge(best);
    if (known.insert(left + right).second) merges.emplace_back(std::move(left), std::move(right));
  }
  return merges;
}

}  // namespace tandem::make_checkpoint
