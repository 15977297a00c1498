// The text that the tokenizer's merges are trained on: English, German, Chinese, Japanese and code, written for this
// purpose. Changing one byte of it changes every checkpoint's tokenizer.
#pragma once

#include <string_view>

namespace tandem::make_checkpoint {

extern const std::string_view kSampleText;

}  // namespace tandem::make_checkpoint
