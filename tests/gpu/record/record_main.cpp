// SPDX-License-Identifier: Apache-2.0
// paceline-record DIR records this machine: its PCI tree, its RDMA devices and NVML's answer, but
// nothing that identifies the machine. Then it prints the matrix of the recording, and the results
// of the checks of GPUDirect RDMA. On a machine with only a compiler it replaces `paceline fabric
// --record DIR`, `paceline fabric --root DIR` and `paceline doctor --root DIR`. Exit code: 0 if the
// machine was recorded, whatever the checks say; 1 if not; 2 for wrong arguments.
#include <iostream>
#include <string>
#include <string_view>

#include "agent/checks/check.hpp"
#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/record/record.hpp"
#include "cli/doctor/view.hpp"

int main(int argc, char** argv) {
  using namespace paceline;  // NOLINT(google-build-using-namespace): this file belongs to no part
  const std::string_view folder = argc == 2 ? argv[1] : "";
  if (folder.empty() || folder.starts_with('-')) {
    std::cerr << "usage: paceline-record DIR (a folder that does not exist yet)\n";
    return folder == "--help" || folder == "-h" ? 0 : 2;
  }
  const auto library = agent::open_nvml();
  const auto written = agent::write_recording(
      agent::record_machine(agent::Root("/sys", "/proc"), *library), argv[1]);
  if (!written) {
    std::cerr << "paceline-record: " << to_string(written.error()) << "\n";
    return 1;
  }
  // NVML's answer is asked for again, and the same that was recorded: reading it back would need a
  // JSON library.
  const auto recorded = agent::Root::at(argv[1]);
  const auto hardware = agent::probe_hardware(recorded, *library);
  if (!hardware.gpu.problem.empty()) std::cerr << "warning: " << hardware.gpu.problem << "\n";
  const agent::Node node(hardware,
                         agent::read_settings(recorded, hardware, agent::PciSnapshot("")));
  std::cout << agent::matrix_text(node.fabric);
  if (const std::string legend = agent::legend_text(node.fabric); !legend.empty())
    std::cout << "\n" << legend;
  std::cout << "\n" << cli::doctor_text(agent::run_checks(node));
  return 0;
}
