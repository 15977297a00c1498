#include "router/chat/chat_message.h"

#include "base/check.h"

namespace tandem::router {

const char* ChatRoleName(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
    case ChatRole::kTool:
      return "tool";
    case ChatRole::kDeveloper:
      return "developer";
  }
  TANDEM_CHECK(false, "a role outside its enum");
}

}  // namespace tandem::router
