// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "agent/checks/check_functions.hpp"
#include "agent/probe/hardware/rdma.hpp"

namespace paceline::agent {
namespace {

std::string hex16(unsigned int word) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%04x", word & 0xffffU);
  return text.data();
}

struct End {
  std::string label;
  std::string address;
  bool gpu = false;
};

/// The GPUs, and the NICs that jobs use, that are on PCI.
std::vector<End> ends_of(const Node& node, bool gpus = true) {
  std::vector<End> ends;
  for (const auto& gpu : node.fabric.gpus) {
    if (gpus && !gpu.address.empty()) ends.push_back({gpu.label, gpu.address, true});
  }
  for (const auto* nic : node.compute_nics) ends.push_back({nic->name, nic->pci_address, false});
  return ends;
}

void check_ats(const Node& node, Findings& found) {
  for (const auto* nic : node.compute_nics) {
    if (is_efa(*nic)) {
      found.set_aside(nic->name, "AWS lets GPUs and EFA talk directly without the guest's doing");
      continue;
    }
    const auto* setup = node.setup(nic->pci_address);
    // The whole configuration space of a machine without PCI Express, which has no room for ATS.
    constexpr std::size_t kConventional = 256;
    if (setup != nullptr && setup->config.bytes == kConventional) {
      found.warn(nic->name, "a virtual machine without address translation services (ATS)");
    } else if (setup == nullptr || !setup->config.shows_extended()) {
      found.hidden(nic->name, setup);
    } else if (setup->config.ats == true) {
      found.pass(nic->name, "a virtual machine, and address translation services are on");
    } else {
      found.warn(nic->name,
                 "a virtual machine: ACS stays on, but address translation services (ATS) are off");
    }
  }
}

/// The fields of Device Control mean nothing in a virtual function, and read as their lowest value.
bool is_virtual(const Node& node, const std::string& address) {
  const PciFunction* function = node.function(address);
  return function != nullptr && is_virtual_function(*function);
}
constexpr const char* kOfPhysical = "is a virtual function: what its physical function has counts";

/// The Device Control of a function; if it is not shown, adds a finding with the reason and returns
/// null.
const PcieControl* control_of(const Node& node, const End& end, Findings& found) {
  if (is_virtual(node, end.address)) {
    found.set_aside(end.label, kOfPhysical);
    return nullptr;
  }
  const auto* setup = node.setup(end.address);
  if (setup == nullptr || !setup->config.shows_capabilities()) {
    found.hidden(end.label, setup);
    return nullptr;
  }
  if (setup->config.pcie) return &*setup->config.pcie;
  found.unknown(end.label, "has no PCI Express capability that can be read");
  return nullptr;
}

/// "32.0 GT/s PCIe"; 0 for anything else.
double speed_of(const std::string& text) {
  char* end = nullptr;
  const double speed = std::strtod(text.c_str(), &end);
  return end != text.c_str() && std::string_view(end).starts_with(" GT/s") && speed > 0 &&
                 speed < 1000
             ? speed
             : 0;
}

int width_of(const std::string& text) {
  int width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  return error == std::errc{} && end == text.data() + text.size() && width > 0 && width <= 32
             ? width
             : 0;
}

/// The link speed and width that paceline-probe read while it copied to the GPU. They count instead
/// of those of the idle link.
bool under_load(const Node& node, const std::string& address, double& speed, int& width) {
  if (!node.registrations) return false;
  for (const auto& attempt : node.registrations->attempts) {
    if (attempt.step != Step::kLinkLoad || attempt.gpu != address ||
        attempt.outcome != Outcome::kDone)
      continue;
    const auto cut = attempt.saw.rfind(" x");
    if (cut == std::string::npos) return false;
    const double seen_speed = speed_of(attempt.saw.substr(0, cut));
    const int seen_width = width_of(attempt.saw.substr(cut + 2));
    // Another process's load may have raised the link since then.
    if (seen_speed <= 0 || seen_width <= 0 || seen_speed < speed) return false;
    speed = seen_speed;
    width = seen_width;
    return true;
  }
  return false;
}

void check_one_link(const Node& node, const End& end, Findings& found) {
  const PciFunction* function = node.function(end.address);
  const FunctionSettings* setup = node.setup(end.address);
  if (function == nullptr || setup == nullptr) return found.unknown(end.label, "is not in sysfs");
  double best_speed = speed_of(setup->max_link_speed);
  int best_width = width_of(setup->max_link_width);
  const std::string above =
      function->path.size() >= 2 ? function->path[function->path.size() - 2] : "";
  if (const auto* port = node.setup(above)) {
    // A port without these values sets no limit.
    if (const double most = speed_of(port->max_link_speed); most > 0)
      best_speed = std::min(best_speed, most);
    if (const int most = width_of(port->max_link_width); most > 0)
      best_width = std::min(best_width, most);
  }
  double speed = speed_of(function->link_speed);
  int width = width_of(function->link_width);
  const bool loaded = end.gpu && under_load(node, end.address, speed, width);
  if (best_speed <= 0 || best_width <= 0 || speed <= 0 || width <= 0)
    return found.unknown(end.label, "current or largest link speed and width cannot be read");
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "%g GT/s x%d of %g GT/s x%d%s", speed, width, best_speed,
                best_width, loaded ? " under load" : "");
  if (width < best_width) return found.bad(end.label, text.data());
  if (speed >= best_speed) return found.pass(end.label, text.data());
  if (end.gpu && !loaded)
    return found.unknown(
        end.label, std::string(text.data()) + "; an idle GPU lowers its link: look under load");
  found.bad(end.label, text.data());
}

/// A topology file holds the most that a device and its slot can do together. Only devices of one
/// kind can be compared.
void compare_links(const Node& node, Findings& found) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<double, int>> best;
  const auto kind = [](const PciFunction& function) {
    return std::pair(function.vendor, function.device);
  };
  for (const auto& end : ends_of(node)) {
    const PciFunction* function = node.function(end.address);
    if (function == nullptr) continue;
    auto& [speed, width] = best[kind(*function)];
    speed = std::max(speed, speed_of(function->link_speed));
    width = std::max(width, width_of(function->link_width));
  }
  for (const auto& end : ends_of(node)) {
    const PciFunction* function = node.function(end.address);
    const double speed = function == nullptr ? 0 : speed_of(function->link_speed);
    const int width = function == nullptr ? 0 : width_of(function->link_width);
    if (speed <= 0 || width <= 0) {
      found.unknown(end.label, "the topology file holds no link speed and width");
      continue;
    }
    const auto [most, widest] = best[kind(*function)];
    const std::string says =
        function->link_speed + " x" + function->link_width + " at most, says the topology file";
    if (speed < most || width < widest) {
      found.warn(end.label, says + ": less than other devices of its kind");
    } else {
      found.pass(end.label, says);
    }
  }
}

/// A device sends packets as large as its own setting. Each bridge between, and the other device,
/// must take them; a bridge that could take more does no harm.
void judge_payloads(const Node& node, const Pair& pair, Findings& found) {
  if (is_virtual(node, pair.nic->address))
    return found.set_aside(pair.gpu->label + " " + pair.nic->label, kOfPhysical);
  std::set<int> sizes;
  std::string shown;
  const FunctionSettings* hidden = nullptr;
  bool all = true;
  int sent = 0;
  for (const auto& step : pair.way) {
    const auto* setup = node.setup(step);
    if (setup == nullptr || !setup->config.pcie) {
      all = false;
      hidden = setup;
      continue;
    }
    const int size = setup->config.pcie->max_payload;
    if (step == pair.gpu->address || step == pair.nic->address) sent = std::max(sent, size);
    if (sizes.insert(size).second)
      shown += (shown.empty() ? "" : ", ") + step + " " + std::to_string(size);
  }
  const std::string subject = pair.gpu->label + " " + pair.nic->label;
  if (!sizes.empty() && sent > *sizes.begin()) {
    found.bad(subject, "payload sizes differ on the way: " + shown);
  } else if (!all) {
    found.hidden(subject, hidden);
  } else if (sizes.size() > 1) {
    found.pass(subject,
               "payloads of " + std::to_string(sent) + " bytes; bridges take more: " + shown);
  } else {
    found.pass(subject, "payloads of " + std::to_string(sent) + " bytes all the way");
  }
}

}  // namespace

void check_acs(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return;
  if (node.is_virtual) return check_ats(node, found);
  std::set<std::string> bridges;
  for (const auto& pair : node.pairs) {
    if (pair.way.size() > 2) bridges.insert(pair.way.begin() + 1, pair.way.end() - 1);
  }
  if (bridges.empty()) return found.skip("no GPU and NIC have a bridge between them");
  for (const auto& bridge : bridges) {
    const auto* setup = node.setup(bridge);
    if (setup == nullptr || !setup->config.shows_extended()) {
      found.hidden(bridge, setup);
    } else if (!setup->config.acs) {
      found.pass(bridge, "has no access control services");
    } else if (setup->config.acs->detours()) {
      found.bad(bridge, "redirects traffic between GPU and NIC to the root complex (control " +
                            hex16(setup->config.acs->word) + ")");
    } else {
      found.pass(bridge, "control " + hex16(setup->config.acs->word));
    }
  }
}

void check_iommu(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return;
  const std::string cmdline = " " + node.settings.cmdline.value_or("") + " ";
  const bool passes = cmdline.find(" iommu=pt ") != std::string::npos ||
                      cmdline.find(" iommu.passthrough=1 ") != std::string::npos;
  // Traffic to a GPU behind NVLink-C2C passes its CPU anyway, which translates on the way. NVIDIA's
  // guide for Grace itself asks for iommu.passthrough=0 on some systems.
  const auto& gpus = node.hardware.gpu.gpus;
  const bool coherent = !gpus.empty() && std::all_of(gpus.begin(), gpus.end(),
                                                     [](const Gpu& gpu) { return gpu.c2c; });
  for (const auto& end : ends_of(node)) {
    const auto* setup = node.setup(end.address);
    if (setup == nullptr) {
      found.unknown(end.label, "is not in sysfs");
    } else if (!setup->in_iommu_group) {
      found.pass(end.label, "is behind no IOMMU");
    } else if (setup->iommu_type == "identity") {
      found.pass(end.label, "its IOMMU group is of type identity");
    } else if (setup->iommu_type.starts_with("DMA")) {
      const std::string says =
          "its IOMMU group is of type " + setup->iommu_type + ": every address is translated";
      coherent ? found.warn(end.label, says) : found.bad(end.label, says);
    } else if (setup->iommu_type.empty() && passes) {
      found.pass(end.label, "the kernel's command line asks for pass-through");
    } else {
      found.unknown(end.label,
                    "the type of its IOMMU group " +
                        (setup->iommu_type.empty() ? "cannot be read" : "is " + setup->iommu_type));
    }
  }
}

void check_pcie_mrrs(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return;
  constexpr int kWanted = 4096;
  for (const auto& end : ends_of(node, false)) {
    const PcieControl* control = control_of(node, end, found);
    if (control == nullptr) continue;
    const std::string says =
        "reads at most " + std::to_string(control->max_read_request) + " bytes at a time";
    control->max_read_request == kWanted ? found.pass(end.label, says) : found.bad(end.label, says);
  }
}

void check_pcie_mps(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return;
  // The hypervisor controls what is between them, and root ports need not agree with their
  // neighbours.
  if (node.fabric.virtual_topology)
    return found.skip("a hypervisor does not show what lies between GPU and NIC");
  bool any = false;
  for (const auto& pair : node.pairs) {
    if (pair.way.empty()) continue;
    any = true;
    judge_payloads(node, pair, found);
  }
  if (!any) found.skip("no GPU and NIC have a bridge between them");
}

void check_pcie_relaxed_ordering(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return;
  for (const auto& end : ends_of(node)) {
    const PcieControl* control = control_of(node, end, found);
    if (control == nullptr) continue;
    control->relaxed_ordering ? found.pass(end.label, "on")
                              : found.bad(end.label, "relaxed ordering is off");
  }
}

void check_pcie_link(const Node& node, Findings& found) {
  if (node.fabric.gpus.empty()) return found.skip("no accelerator");
  if (node.hardware.from_topology_file) return compare_links(node, found);
  for (const auto& end : ends_of(node)) {
    const bool c2c =
        std::any_of(node.hardware.gpu.gpus.begin(), node.hardware.gpu.gpus.end(),
                    [&](const Gpu& gpu) { return gpu.pci_address == end.address && gpu.c2c; });
    if (c2c) {
      found.pass(end.label, "reaches its CPU by NVLink-C2C");
    } else {
      check_one_link(node, end, found);
    }
  }
}

}  // namespace paceline::agent
