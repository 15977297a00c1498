// Input: a byte that says how to cut, then the answer. The splitter must give what a search for the marker gives.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "router/parsing/reasoning_splitter.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using tandem::router::AnswerDelta;
  using tandem::router::ReasoningSplitter;
  if (size < 1) return 0;
  const std::string text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  ReasoningSplitter splitter(ReasoningSplitter::State::kReasoning);
  AnswerDelta delta;
  const size_t length = 1 + bytes[0] % 16;
  for (size_t at = 0; at < text.size(); at += length)
    splitter.Append(absl::string_view(text).substr(at, length), &delta);
  splitter.Finish(&delta);
  const size_t marker = text.find("</think>");
  const std::string content = marker == std::string::npos ? "" : text.substr(marker + 8);
  if (delta.reasoning != text.substr(0, marker) || delta.content != content) std::abort();
  return 0;
}
