#include "router/constraints/markup.h"

#include <string>
#include <vector>

#include "base/check.h"

namespace tandem::router {

int AddMarkup(Nfa* nfa, int from, absl::string_view markup, const Tokenizer& tokenizer) {
  const auto ids = tokenizer.Encode(markup, Tokenizer::AddedTokens::kMatch);
  TANDEM_CHECK(ids.ok(), "our own markup is UTF-8");
  std::string text;
  for (const TokenId id : *ids) {
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    if (tokenizer.FindAddedToken(bytes) != id) {
      text.append(bytes.data(), bytes.size());
      continue;
    }
    from = nfa->AddText(from, text);
    text.clear();
    const int next = nfa->AddState();
    nfa->AddToken(from, id, next);
    from = next;
  }
  return nfa->AddText(from, text);
}

}  // namespace tandem::router
