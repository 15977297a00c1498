// Proves that a held port can be listened on by its number, again and again, and is given to nobody else.
#include "base/held_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "gtest/gtest.h"

namespace tandem::base {
namespace {

// A socket that is to listen at the port, 0 for any; the port it got, 0 for none.
int Listen(int fd, int port) {
  const int on = 1;
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t num_bytes = sizeof(address);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || listen(fd, 1) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &num_bytes) != 0) {
    return 0;
  }
  return ntohs(address.sin_port);
}

TEST(HeldPortTest, IsListenedOnByItsNumberAndGivenToNobodyElse) {
  const HeldPort held;
  for (int round = 0; round < 3; ++round) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(Listen(fd, held.port()), held.port());
    close(fd);
    // Far more than would be needed to meet it by chance is all that there are: a part of them, each round.
    std::vector<int> others;
    for (int i = 0; i < 500; ++i) {
      others.push_back(socket(AF_INET, SOCK_STREAM, 0));
      ASSERT_NE(Listen(others.back(), 0), held.port());
    }
    for (const int other : others) close(other);
  }
}

}  // namespace
}  // namespace tandem::base
