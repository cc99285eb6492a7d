// SPDX-License-Identifier: Apache-2.0
// The RDMA devices of fake_verbs.cpp, loaded under the name of the real library; with
// PACELINE_TEST_RDMA, the name of a device, in the environment this machine's own. One for each
// process, before the first communicator.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace paceline::comm_test {

inline bool is_real() { return std::getenv("PACELINE_TEST_RDMA") != nullptr; }

inline std::string first_device() {
  return is_real() ? std::getenv("PACELINE_TEST_RDMA") : "fake0";
}

// The library under whose name it is found from now on, by ranks that are forked.
class Devices {
 public:
  Devices() {
#ifdef PACELINE_FAKE_VERBS
    if (is_real()) return;
    library_ = ::dlopen(PACELINE_FAKE_VERBS, RTLD_NOW | RTLD_GLOBAL);
#endif
  }
  // Whether there is anything to test with: this library may have been built without RDMA.
  explicit operator bool() const { return library_ != nullptr || is_real(); }
  bool are_fake() const { return library_ != nullptr; }

  void set(const char* name, int value) const {
    reinterpret_cast<void (*)(const char*, int)>(::dlsym(library_, "fake_verbs_set"))(name, value);
  }
  // Of all processes: what a device might have dropped; 0 where they are real.
  int dropped() const {
    if (!are_fake()) return 0;
    return reinterpret_cast<int (*)()>(::dlsym(library_, "fake_verbs_dropped"))();
  }
  // Of this process; 0 where they are real.
  int sent(int device) const {
    if (!are_fake()) return 0;
    return reinterpret_cast<int (*)(int)>(::dlsym(library_, "fake_verbs_sent"))(device);
  }

 private:
  void* library_ = nullptr;
};

}  // namespace paceline::comm_test
