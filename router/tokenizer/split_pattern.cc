#include "router/tokenizer/split_pattern.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/tokenizer/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tandem::router {
namespace {

// Unicode's White_Space, as the inside of a character class.
constexpr absl::string_view kWhiteSpace =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

absl::Status Unsupported(absl::string_view regex, size_t offset, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("pattern \"", absl::Utf8SafeCEscape(regex), "\" at byte ", offset, ": ", what));
}

// Rewrites an Oniguruma pattern into one that PCRE2 reads the same way.
absl::StatusOr<std::string> ToPcre2(absl::string_view regex) {
  std::string rewritten;
  bool in_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      const char escaped = regex[i + 1];
      if (escaped == 's') {
        absl::StrAppend(&rewritten, in_class ? "" : "[", kWhiteSpace, in_class ? "" : "]");
      } else if (escaped == 'S' && !in_class) {
        absl::StrAppend(&rewritten, "[^", kWhiteSpace, "]");
      } else if (escaped == 'S' || absl::string_view("hHKRXAZzGQEbBwWgk").find(escaped) != absl::string_view::npos) {
        return Unsupported(regex, i, absl::StrCat("\\", std::string(1, escaped), " is not supported here"));
      } else {
        absl::StrAppend(&rewritten, regex.substr(i, 2));
      }
      ++i;
      continue;
    }
    if (in_class) {
      if (c == '[' || regex.substr(i, 2) == "&&") return Unsupported(regex, i, "sets inside sets are not supported");
      if (c == ']') in_class = false;
    } else if (c == '[') {
      in_class = true;
      if (regex.substr(i + 1, 1) == "]" || regex.substr(i + 1, 2) == "^]") {
        return Unsupported(regex, i, "a set that begins with ] is not supported");
      }
    } else if (c == '^' || c == '$') {
      return Unsupported(regex, i, "anchors are not supported");
    }
    rewritten.push_back(c);
  }
  return rewritten;
}

std::string Pcre2Error(int code) {
  PCRE2_UCHAR message[256];
  pcre2_get_error_message(code, message, sizeof(message));
  return reinterpret_cast<const char*>(message);
}

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct SplitPattern::Code {
  ~Code() { pcre2_code_free(compiled); }

  // Finds the first match in `subject` from byte `offset` on: PCRE2's answer, with the match in *data. The code of a
  // pattern is shared by threads, the match data are the caller's.
  int Match(absl::string_view subject, size_t offset, pcre2_match_data* data) const {
    const PCRE2_SPTR begin = reinterpret_cast<PCRE2_SPTR>(subject.data());
    const int rc = pcre2_match(compiled, begin, subject.size(), offset, PCRE2_NO_UTF_CHECK, data, nullptr);
    // The compiled code keeps its backtracking on a small stack; the interpreter keeps it on the heap.
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    return pcre2_match(compiled, begin, subject.size(), offset, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, nullptr);
  }

  pcre2_code* compiled = nullptr;
  std::string regex;
};

SplitPattern::SplitPattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

absl::StatusOr<SplitPattern> SplitPattern::FromRegex(absl::string_view regex) {
  ASSIGN_OR_RETURN(const std::string rewritten, ToPcre2(regex));
  auto code = std::make_unique<Code>();
  code->regex = std::string(regex);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  code->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &error_offset, nullptr);
  if (code->compiled == nullptr) {
    return Unsupported(rewritten, error_offset, Pcre2Error(error));
  }
  // Without just-in-time code (an odd CPU) matching is slower, not different.
  error = pcre2_jit_compile(code->compiled, PCRE2_JIT_COMPLETE);
  if (error != 0 && error != PCRE2_ERROR_JIT_BADOPTION) {
    return absl::InternalError(absl::StrCat("pcre2 cannot compile \"", absl::Utf8SafeCEscape(regex),
                                            "\" to machine code: ", Pcre2Error(error)));
  }
  return SplitPattern(std::move(code));
}

absl::StatusOr<SplitPattern> SplitPattern::FromLiteral(absl::string_view literal) {
  if (literal.empty()) return absl::InvalidArgumentError("a split pattern is empty");
  std::string regex;
  for (const char c : literal) {
    // Every ASCII character that is no letter, digit or control may be escaped, whether or not it means anything.
    if (static_cast<unsigned char>(c) < 0x80 && absl::ascii_ispunct(c)) regex.push_back('\\');
    regex.push_back(c);
  }
  return FromRegex(regex);
}

absl::Status SplitPattern::Split(const std::vector<absl::string_view>& pieces,
                                 std::vector<absl::string_view>* cut) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create_from_pattern(code_->compiled, nullptr));
  const PCRE2_SIZE* const match = pcre2_get_ovector_pointer(data.get());
  for (const absl::string_view piece : pieces) {
    size_t emitted = 0;  // everything before is in *cut
    size_t search = 0;
    while (search <= piece.size()) {
      const int rc = code_->Match(piece, search, data.get());
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        return absl::InternalError(absl::StrCat("pattern \"", absl::Utf8SafeCEscape(code_->regex), "\" on a piece of ",
                                                piece.size(), " bytes: ", Pcre2Error(rc)));
      }
      const size_t begin = match[0], end = match[1];
      if (begin > emitted) cut->push_back(piece.substr(emitted, begin - emitted));
      if (end > begin) cut->push_back(piece.substr(begin, end - begin));
      emitted = end;
      search = end;
      if (end == begin) {  // an empty match cuts and takes nothing: go on one character further
        if (end == piece.size()) break;
        search += DecodeUtf8(piece.substr(end)).length;
      }
    }
    if (emitted < piece.size()) cut->push_back(piece.substr(emitted));
  }
  return absl::OkStatus();
}

}  // namespace tandem::router
