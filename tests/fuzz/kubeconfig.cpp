// SPDX-License-Identifier: Apache-2.0
// A kubeconfig file. It is kept in memory, because a file in a folder would take most of the time.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "common/kube/connect/config.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  static const int kFile = ::memfd_create("kubeconfig", MFD_CLOEXEC);
  static const std::string kPath = "/proc/self/fd/" + std::to_string(kFile);
  fuzz::require(
      ::ftruncate(kFile, 0) == 0 && ::pwrite(kFile, data, size, 0) == static_cast<ssize_t>(size),
      "the file is written");
  const auto config = kube::load_kubeconfig(kPath);
  if (config) {
    fuzz::require(!config->endpoint.host.empty(), "a usable kubeconfig names a host");
  } else {
    fuzz::require(config.error().message.find(kPath) != std::string::npos,
                  "a refusal names the file");
  }
  return 0;
}
