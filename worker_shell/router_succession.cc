#include "worker_shell/router_succession.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::worker_shell {

absl::Status RouterSuccession::Greet(const proto::Identity& router) {
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& k) {
    return k.incarnation == router.incarnation() && k.instance == router.instance();
  });
  if (known != known_.end()) {
    if (known->is_replaced) {
      return absl::FailedPreconditionError(
          absl::StrCat("another router has greeted later as instance \"", router.instance(),
                       "\" and taken this one's place; routers that run at once need instance names of their own"));
    }
    known_.erase(known);
  } else {
    for (Known& other : known_) other.is_replaced |= other.instance == router.instance();
  }
  known_.push_back({router.instance(), router.incarnation(), /*is_replaced=*/false});
  if (known_.size() > kKnownMax) known_.pop_front();
  return absl::OkStatus();
}

}  // namespace tandem::worker_shell
