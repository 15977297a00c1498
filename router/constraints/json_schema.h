// JSON Schema to grammar: the answers are values that the schema allows.
//
// Exact in one direction: every answer is valid. The other way it is narrower where a generated answer needs no more
// (docs/structured_output.md lists all): members come in the order of `properties`; an object that names properties
// and does not speak of additionalProperties has none but those; strings with a pattern or a length are written
// without needless escapes; a schema without a type is read by the keywords that it has. Keywords that would make
// a valid value invalid and are not enforced are refused, with the JSON pointer where they stand; annotations and
// unknown words are ignored.
//
// A subschema that is an object, an array or referred to is a rule, so that schemas may refer to themselves. Work is
// bounded: in states (grammar.h) and in the values that merging allOf and anyOf's neighbours copies.
// Tested by json_schema_test.cc and //tests/constraints.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/chat/ordered_json.h"
#include "router/constraints/grammar.h"
#include "router/constraints/json_grammar.h"

namespace tandem::router {

class JsonSchema final {
 public:
  // Which values of a schema, and how they are written.
  enum class Form {
    kJson,
    kJsonButStrings,  // those that are no strings
    kBareStrings,     // the characters of those that are
  };

  // All outlive it. field: where errors are laid ("response_format.json_schema.schema"). bare_text: what the characters
  // of bare strings must be.
  JsonSchema(const OrderedJson& root, std::string field, Grammar* grammar, const JsonGrammar* json, Dfa bare_text);

  // INVALID_ARGUMENT as an error of the field. Define() must follow before the grammar is finished.
  absl::Status AddValue(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, Form form, int to);
  absl::Status AddRoot(Nfa* nfa, int from, int to) { return AddValue(nfa, from, root_, "", Form::kJson, to); }
  // Defines all rules that have been called.
  absl::Status Define();

  // The members that a value of the schema, an object, may have, in order.
  struct Member {
    std::string name;
    const OrderedJson* schema = nullptr;
    std::string pointer;
    bool is_required = false;
  };
  struct Members {
    std::vector<Member> known;
    const OrderedJson* others = nullptr;  // schema of all others; nullptr: there are none
    std::string others_pointer;
  };
  // With $ref and allOf resolved. INVALID_ARGUMENT also where the schema is no object's alone.
  absl::StatusOr<Members> RootMembers();

 private:
  struct Pending {
    const OrderedJson* schema;
    std::string pointer;
    uint32_t rule;
  };
  absl::Status Refuse(const std::string& pointer, absl::string_view what) const;
  absl::Status CheckKeywords(const OrderedJson& schema, const std::string& pointer) const;
  absl::StatusOr<const OrderedJson*> Resolve(const OrderedJson& reference, const std::string& pointer,
                                             std::string* target_pointer) const;
  // Without $ref and allOf at its top; the schema itself where it has none.
  absl::StatusOr<const OrderedJson*> Flatten(const OrderedJson& schema, std::string* pointer, int depth);
  absl::StatusOr<const OrderedJson*> Merge(const OrderedJson& a, const OrderedJson& b, const std::string& pointer);
  absl::StatusOr<OrderedJson> Merged(const OrderedJson& a, const OrderedJson& b, const std::string& pointer,
                                     int depth) const;
  absl::StatusOr<OrderedJson> MergedKeyword(const std::string& keyword, const OrderedJson& a, const OrderedJson& b,
                                            const std::string& pointer, int depth) const;
  absl::StatusOr<OrderedJson> MergedProperties(const OrderedJson& a, const OrderedJson& b, const std::string& pointer,
                                               int depth) const;
  // Merging copies; all copies together are bounded.
  absl::StatusOr<const OrderedJson*> Keep(OrderedJson schema, const std::string& pointer);

  absl::StatusOr<std::vector<std::string>> TypesOf(const OrderedJson& schema, const std::string& pointer) const;
  absl::Status CheckDisjoint(const OrderedJson& one_of, const std::string& pointer);
  absl::StatusOr<bool> AreDisjoint(const OrderedJson& a, const OrderedJson& b, const std::string& pointer, int depth);

  absl::Status AddAlternatives(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                               const std::string& keyword, Form form, int to);
  absl::Status AddConstants(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, Form form,
                            int to);
  absl::Status AddTyped(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer,
                        const std::string& type, Form form, int to);
  absl::Status AddStringOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, Form form,
                           int to);
  absl::Status AddNumberOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, bool is_integer,
                           int to);
  absl::Status AddObjectOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, int to);
  absl::Status AddArrayOf(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, int to);
  absl::StatusOr<Members> MembersOf(const OrderedJson& schema, const std::string& pointer);
  absl::StatusOr<std::optional<int64_t>> CountOf(const OrderedJson& schema, const std::string& pointer,
                                                 const char* keyword) const;
  // The rule of a subschema.
  uint32_t RuleOf(const OrderedJson& schema, const std::string& pointer);
  absl::Status AddCall(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, int to);
  absl::Status AddInline(Nfa* nfa, int from, const OrderedJson& schema, const std::string& pointer, int to);
  static bool IsNothing(const OrderedJson& schema) { return schema.kind == OrderedJson::Kind::kFalse; }

  const OrderedJson& root_;
  const std::string field_;
  Grammar& grammar_;
  const JsonGrammar& json_;
  const Dfa bare_text_;
  std::map<const OrderedJson*, uint32_t> rules_;
  std::deque<Pending> pending_;
  std::deque<OrderedJson> kept_;  // schemas that merging has made
  int num_values_kept_ = 0;
};

}  // namespace tandem::router
