// Random JSON Schemas of what is enforced, as text: the same seed gives the same schema.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::testing {

class RandomSchema {
 public:
  explicit RandomSchema(uint32_t seed) : random_(seed) {}

  // depth: of containers below it.
  std::string Write(int depth) {
    switch (Below(depth > 0 ? 13 : 8)) {
      case 0:
        return R"({"type":"null"})";
      case 1:
        return R"({"type":"boolean"})";
      case 2: {
        const int min = Below(200) - 100;
        return absl::StrCat(R"({"type":")", Below(2) == 0 ? "integer" : "number", R"(","minimum":)", min,
                            R"(,"maximum":)", min + 1 + Below(300), "}");
      }
      case 3:
        return Below(2) == 0 ? R"({"type":"integer"})" : R"({"type":"number"})";
      case 4: {
        const int min = Below(4);
        return absl::StrCat(R"({"type":"string","minLength":)", min, R"(,"maxLength":)", min + Below(9), "}");
      }
      case 5: {
        static constexpr const char* kPatterns[] = {
            "^[a-z]{2,5}$", "^(foo|bar)+[0-9]?$", "^\\\\d{3}-\\\\d{2}$", "^[^x]{0,4}$", "a.c", "^\\\"q\\\\\\\\w$"};
        return absl::StrCat(R"({"type":"string","pattern":")", kPatterns[Below(6)], R"(","maxLength":12})");
      }
      case 6:
        return R"({"enum":["red","gre\"en",7,null,true,"ü"]})";
      case 7: {
        static constexpr const char* kFormats[] = {"date", "time", "date-time", "uuid", "ipv4", "email"};
        return absl::StrCat(R"({"type":"string","format":")", kFormats[Below(6)], R"("})");
      }
      case 8:
      case 9:
        return Object(depth);
      case 10: {
        const int min = Below(3);
        return absl::StrCat(R"({"type":"array","items":)", Write(depth - 1), R"(,"minItems":)", min, R"(,"maxItems":)",
                            min + Below(4), "}");
      }
      case 11:
        return absl::StrCat(R"({"anyOf":[)", Write(depth - 1), ",", Write(depth - 1), "]}");
      default:
        return absl::StrCat(R"({"type":"array","prefixItems":[)", Write(depth - 1), ",", Write(0),
                            R"(],"items":false,"minItems":2})");
    }
  }

 private:
  int Below(int end) { return static_cast<int>(random_() % static_cast<uint32_t>(end)); }

  std::string Object(int depth) {
    const int num_members = Below(4);
    std::string properties, required;
    for (int i = 0; i < num_members; ++i) {
      absl::StrAppend(&properties, i == 0 ? "" : ",", "\"k", i, "\":", Write(depth - 1));
      if (Below(2) == 0) absl::StrAppend(&required, required.empty() ? "" : ",", "\"k", i, "\"");
    }
    static constexpr const char* kOthers[] = {"", R"(,"additionalProperties":false)",
                                              R"(,"additionalProperties":{"type":"integer"})"};
    return absl::StrCat(R"({"type":"object","properties":{)", properties, R"(},"required":[)", required, "]",
                        kOthers[Below(3)], "}");
  }

  std::mt19937 random_;
};

}  // namespace tandem::testing
