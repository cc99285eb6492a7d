// SPDX-License-Identifier: Apache-2.0
// The functions of window.h, and InitializeInjection: the CUDA driver calls it in the first
// cuInit() of a process whose CUDA_INJECTION64_PATH names this library. It starts a thread at most
// and looks for nothing, because cuInit() waits for it. No exception leaves this file.
#include <cstdlib>
#include <new>
#include <string_view>

#include "../contract.hpp"
#include "windows.hpp"

namespace {

using paceline::cupti::Windows;

bool says(const char* name, std::string_view value) {
  const char* text = std::getenv(name);
  return text != nullptr && text == value;
}

}  // namespace

extern "C" {

PACELINE_EXPORT int InitializeInjection(void) {
  using namespace paceline::runtime_env;
  constexpr int kGoOn = 1;
  if (says(kDisable, "1") || says(kKernelWindows, "Disabled")) return kGoOn;
  try {
    Windows::instance().start();
  } catch (const std::bad_alloc&) {
    return kGoOn;  // the program has no memory, and says so itself
  }
  return kGoOn;
}

int paceline_window_request(uint32_t steps) { return Windows::instance().request(steps); }
int paceline_window_pause(void) { return Windows::instance().pause(); }
int paceline_window_resume(void) { return Windows::instance().resume(); }
int paceline_window_report(struct paceline_window_totals* report) {
  return report == nullptr ? PACELINE_EINVAL : Windows::instance().report(*report);
}

}  // extern "C"
