// What the workers take a token for is what the router takes it for: both read one tokenizer.json, each by code of its
// own.
#include "model/token_mask/token_bytes.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/tokenizer/tokenizer.h"
#include "tools/make_checkpoint/tokenizer_json.h"

namespace tandem {
namespace {

void ExpectTheSame(const std::string& tokenizer_json) {
  const auto tokenizer = router::Tokenizer::Parse(tokenizer_json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto num_ids = static_cast<int>((*tokenizer)->num_ids());
  const absl::StatusOr<std::vector<std::string>> bytes = model::ParseTokenBytes(tokenizer_json, num_ids);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  ASSERT_EQ(static_cast<int>(bytes->size()), num_ids);
  int num_marks = 0;
  for (int id = 0; id < num_ids; ++id) {
    const absl::string_view text = (*tokenizer)->TokenBytes(static_cast<router::TokenId>(id));
    const auto mark = (*tokenizer)->FindAddedToken(text);
    if (mark.has_value() && *mark == static_cast<router::TokenId>(id)) {
      ++num_marks;
      EXPECT_EQ((*bytes)[id], "") << "a mark stands for itself: " << text;
    } else {
      EXPECT_EQ((*bytes)[id], text) << id;
    }
  }
  EXPECT_GT(num_marks, 5);
  EXPECT_GT(num_ids, num_marks + 256);
}

TEST(TokenBytesTest, RouterAndWorkersAgreeOnEveryToken) {
  for (const int vocab_size : {600, 1024, 4096}) ExpectTheSame(make_checkpoint::BuildTokenizerJson(vocab_size));
}

}  // namespace
}  // namespace tandem
