// What is new of an answer, once its text has been told apart: reasoning, content, tool calls.
#pragma once

#include <string>
#include <vector>

namespace tandem::router {

// A call that begins, or more of one that has begun. The arguments of a call, put together, are JSON text, unless the
// answer was cut inside the call or the model wrote them as JSON that is none.
struct ToolCallDelta {
  int index = 0;          // of the call within the answer
  std::string name;       // where the call begins; else empty
  std::string arguments;  // may be empty
};

// In this order: reasoning, content, calls.
struct AnswerDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

}  // namespace tandem::router
