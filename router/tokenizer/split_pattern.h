// One `Split` step of a pre-tokenizer: cuts pieces at every match of a pattern; matches and gaps both survive.
//
// The patterns of tokenizer.json are written for Oniguruma and run here on PCRE2. Where the two read the same letters
// differently the pattern is rewritten (`\s` is Unicode's White_Space; PCRE2 adds U+180E) or refused (`\h`, anchors,
// sets inside sets), never run with another meaning. A piece is the whole subject: look-ahead sees its end, not the
// text behind it.
// Tested by split_pattern_test.cc.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

class SplitPattern {
 public:
  // INVALID_ARGUMENT quotes the pattern and the place where it is wrong or not supported.
  static absl::StatusOr<SplitPattern> FromRegex(absl::string_view regex);

  // Matches `literal` itself.
  static absl::StatusOr<SplitPattern> FromLiteral(absl::string_view literal);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // Cuts each of `pieces`, which must be valid UTF-8, and appends the outcome in order; no piece is empty. INTERNAL
  // where the matcher gives up (its limits on backtracking), which a hostile pattern can reach and a hostile text
  // cannot for patterns without nested repetition.
  absl::Status Split(const std::vector<absl::string_view>& pieces, std::vector<absl::string_view>* cut) const;

 private:
  struct Code;
  explicit SplitPattern(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace tandem::router
