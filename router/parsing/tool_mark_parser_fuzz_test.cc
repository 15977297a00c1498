// Input: a byte of switches (thinking, cut, one call, calls hidden), a byte that says how to cut, then the answer. The
// parser must give over the pieces what it gives over the whole, and put no mark of the answer into reasoning or
// content.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "router/parsing/fuzzed_answer.h"

using namespace tandem::router;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  const FuzzedAnswer whole = ParseInPieces(CallMarkup::kToolMarks, bytes[0], text, text.size() + 1);
  if (ParseInPieces(CallMarkup::kToolMarks, bytes[0], text, 1 + bytes[1] % 16) != whole) std::abort();
  for (const std::string& shown : {whole.reasoning, whole.content}) {
    for (const char* mark :
         {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}) {
      if (absl::StrContains(shown, mark) && !MayComeTogether(text, mark)) std::abort();
    }
  }
  return 0;
}
