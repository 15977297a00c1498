#include "proto/instance_succession.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::proto {

absl::Status InstanceSuccession::Greet(const Identity& identity) {
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& k) {
    return k.incarnation == identity.incarnation() && k.instance == identity.instance();
  });
  if (known != known_.end()) {
    if (known->is_replaced) {
      return absl::FailedPreconditionError(absl::StrCat("another ", kind_, " has greeted later as instance \"",
                                                        identity.instance(), "\" and taken this one's place; ", kind_,
                                                        "s that run at once need instance names of their own"));
    }
    known_.erase(known);
  } else {
    for (Known& other : known_) other.is_replaced |= other.instance == identity.instance();
  }
  known_.push_back({identity.instance(), identity.incarnation(), /*is_replaced=*/false});
  if (known_.size() > kKnownMax) known_.pop_front();
  return absl::OkStatus();
}

}  // namespace tandem::proto
