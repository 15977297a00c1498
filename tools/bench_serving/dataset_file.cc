// What files of prompts hold. The JSON is other people's: entries may lack anything.
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "tools/bench_serving/dataset.h"

namespace tandem::bench_serving {
namespace {

namespace json = boost::json;

absl::StatusOr<json::value> Parse(absl::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("no JSON: ", error.message()));
  return value;
}

const json::array* FindArray(const json::object& object, const char* name) {
  const json::value* const member = object.if_contains(name);
  return member == nullptr ? nullptr : member->if_array();
}

const json::string* FindText(const json::object& object, const char* name) {
  const json::value* const member = object.if_contains(name);
  return member == nullptr ? nullptr : member->if_string();
}

// The words of a turn: ShareGPT says "value", chat APIs "content".
const json::string* WordsOf(const json::value& turn) {
  const json::object* const object = turn.if_object();
  if (object == nullptr) return nullptr;
  const json::string* const value = FindText(*object, "value");
  return value != nullptr ? value : FindText(*object, "content");
}

const json::array* TurnsOf(const json::object& object) {
  const json::array* const turns = FindArray(object, "conversations");
  return turns != nullptr ? turns : FindArray(object, "conversation");
}

// False where there are no two turns with words.
bool TakeConversation(const json::array& turns, FileEntry* entry) {
  if (turns.size() < 2) return false;
  const json::string* const question = WordsOf(turns[0]);
  const json::string* const answer = WordsOf(turns[1]);
  if (question == nullptr || answer == nullptr) return false;
  entry->prompt.assign(question->data(), question->size());
  entry->completion.assign(answer->data(), answer->size());
  return true;
}

int FindLength(const json::object& object) {
  for (const char* name : {"output_len", "max_completion_tokens", "max_tokens"}) {
    const json::value* const member = object.if_contains(name);
    if (member == nullptr) continue;
    boost::system::error_code error;
    const int length = member->to_number<int>(error);
    if (!error && length > 0) return length;
  }
  return 0;
}

absl::StatusOr<FileEntry> ParseLine(absl::string_view line) {
  ASSIGN_OR_RETURN(const json::value value, Parse(line));
  const json::object* const object = value.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("no JSON object");
  FileEntry entry;
  entry.output_len = FindLength(*object);
  if (const json::array* const turns = TurnsOf(*object)) {
    if (!TakeConversation(*turns, &entry)) {
      return absl::InvalidArgumentError("conversations has no two turns with a \"value\" or \"content\" that is text");
    }
  } else if (const json::array* const messages = FindArray(*object, "messages")) {
    entry.messages = json::serialize(*messages);
  } else if (const json::string* const prompt = FindText(*object, "prompt")) {
    entry.prompt.assign(prompt->data(), prompt->size());
  } else {
    return absl::InvalidArgumentError("none of conversations, messages and prompt");
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<FileEntry>> ParseSharegpt(absl::string_view file) {
  ASSIGN_OR_RETURN(const json::value value, Parse(file));
  const json::array* const conversations = value.if_array();
  if (conversations == nullptr) return absl::InvalidArgumentError("no JSON array of conversations");
  std::vector<FileEntry> entries;
  for (const json::value& conversation : *conversations) {
    const json::object* const object = conversation.if_object();
    const json::array* const turns = object == nullptr ? nullptr : TurnsOf(*object);
    FileEntry entry;
    if (turns != nullptr && TakeConversation(*turns, &entry)) entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<std::vector<FileEntry>> ParseLines(absl::string_view file) {
  std::vector<FileEntry> entries;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(file, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<FileEntry> entry = ParseLine(line);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", std::string(entry.status().message())));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace tandem::bench_serving
