// Whether the model is to think before it answers.
#pragma once

namespace tandem::router {

enum class ThinkingMode { kChat, kThinking };

}  // namespace tandem::router
