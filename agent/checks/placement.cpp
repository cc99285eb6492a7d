// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/checks/check_functions.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {
namespace {

bool single_numa_node(const Cpu& cpu) {
  return std::count_if(cpu.numa_nodes.begin(), cpu.numa_nodes.end(),
                       [](const NumaNode& node) { return !node.cpus.empty(); }) <= 1;
}

/// In a job's pod: checks that each of its GPUs and NICs has nearby CPUs in the pod. Only a
/// warning, because a pod that holds both may run far from either.
void judge_affinity(const Node& node, Findings& found) {
  if (!node.registrations || !node.registrations->in_pod || node.registrations->cpus.empty())
    return;
  const auto own = parse_cpu_list(node.registrations->cpus);
  if (!own)
    return found.unknown("", "the CPUs of the pod cannot be read: " + node.registrations->cpus);
  const auto near = [&](const std::string& label, const std::optional<int>& numa) {
    const auto& all = node.hardware.cpu.numa_nodes;
    const auto place =
        std::find_if(all.begin(), all.end(), [&](const NumaNode& one) { return one.id == numa; });
    if (!numa || place == all.end()) return;
    const auto cpus = parse_cpu_list(place->cpus);
    if (!cpus || cpus->empty()) return;
    const bool any = std::any_of(cpus->begin(), cpus->end(), [&](int cpu) {
      return std::find(own->begin(), own->end(), cpu) != own->end();
    });
    const std::string where = "NUMA node " + std::to_string(*numa);
    any ? found.pass(label, "the pod has CPUs of its " + where)
        : found.bad(
              label,
              "the pod runs on CPUs " + node.registrations->cpus + ", none of them of its " +
                  where +
                  ": give the kubelet a topology manager's policy, or the pod whole CPUs there");
  };
  const auto tried = [&](const std::string& gpu, const std::string& nic) {
    return std::any_of(node.registrations->attempts.begin(), node.registrations->attempts.end(),
                       [&](const Attempt& attempt) {
                         return attempt.outcome == Outcome::kDone && attempt.gpu == gpu &&
                                attempt.nic == nic &&
                                (attempt.step == Step::kGpuMemory || attempt.step == Step::kOpen);
                       });
  };
  for (const auto& gpu : node.fabric.gpus) {
    if (tried(gpu.address, "")) near(gpu.label, gpu.numa_node);
  }
  for (const auto* nic : node.compute_nics) {
    if (tried("", nic->name)) near(nic->name, nic->numa_node);
  }
}

/// NCCL's route PXN: over NVLink to a GPU that has a NIC behind its own switches. Empty if there is
/// none.
std::string proxy_route(const Node& node, const FabricDevice& gpu) {
  const auto row = static_cast<std::size_t>(&gpu - node.fabric.gpus.data());
  for (const auto& pair : node.pairs) {
    const auto other = static_cast<std::size_t>(pair.gpu - node.fabric.gpus.data());
    const Path& link = node.fabric.gpu_gpu[row][other];
    if (other == row || link.kind != PathClass::kNvl || pair.kind > PathClass::kP2c) continue;
    return "PXN: " + to_string(link) + " to " + pair.gpu->label + ", " +
           to_string(Path{pair.kind, 0}) + " from there to " + pair.nic->label;
  }
  return {};
}

}  // namespace

bool has_nic(const Node& node, Findings& found) {
  if (node.compute_nics.empty())
    found.skip(node.fabric.gpus.empty() ? "no RDMA device with a link"
                                        : "no RDMA device that serves GPUs");
  return !node.compute_nics.empty();
}

bool has_nvidia(const Node& node, Findings& found) {
  if (!node.nvidia) found.skip("no GPU of NVIDIA");
  return node.nvidia;
}

bool has_gpu_and_nic(const Node& node, Findings& found) {
  if (!node.fabric.gpus.empty()) return has_nic(node, found);
  found.skip("no accelerator");
  return false;
}

void check_gpu_nic_distance(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return;
  if (node.fabric.virtual_topology)
    return found.skip(
        "a hypervisor shows no switch between the devices: distances there mean nothing");
  for (const auto& gpu : node.fabric.gpus) {
    const Pair* nearest = nullptr;
    for (const auto& pair : node.pairs) {
      if (pair.gpu == &gpu && nearest == nullptr) nearest = &pair;
    }
    if (nearest == nullptr || node.function(gpu.address) == nullptr) {
      found.unknown(gpu.label, "its place on the bus is not known");
      continue;
    }
    const std::string says = to_string(Path{nearest->kind, 0}) + " to " + nearest->nic->label;
    if (nearest->kind <= PathClass::kP2c) {
      found.pass(gpu.label, says);
    } else if (const std::string route = proxy_route(node, gpu); !route.empty()) {
      found.pass(gpu.label, route);
    } else if (!node.nvidia) {
      found.unknown(gpu.label, says + " at best; how far its library goes is not known");
    } else {
      found.bad(gpu.label, says + " at best: NCCL uses GPUDirect up to PXB");
    }
  }
}

void check_numa(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return;
  judge_affinity(node, found);
  if (single_numa_node(node.hardware.cpu)) return found.pass("", "one NUMA node");
  const auto names_none = [&](const std::string& label, const std::optional<int>& numa) {
    if (!numa) found.bad(label, "firmware or hypervisor gives it no NUMA node (-1)");
  };
  for (const auto& gpu : node.fabric.gpus) names_none(gpu.label, gpu.numa_node);
  for (const auto* nic : node.compute_nics) names_none(nic->name, nic->numa_node);
  for (const auto& pair : node.pairs) {
    if (!pair.gpu->numa_node || !pair.nic->numa_node) continue;
    const std::string subject = pair.gpu->label + " " + pair.nic->label;
    const std::string says = "NUMA node " + std::to_string(*pair.gpu->numa_node) + " and " +
                             std::to_string(*pair.nic->numa_node);
    *pair.gpu->numa_node == *pair.nic->numa_node ? found.pass(subject, says)
                                                 : found.bad(subject, says);
  }
}

void check_bar1(const Node& node, Findings& found) {
  if (!has_nvidia(node, found) || !has_nic(node, found)) return;
  bool any = false;
  for (const auto& gpu : node.hardware.gpu.gpus) {
    const PciFunction* function = node.function(gpu.pci_address);
    // Desktop cards have a small window by design, and no GPUDirect RDMA.
    if (function == nullptr || function->vendor != 0x10de ||
        gpu.model.find("GeForce") != std::string::npos)
      continue;
    any = true;
    const std::string label = "GPU" + std::to_string(gpu.index);
    const auto* setup = node.setup(gpu.pci_address);
    const auto window = gpu.bar1_mib       ? gpu.bar1_mib
                        : setup == nullptr ? std::nullopt
                                           : setup->bar1_mib;
    if (!window || gpu.memory_mib == 0) {
      found.unknown(label, "neither NVML nor sysfs tells the size of BAR 1");
      continue;
    }
    const std::string says = "BAR 1 of " + std::to_string(*window) + " MiB, memory of " +
                             std::to_string(gpu.memory_mib) + " MiB";
    // NCCL needs no more than its buffers in the window; only programs that map the memory of a
    // whole GPU do.
    *window >= gpu.memory_mib ? found.pass(label, says) : found.bad(label, says);
  }
  if (any) return;
  node.hardware.gpu.gpus.empty() ? found.unknown("", "NVML shows no GPU")
                                 : found.skip("no GPU of a kind that has GPUDirect RDMA");
}

}  // namespace paceline::agent
