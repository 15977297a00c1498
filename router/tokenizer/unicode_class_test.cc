// Compares the table with PCRE2's properties, code point by code point. PCRE2 of this system knows an older Unicode:
// what it has not assigned is left out, and the few characters whose category has changed since are listed.
#include "router/tokenizer/unicode_class.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "router/tokenizer/split_pattern.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

class Property {
 public:
  explicit Property(const char* regex) : pattern_(SplitPattern::FromRegex(regex)) {
    EXPECT_TRUE(pattern_.ok()) << pattern_.status();
  }

  // Two of a character are two pieces if each is a match, else one gap.
  bool Has(uint32_t code_point) const {
    std::string text;
    AppendUtf8(code_point, &text);
    AppendUtf8(code_point, &text);
    std::vector<absl::string_view> pieces;
    EXPECT_TRUE(pattern_->Split({text}, &pieces).ok());
    return pieces.size() == 2;
  }

 private:
  absl::StatusOr<SplitPattern> pattern_;
};

TEST(UnicodeClassTest, AgreesWithPcre2OnWhatPcre2Knows) {
  const std::pair<UnicodeClass, Property> kProperties[] = {
      {UnicodeClass::kLetter, Property("\\p{L}")},       {UnicodeClass::kMark, Property("\\p{M}")},
      {UnicodeClass::kNumber, Property("\\p{N}")},       {UnicodeClass::kPunctuation, Property("\\p{P}")},
      {UnicodeClass::kSymbol, Property("\\p{S}")},       {UnicodeClass::kNewline, Property("[\r\n]")},
      {UnicodeClass::kSpace, Property("(?![\r\n])\\s")},
  };
  const Property unassigned("\\p{Cn}");
  std::set<uint32_t> different;
  int num_compared = 0;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if ((c >= 0xD800 && c <= 0xDFFF) || unassigned.Has(c)) continue;
    UnicodeClass expected = UnicodeClass::kOther;
    for (const auto& [name, property] : kProperties) {
      if (property.Has(c)) expected = name;
    }
    if (UnicodeClasses::Get().Of(c) != expected) different.insert(c);
    ++num_compared;
  }
  EXPECT_GT(num_compared, 280000);
  EXPECT_EQ(different, std::set<uint32_t>{});
}

TEST(UnicodeClassTest, KnowsCharactersThatAreYoungerThanPcre2) {
  const UnicodeClasses& classes = UnicodeClasses::Get();
  EXPECT_EQ(classes.Of(0x1FAE8), UnicodeClass::kSymbol);  // shaking face, Unicode 15.0
  EXPECT_EQ(classes.Of(0x31350), UnicodeClass::kLetter);  // ideograph, 15.0
  EXPECT_EQ(classes.Of(0x2FFC), UnicodeClass::kSymbol);   // ideographic description, 15.1
  EXPECT_EQ(classes.Of(0x1FAE9), UnicodeClass::kSymbol);  // face with bags under eyes, 16.0
  EXPECT_EQ(classes.Of(0x1CCF0), UnicodeClass::kNumber);  // outlined digit, 16.0
  EXPECT_EQ(classes.Of(0x10FFFF), UnicodeClass::kOther);
}

}  // namespace
}  // namespace tandem::router
