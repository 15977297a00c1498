// A tokenizer whose tokens spell their own ids: token 17 is "17 ". So a text says which tokens made it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::sim {

class NumberTokenizer final : public router::Tokenizer {
 public:
  explicit NumberTokenizer(router::TokenId num_ids) {
    for (router::TokenId id = 0; id < num_ids; ++id) words_.push_back(absl::StrCat(id, " "));
  }

  absl::StatusOr<std::vector<router::TokenId>> Encode(absl::string_view, AddedTokens) const override {
    return absl::UnimplementedError("prompts are made of ids here");
  }
  absl::StatusOr<std::vector<router::TokenId>> Encode(const router::MarkedText&) const override {
    return absl::UnimplementedError("prompts are made of ids here");
  }
  absl::string_view TokenBytes(router::TokenId id) const override {
    return id < words_.size() ? absl::string_view(words_[id]) : absl::string_view();
  }
  std::string Decode(absl::Span<const router::TokenId> ids) const override {
    std::string text;
    for (const router::TokenId id : ids) absl::StrAppend(&text, TokenBytes(id));
    return text;
  }
  std::optional<router::TokenId> FindAddedToken(absl::string_view) const override { return std::nullopt; }
  bool IsSpecial(router::TokenId) const override { return false; }
  router::TokenId num_ids() const override { return static_cast<router::TokenId>(words_.size()); }

 private:
  std::vector<std::string> words_;
};

}  // namespace tandem::sim
