// SPDX-License-Identifier: Apache-2.0
// Runs numbered pieces of work on several threads, the caller's among them, and returns when all
// are done. The threads live as long as the call: nothing is left over for a fork to break, and an
// idle optimizer holds nothing. Where the system refuses a thread, the others do its share. Never
// fails. Every thread begins with neighbouring pieces of its own, and helps the others when they
// are done: memory and its pages are read in as few places at once as there are threads.
#pragma once

#include <cstdint>
#include <functional>

namespace paceline::optim {

// `work(piece)` is called once for every piece in [0, pieces), in any order; it must not throw. The
// caller's share is the first.
void parallel_for(std::int64_t pieces, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace paceline::optim
