// SPDX-License-Identifier: Apache-2.0
// paceline-record DIR: records this machine and prints its matrix, on machines where only a compiler is: the same as `paceline fabric --record`.
#include <iostream>

#include "agent/probe/fabric.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/record.hpp"

int main(int argc, char** argv) {
  using namespace paceline;  // NOLINT(google-build-using-namespace): this file belongs to no part
  if (argc != 2) {
    std::cerr << "usage: paceline-record DIR (a folder that does not exist yet)\n";
    return 2;
  }
  const agent::Root root("/sys", "/proc");
  const auto library = agent::open_nvml();
  const auto written = agent::write_recording(agent::record_machine(root, *library), argv[1]);
  if (!written) {
    std::cerr << "paceline-record: " << to_string(written.error()) << "\n";
    return 1;
  }
  const auto hardware = agent::probe_hardware(root, *library);
  if (!hardware.gpu.problem.empty()) std::cerr << "warning: " << hardware.gpu.problem << "\n";
  std::cout << agent::matrix_text(agent::relate(hardware));
  return 0;
}
