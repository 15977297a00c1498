// Trains byte-pair merges on a text, deterministically: the most frequent pair first, equal counts by the bytes of the
// pair. A text of kilobytes is enough: merges go on until every piece is one token, if so many are wanted.
// Tested by bpe_trainer_test.cc.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::make_checkpoint {

// Cuts text into the pieces that merges stay within: a run of letters with the one space before it, a single digit, a
// run of CJK characters, a run of punctuation, a run of white space. Coarser than the tokenizer's own pre-tokenizer
// only where that cannot matter: a merge that no piece contains is never used.
std::vector<std::string_view> SplitIntoPieces(std::string_view text);

// At most num_merges_max merges, as (left bytes, right bytes), in order of rank.
std::vector<std::pair<std::string, std::string>> TrainMerges(std::string_view text, int num_merges_max);

}  // namespace tandem::make_checkpoint
