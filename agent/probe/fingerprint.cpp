// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/fingerprint.hpp"

#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {
namespace {

void note(std::string& text, std::string_view name, std::string_view state) {
  text.append(name).append(1, '=').append(state).append(1, '\n');
}

}  // namespace

std::string fingerprint(const Root& root, GpuLibrary& library,
                        const std::vector<PciFunction>& known) {
  std::string text;
  const auto net = root.sys() / "class/net";
  for (const auto& name : list_names(net)) {
    std::error_code error;
    if (!std::filesystem::exists(net / name / "device", error)) continue;
    // Virtual functions and their representors come and go with pods.
    if (std::filesystem::exists(net / name / "device/physfn", error) || is_representor(net / name))
      continue;
    note(text, name,
         read_text(net / name / "operstate").value_or("") +
             read_text(net / name / "carrier").value_or(""));
  }
  const auto rdma = root.sys() / "class/infiniband";
  for (const auto& name : list_names(rdma)) {
    for (const auto& port : list_names(rdma / name / "ports"))
      note(text, name + "/" + port, read_text(rdma / name / "ports" / port / "state").value_or(""));
  }
  for (const auto& name : list_names(root.sys() / "bus/pci/devices")) text += name + "\n";
  for (const auto& function : known) {
    if (accelerator_kind(function) != nullptr)
      note(text, function.address, pci_answers(root, function.address) ? "there" : "gone");
  }
  if (const auto present = library.present()) {
    for (const auto& address : *present) note(text, address, "shown");
  } else {
    note(text, "library", to_string(present.error().code));
  }
  return text;
}

}  // namespace paceline::agent
