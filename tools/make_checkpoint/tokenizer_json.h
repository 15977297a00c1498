// tokenizer.json and tokenizer_config.json of DeepSeek's structure (specification, section 7) for a small vocabulary:
// ids 0 to 2 BOS, EOS, pad; 256 byte symbols; merges; place holders; the chat and tool markers at the end.
// Tested by tokenizer_json_test.cc.
#pragma once

#include <string>

namespace tandem::make_checkpoint {

// Ids 0 .. vocab_size - 1 all have an entry. vocab_size: at least 300.
std::string BuildTokenizerJson(int vocab_size);
std::string BuildTokenizerConfigJson();

}  // namespace tandem::make_checkpoint
