// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {
namespace {

std::vector<CheckCase> health_cases() {
  const auto off_the_bus = [](const NodeTree& tree) {
    tree.write(pci_file("0000:52:00.0", "config"), std::string(64, '\xff'));
  };
  const auto lost = [](Hardware& machine) {
    machine.gpu.unreadable.push_back(machine.gpu.gpus.back());
    machine.gpu.gpus.pop_back();
  };
  const auto has = [](GpuCondition condition) {
    return [=](Hardware& machine) { machine.gpu.gpus[2].condition = condition; };
  };
  const auto no_library = [lost](Hardware& machine) {
    lost(machine);
    machine.gpu.library_problem = "libnvidia-ml.so.1: no such file";
  };
  return {
      {"gpu-health", Verdict::kPass, "8 of 8 answer", kH100},
      {"gpu-health", Verdict::kFail, "fell off the PCI bus", kH100, off_the_bus},
      {"gpu-health", Verdict::kFail, "NVML does not show it", kH100, [](const NodeTree&) {}, lost},
      {"gpu-health", Verdict::kUnknown,
       "NVML does not answer (libnvidia-ml.so.1: no such file): install the driver", kH100,
       [](const NodeTree&) {}, no_library},
      {"gpu-health", Verdict::kSkip, "no accelerator", "nothing"},
      {"gpu-memory", Verdict::kUnknown, "tells neither ECC errors nor replaced rows", kH100},
      {"gpu-memory", Verdict::kPass, "no uncorrected ECC error", kH100, [](const NodeTree&) {},
       has({.uncorrected_errors = 0, .remapping_pending = false, .recovery_action = 0})},
      {"gpu-memory", Verdict::kFail, "no spare row was left", kH100, [](const NodeTree&) {},
       has({.remapping_pending = true, .remapping_failed = true})},
      {"gpu-memory", Verdict::kFail, "its driver asks for a reset", kH100, [](const NodeTree&) {},
       has({.recovery_action = 1})},
      {"gpu-memory", Verdict::kWarn, "to be drained and reset", kH100, [](const NodeTree&) {},
       has({.recovery_action = 4})},
      {"gpu-memory", Verdict::kWarn, "is replaced at the next reset", kH100, [](const NodeTree&) {},
       has({.remapping_pending = true})},
      {"gpu-memory", Verdict::kWarn, "2 uncorrected ECC errors", kH100, [](const NodeTree&) {},
       has({.uncorrected_errors = 2})},
      {"xid", Verdict::kUnknown, "takes CAP_SYSLOG", kH100},
      {"xid", Verdict::kPass, "no Xid that speaks of hardware", kH100,
       put("dev/kmsg", "4,1,5,-;NVRM: Xid (PCI:0000:52:00): 31, pid=7, name=python, MMU Fault\n")},
      {"xid", Verdict::kWarn, "Xid 94 in the kernel log", kH100,
       put("dev/kmsg",
           "4,1,5,-;NVRM: Xid (PCI:0000:52:00 GPU-I:05): 94, pid=7, name=python, Contained\n")},
      {"xid", Verdict::kWarn, "Xid 79, 119 in the kernel log", kH100,
       put("dev/kmsg",
           "4,1,5,-;NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
           "4,2,6,-;NVRM: Xid (PCI:0000:52:00): 119, pid=7\n"
           "4,3,7,-;NVRM: Xid (PCI:0000:52:00): 79\n4,4,8,-;NVRM: Xid (PCI:nowhere): 79\n")},
  };
}

std::vector<CheckCase> nvlink_cases() {
  const auto errors = [](Hardware& machine) { machine.gpu.gpus[2].nvlinks[7].errors = 12; };
  const auto ill = [](Hardware& machine) {
    machine.gpu.gpus[2].nvlink_fabric = NvLinkFabric{3, 0, 0x99};
  };
  const auto refused = [](Hardware& machine) {
    machine.gpu.gpus[2].nvlink_fabric = NvLinkFabric{3, 15, 0};
  };
  const auto no_manager = [](const NodeTree& tree) { tree.remove("proc/2101"); };
  const auto unseen = [](const NodeTree& tree) {
    tree.remove("proc/2101");
    tree.write("proc/1/comm", "paceline-agent\n");
  };
  const auto asleep = [](Hardware& machine) {
    for (auto& gpu : machine.gpu.gpus) {
      for (auto& link : gpu.nvlinks) link = {link.link, false, NvLinkRemote::kUnknown, {}};
    }
  };
  // Cards with four links each, of which these pairs have a bridge.
  const auto bridges = [](const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
    return [pairs](Hardware& machine) {
      auto& gpus = machine.gpu.gpus;
      for (auto& gpu : gpus) {
        for (int link = 0; link < 4; ++link)
          gpu.nvlinks.push_back({link, false, NvLinkRemote::kUnknown, {}});
      }
      const auto connect = [&](std::size_t from, std::size_t to) {
        const auto free = std::find_if(gpus[from].nvlinks.begin(), gpus[from].nvlinks.end(),
                                       [](const NvLink& link) { return !link.active; });
        *free = {free->link, true, NvLinkRemote::kGpu, gpus[to].pci_address};
      };
      for (const auto& [a, b] : pairs) {
        connect(a, b);
        connect(b, a);
      }
    };
  };
  const auto no_gpus = [](Hardware& machine) {
    std::swap(machine.gpu.gpus, machine.gpu.unreadable);
  };
  return {
      {"nvlink", Verdict::kPass, "18 of 18 links are active", kH100},
      {"nvlink", Verdict::kFail, "17 of 18 links are active", kBroken},
      {"nvlink", Verdict::kWarn, "rose by 2 within 60 min", kH100, [](const NodeTree&) {}, errors,
       an_hour_ago("0000:52:00.0 nvlink_errors", 10)},
      {"nvlink", Verdict::kPass, "18 of 18", kH100, [](const NodeTree&) {}, errors,
       an_hour_ago("0000:52:00.0 nvlink_errors", 12)},
      {"nvlink", Verdict::kUnknown, "NVML shows no GPU", kH100, [](const NodeTree&) {}, no_gpus},
      {"nvlink", Verdict::kSkip, "no GPU has NVLinks", kSockets},
      {"nvlink", Verdict::kSkip, "cards without a bridge", kSockets, [](const NodeTree&) {},
       bridges({})},
      {"nvlink", Verdict::kPass, "2 of 2 links are active", kSockets, [](const NodeTree&) {},
       bridges({{0, 1}, {0, 1}})},
      {"nvlink", Verdict::kFail, "1 of 2 links are active", kSockets, [](const NodeTree&) {},
       bridges({{0, 1}, {0, 1}, {2, 3}})},
      {"nvlink", Verdict::kFail,
       "2 of 2 links are active, but 2 links lead to GPU1, which has 1 back", kSockets,
       [](const NodeTree&) {},
       [bridges](Hardware& machine) {
         bridges({{0, 1}, {0, 1}})(machine);
         machine.gpu.gpus[1].nvlinks[1].remote_address = machine.gpu.gpus[2].pci_address;
       }},
      {"nvlink", Verdict::kFail, "link 1 leads to 0000:77:00.0, which is not on this node",
       kSockets, [](const NodeTree&) {},
       [bridges](Hardware& machine) {
         bridges({{0, 1}, {0, 1}})(machine);
         machine.gpu.gpus[0].nvlinks[1].remote_address = "0000:77:00.0";
         machine.gpu.gpus[1].nvlinks[1].remote_address.clear();
       }},
      // A hypervisor that passes one GPU of a board keeps its links.
      {"nvlink", Verdict::kSkip, "no NVLink leads anywhere", kVirtual, [](const NodeTree&) {},
       asleep},
      {"nvlink", Verdict::kFail, "0 of 12 links are active", kA100, [](const NodeTree&) {}, asleep},
      {"fabric", Verdict::kPass, "registration completed", kH100},
      {"fabric", Verdict::kPass, "nv-fabricmanager runs", kA100},
      {"fabric", Verdict::kFail, "registration not started", kBroken},
      {"fabric", Verdict::kFail, "completed with status 15", kH100, [](const NodeTree&) {},
       refused},
      {"fabric", Verdict::kFail, "bandwidth is degraded, routes are unhealthy", kH100,
       [](const NodeTree&) {}, ill},
      {"fabric", Verdict::kFail, "no nv-fabricmanager runs", kA100, no_manager},
      {"fabric", Verdict::kUnknown, "cannot be seen from here", kA100, unseen},
      {"fabric", Verdict::kSkip, "no NVSwitch", kSockets},
      {"imex", Verdict::kUnknown, "nvidia-imex runs here", kTray},
      {"imex", Verdict::kUnknown, "right where ComputeDomains start it", kTray, no_manager},
      {"imex", Verdict::kFail, "offers no nvidia-caps-imex-channels", kTray,
       put("proc/devices", "195 nvidia\n")},
      {"imex", Verdict::kUnknown, "1 channels exist", kTray, unseen},
      {"imex", Verdict::kUnknown, "/proc/devices cannot be read", kTray, drop("proc/devices")},
      {"imex", Verdict::kSkip, "no NVLink domain", kH100},
      {"gdrcopy", Verdict::kPass, "gdrdrv is loaded", kH100,
       put("proc/devices", "195 nvidia\n240 gdrdrv\n")},
      {"gdrcopy", Verdict::kSkip, "not loaded", kH100},
      {"gdrcopy", Verdict::kUnknown, "cannot be read", kH100, drop("proc/devices")},
      {"hugepages", Verdict::kPass, "64 of 2048 KiB", kH100,
       put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n")},
      {"hugepages", Verdict::kUnknown, "no pools", kVirtual},
      {"memlock", Verdict::kUnknown, "in the job's pod", kH100},
      {"uverbs-access", Verdict::kUnknown, "in the job's pod", kH100},
      {"nccl-env", Verdict::kUnknown, "in the job's pod", kH100},
      {"nccl-env", Verdict::kSkip, "no accelerator", "nothing"},
  };
}

}  // namespace

std::vector<CheckCase> gpu_cases() {
  auto all = health_cases();
  for (auto& row : nvlink_cases()) all.push_back(std::move(row));
  return all;
}

}  // namespace paceline::agent
