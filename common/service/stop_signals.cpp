// SPDX-License-Identifier: Apache-2.0
#include "common/service/stop_signals.hpp"

#include <pthread.h>

namespace paceline {

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int StopSignals::wait() const {
  int signal = 0;
  sigwait(&set_, &signal);
  return signal;
}

}  // namespace paceline
