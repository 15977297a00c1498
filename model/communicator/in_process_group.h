// Ranks that are threads of one process: each copies what it is sent straight from the sender's memory.
//
// An exchange is two meetings of all ranks: behind the first one all memory is known, behind the second one all copies
// are done. Ranks sleep until the last one comes. A failure is seen at the first meeting only: from there to the second
// one there is nothing that could fail and nobody's memory may go away.
// Tested by communicator_test.cc.
#pragma once

#include <memory>
#include <vector>

#include "model/communicator/rank_link.h"

namespace tandem::model {

// The ends of a group of `size` ranks, at least 1, by rank. One thread at a time uses an end.
std::vector<std::unique_ptr<RankLink>> MakeInProcessGroup(int size);

}  // namespace tandem::model
