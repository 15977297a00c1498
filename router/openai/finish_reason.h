// Why an answer ended, in the OpenAI API's words.
#pragma once

namespace tandem::router {

enum class AnswerFinish { kStop, kLength };

inline const char* AnswerFinishName(AnswerFinish finish) { return finish == AnswerFinish::kLength ? "length" : "stop"; }

}  // namespace tandem::router
