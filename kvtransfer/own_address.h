// Which of this machine's addresses a listener is to be bound to, and whether a name leads anywhere. Tested by
// own_address_test.cc.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem::kvtransfer {

// True where others reach this very machine by that name or address: it is one of a device's. A name that resolves to
// loopback is not (machines commonly map their own name so, and only they do), except localhost. Blocks as long as the
// resolver does.
bool IsOwnAddress(const std::string& host);

// UNAVAILABLE with the resolver's words where neither an address nor a name that resolves. Blocks as IsOwnAddress().
absl::Status CheckResolves(const std::string& host);

// The device ("eth0") that has that address, or whose name resolves to it; empty where there is none. 127/8 is lo's.
std::string DeviceOf(const std::string& host);

// Where a source of lanes listens, and what decode workers are told: the host that the process listens on, where that
// is one address; else the one it advertises, where it is this machine's own; else empty: an address of the network
// devices. These also decide where they are named ("eth0", not "all").
std::string LaneListenHost(const std::string& listen_host, const std::string& advertise_host,
                           const std::string& net_devices);

}  // namespace tandem::kvtransfer
