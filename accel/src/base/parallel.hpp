// SPDX-License-Identifier: Apache-2.0
// Runs numbered pieces of work on several threads, the caller's among them, and returns when all
// are done. The threads end with the call, so a fork cannot break them, and an idle process holds
// no threads. If the system refuses a thread, the other threads do its share. Never fails.
//
// Each thread starts with neighbouring pieces of its own and helps the others afterwards. So memory
// is read in only as many places at a time as there are threads.
#pragma once

#include <cstdint>
#include <functional>

namespace paceline::base {

// Calls `work(piece)` once for every piece in [0, pieces), in any order. `work` must not throw. The
// caller's thread takes the first share.
void parallel_for(std::int64_t pieces, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace paceline::base
