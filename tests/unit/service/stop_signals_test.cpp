// SPDX-License-Identifier: Apache-2.0
#include "common/service/stop_signals.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>

namespace paceline {
namespace {

/// In a process of its own, since the mask is for good: what arrives is what `wait` says, whichever
/// thread was running.
[[noreturn]] void wait_for(int signal) {
  const StopSignals signals;
  std::thread([signal] { ::kill(::getpid(), signal); }).join();
  std::_Exit(signals.wait() == signal ? 0 : 1);
}

[[noreturn]] void write_to_nobody() {
  const StopSignals signals;
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::_Exit(2);
  ::close(ends[0]);
  std::_Exit(::write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 1);
}

TEST(StopSignals, WaitSaysWhichCame) {
  EXPECT_EXIT(wait_for(SIGTERM), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(wait_for(SIGINT), testing::ExitedWithCode(0), "");
}

TEST(StopSignals, APeerThatWentAwayIsAnErrorOfOneWrite) {
  EXPECT_EXIT(write_to_nobody(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace paceline
