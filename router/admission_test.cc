// The bound holds, and every place comes back exactly once.
#include "router/admission.h"

#include <optional>
#include <utility>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(AdmissionTest, RefusesBeyondTheBoundAndTakesAgainWhenAPlaceIsBack) {
  Admission admission(2);
  std::optional<Admission::Ticket> first(admission.Admit().value());
  const Admission::Ticket second = admission.Admit().value();
  const auto third = admission.Admit();
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(third.status().message(), "too many requests in flight: 2, the limit is 2");
  first.reset();
  EXPECT_EQ(admission.num_requests(), 1);
  EXPECT_TRUE(admission.Admit().ok());
}

TEST(AdmissionTest, MovedTicketCountsOnce) {
  Admission admission(2);
  {
    Admission::Ticket ticket = admission.Admit().value();
    const Admission::Ticket moved = std::move(ticket);
    EXPECT_EQ(admission.num_requests(), 1);
  }
  EXPECT_EQ(admission.num_requests(), 0);
}

}  // namespace
}  // namespace tandem::router
