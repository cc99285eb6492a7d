// SPDX-License-Identifier: Apache-2.0
#include "agent/checks/check.hpp"

#include <algorithm>
#include <utility>

#include "agent/probe/hardware/accelerator.hpp"
#include "common/base/printable.hpp"

namespace paceline::agent {
namespace {

constexpr std::size_t kMaxEvidence = 240;

/// Parts of the text come from devices: keep it printable and short.
std::string clean_text(std::string text) {
  if (text.size() > kMaxEvidence) text = text.substr(0, kMaxEvidence - 3) + "...";
  return printable(std::move(text));
}

/// The bridges from the GPU up to the common bridge and down to the NIC; empty if they share only
/// the host bridge or less. Traffic between root ports passes the root complex whatever they say.
std::vector<std::string> way_between(const PciFunction& a, const PciFunction& b) {
  std::size_t common = 0;
  while (common < a.path.size() && common < b.path.size() && a.path[common] == b.path[common])
    ++common;
  if (common <= 1) return {};
  std::vector<std::string> way(a.path.rbegin(),
                               a.path.rend() - static_cast<std::ptrdiff_t>(common));
  way.push_back(a.path[common - 1]);
  way.insert(way.end(), b.path.begin() + static_cast<std::ptrdiff_t>(common), b.path.end());
  return way;
}

}  // namespace

std::vector<const RdmaDevice*> compute_nics_of(const Hardware& hardware, const Fabric& fabric) {
  std::vector<const RdmaDevice*> nics;
  for (const auto& device : hardware.rdma) {
    // Rails serve GPUs. Without GPUs, a port without a link may be intended.
    const bool used = fabric.gpus.empty()
                          ? std::any_of(device.ports.begin(), device.ports.end(),
                                        [](const RdmaPort& port) { return port.state == "ACTIVE"; })
                          : std::any_of(fabric.rails.begin(), fabric.rails.end(),
                                        [&](const Rail& rail) { return rail.nic == device.name; });
    if (used) nics.push_back(&device);
  }
  return nics;
}

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view kNames[] = {"skip", "pass", "unknown", "warn", "fail"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string_view to_string(Place place) {
  constexpr std::string_view kNames[] = {"daemon", "config", "probe", "pod"};
  return kNames[static_cast<std::size_t>(place)];
}

Node::Node(Hardware machine, Settings setup, std::optional<EarlierCounters> before,
           std::optional<Registrations> tried)
    : hardware(std::move(machine)),
      settings(std::move(setup)),
      earlier(std::move(before)),
      registrations(std::move(tried)),
      fabric(relate(hardware)) {
  nvidia = std::any_of(fabric.gpus.begin(), fabric.gpus.end(), [&](const FabricDevice& gpu) {
    const PciFunction* found = function(gpu.address);
    return found != nullptr && is_nvidia(*found);
  });
  is_virtual = settings.hypervisor || fabric.virtual_topology;
  compute_nics = compute_nics_of(hardware, fabric);
  const auto used = [&](const FabricDevice& nic) {
    return nic.rdma &&
           std::any_of(compute_nics.begin(), compute_nics.end(),
                       [&](const RdmaDevice* device) { return device->name == nic.label; });
  };
  for (std::size_t row = 0; row < fabric.gpus.size(); ++row) {
    auto nearest = PathClass::kSys;
    for (std::size_t column = 0; column < fabric.nics.size(); ++column) {
      if (used(fabric.nics[column])) nearest = std::min(nearest, fabric.gpu_nic[row][column].kind);
    }
    for (std::size_t column = 0; column < fabric.nics.size(); ++column) {
      if (!used(fabric.nics[column]) || fabric.gpu_nic[row][column].kind != nearest) continue;
      Pair pair{&fabric.gpus[row], &fabric.nics[column], nearest, {}};
      const PciFunction* gpu = function(pair.gpu->address);
      const PciFunction* nic = function(pair.nic->address);
      if (gpu != nullptr && nic != nullptr) pair.way = way_between(*gpu, *nic);
      pairs.push_back(std::move(pair));
    }
  }
}

const PciFunction* Node::function(std::string_view address) const {
  const auto found =
      std::find_if(hardware.pci.begin(), hardware.pci.end(),
                   [&](const PciFunction& entry) { return entry.address == address; });
  return found == hardware.pci.end() ? nullptr : &*found;
}

const FunctionSettings* Node::setup(const std::string& address) const {
  const auto found = settings.functions.find(address);
  return found == settings.functions.end() ? nullptr : &found->second;
}

bool Node::is_compute(const RdmaDevice& device) const {
  return std::any_of(compute_nics.begin(), compute_nics.end(),
                     [&](const RdmaDevice* nic) { return nic == &device; });
}

void Findings::add(Verdict verdict, std::string_view subject, std::string evidence) {
  const bool mend = verdict == Verdict::kWarn || verdict == Verdict::kFail;
  all_.push_back({std::string(check_.id), clean_text(std::string(subject)), verdict,
                  clean_text(std::move(evidence)),
                  mend ? std::string(check_.remedy) : std::string{}});
}

void Findings::bad(std::string_view subject, std::string evidence) {
  add(check_.severity, subject, std::move(evidence));
}

void Findings::hidden(std::string_view subject, const FunctionSettings* setup) {
  const std::size_t bytes = setup == nullptr ? 0 : setup->config.bytes;
  unknown(subject, bytes == 0 ? "its configuration space cannot be read"
                              : "only " + std::to_string(bytes) +
                                    " bytes of its configuration space can be read: that takes "
                                    "root with CAP_SYS_ADMIN");
}

const Check* find_check(std::string_view id) {
  const auto all = checks();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Check& check) { return check.id == id; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<Finding> run_checks(const Node& node) {
  std::vector<Finding> all;
  for (const Check& check : checks()) {
    Findings found(check, all);
    const std::size_t before = all.size();
    check.run(node, found);
    if (all.size() == before) found.unknown("", "nothing to look at was found");
  }
  return all;
}

int exit_code(const std::vector<Finding>& findings) {
  const bool fails = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::kFail;
  });
  if (fails) return 1;
  // Without NVML most checks are unknown, so "nothing fails" would be misleading.
  return worst(findings, "gpu-health") == Verdict::kUnknown ? 2 : 0;
}

Verdict worst(const std::vector<Finding>& findings, std::string_view id) {
  Verdict verdict = Verdict::kSkip;
  for (const auto& finding : findings) {
    if (finding.id == id) verdict = std::max(verdict, finding.verdict);
  }
  return verdict;
}

}  // namespace paceline::agent
