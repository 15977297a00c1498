// The text of the simulator's tokens, for constraints: token i is the i-th character from '!' on; stop ids are theirs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/token_mask/vocabulary.h"

namespace tandem::sim {

inline std::shared_ptr<const model::Vocabulary> SimVocabulary(int vocab_size) {
  std::vector<std::string> bytes;
  for (int token = 0; token < vocab_size; ++token) {
    bytes.push_back('!' + token < 0x7F ? std::string(1, static_cast<char>('!' + token)) : std::string());
  }
  return std::make_shared<const model::Vocabulary>(std::move(bytes));
}

}  // namespace tandem::sim
