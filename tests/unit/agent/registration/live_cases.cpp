// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {
namespace {

/// A report of paceline-probe about a node's GPUs and NICs: all attempts succeed, except as
/// `change` sets them.
std::optional<Registrations> all_tried(const char* fixture,
                                       const std::function<void(Attempt&)>& change) {
  Registrations found;
  const auto add = [&](Attempt attempt) {
    change(attempt);
    found.attempts.push_back(std::move(attempt));
  };
  const bool h100 = std::string_view(fixture) == kH100;
  for (const char* gpu :
       h100 ? std::array{"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0",
                         "0000:9d:00.0", "0000:c3:00.0", "0000:d1:00.0", "0000:df:00.0"}
            : std::array{"0000:05:00.0", "0000:06:00.0", "0000:45:00.0", "0000:46:00.0",
                         "0000:85:00.0", "0000:86:00.0", "0000:b5:00.0", "0000:b6:00.0"}) {
    for (int i = 0; i < 8; ++i) {
      const std::string nic = "mlx5_" + std::to_string(i);
      if (found.attempts.size() < 16) add({Step::kOpen, nic, "", Outcome::kDone, 0, ""});
      add({Step::kDmaBuf, nic, gpu, Outcome::kDone, 0, ""});
      add({Step::kPeerMemory, nic, gpu, Outcome::kDone, 0, ""});
    }
  }
  // The probe ends where a driver hangs.
  const auto hung =
      std::find_if(found.attempts.begin(), found.attempts.end(),
                   [](const Attempt& attempt) { return attempt.outcome == Outcome::kHung; });
  if (hung != found.attempts.end()) found.attempts.erase(hung + 1, found.attempts.end());
  return found;
}

/// Gives these steps this outcome, for all NICs or one.
std::function<void(Attempt&)> ends(std::set<Step> steps, Outcome outcome, std::string why,
                                   std::string nic = {}) {
  return [=](Attempt& attempt) {
    if (!steps.contains(attempt.step) || (!nic.empty() && attempt.nic != nic)) return;
    attempt.outcome = outcome;
    attempt.why = why;
  };
}

}  // namespace

std::vector<CheckCase> live_cases() {
  const auto same = [](const NodeTree&) {};
  const auto row = [&](const char* id, Verdict verdict, const char* evidence, const char* fixture,
                       std::optional<Registrations> found) {
    return CheckCase{id, verdict, evidence, fixture, same, [](Hardware&) {}, {}, std::move(found)};
  };
  const auto well = [](Attempt&) {};
  const auto in_pod = [](std::optional<Registrations> found, std::optional<std::uint64_t> limit) {
    found->in_pod = true;
    found->memlock_bytes = limit;
    return found;
  };
  const auto told = [](std::optional<Registrations> found, NcclSetting setting) {
    found->nccl.push_back(std::move(setting));
    return found;
  };
  const auto idle = [](const NodeTree& tree) {
    tree.write("sys/bus/pci/devices/0000:1b:00.0/current_link_speed", "2.5 GT/s PCIe\n");
  };
  const auto link = [&](Verdict verdict, const char* evidence, Outcome outcome, const char* saw) {
    Registrations found;
    found.attempts.push_back({Step::kLinkLoad, "", "0000:1b:00.0", outcome, 0, "", saw});
    return CheckCase{"pcie-link", verdict,          evidence, kH100,
                     idle,        [](Hardware&) {}, {},       std::move(found)};
  };
  Registrations none;
  none.problem = "no RDMA device: libibverbs lists none";
  const auto no_peer = ends({Step::kPeerMemory}, Outcome::kRefused, "ibv_reg_mr: Bad address");
  const auto neither = ends({Step::kDmaBuf, Step::kPeerMemory}, Outcome::kRefused,
                            "ibv_reg_mr: Bad address", "mlx5_3");
  Registrations busy;
  busy.attempts = {
      {Step::kGpuMemory, "", "0000:1b:00.0", Outcome::kNotTried, 0, "processes use it"}};
  Registrations hung;
  hung.attempts = {{Step::kOpen, "mlx5_2", "", Outcome::kHung, 0, "no answer within 30 s"}};
  const auto on_cpus = [&](const char* cpus) {
    auto found = in_pod(all_tried(kH100, well), {});
    found->cpus = cpus;
    found->attempts.push_back({Step::kGpuMemory, "", "0000:9d:00.0", Outcome::kDone, 0, ""});
    return found;
  };
  const auto ports = [](std::string odd) {
    Registrations found;
    for (int i = 0; i < 8; ++i)
      found.attempts.push_back({Step::kPort, "mlx5_" + std::to_string(i), "", Outcome::kDone, 0, "",
                                i == 3 ? odd : "port 1 MTU 4096 of 4096"});
    return std::optional(found);
  };
  const auto domain = [](Outcome outcome, const char* why) {
    Registrations found;
    found.attempts.push_back({Step::kFabricMemory, "", "0008:01:00.0", outcome, 0, why});
    return found;
  };
  const auto seen_by_agent = [](CheckCase one) {
    one.change = [](const NodeTree& tree) {
      tree.remove("proc/2101");
      tree.write("proc/1/comm", "paceline-agent\n");
    };
    return one;
  };
  auto told_version =
      told(in_pod(all_tried(kH100, well), {}), {"NCCL_IB_GID_INDEX", "3", "the environment"});
  told_version->nccl_version = 21805;
  Registrations storage = hung;
  storage.attempts[0].nic = "mlx5_99";
  constexpr const char* kNotPermitted = "cuMemExportToShareableHandle: CUDA_ERROR_NOT_PERMITTED";
  return {
      row("imex", Verdict::kPass, "memory of 1 GPUs was exported", kTray,
          domain(Outcome::kDone, "")),
      row("imex", Verdict::kFail, kNotPermitted, kTray, domain(Outcome::kRefused, kNotPermitted)),
      row("imex", Verdict::kFail, "no answer", kTray,
          domain(Outcome::kHung, "no answer within 30 s")),
      seen_by_agent(row("imex", Verdict::kWarn, "restart its agent to look again", kTray,
                        domain(Outcome::kRefused, kNotPermitted))),
      row("imex", Verdict::kUnknown, "nvidia-imex runs here", kTray,
          domain(Outcome::kNotTried, "processes use it")),
      row("imex", Verdict::kSkip, "no NVLink domain", kH100,
          domain(Outcome::kRefused, kNotPermitted)),
      row("dmabuf", Verdict::kPass, "registered for 64 pairs", kH100, all_tried(kH100, no_peer)),
      row("dmabuf", Verdict::kFail, "ibv_reg_mr: Bad address", kH100, all_tried(kH100, neither)),
      row("dmabuf", Verdict::kPass, "registered for 56 pairs", kH100, all_tried(kH100, neither)),
      row("dmabuf", Verdict::kWarn, "no; by its pointer it can be registered", kH100,
          all_tried(kH100, ends({Step::kDmaBuf}, Outcome::kRefused, "no"))),
      row("dmabuf", Verdict::kWarn, "nvidia_peermem has to take its place", kA100,
          all_tried(kA100, ends({Step::kDmaBuf}, Outcome::kRefused, "no"))),
      row("dmabuf", Verdict::kFail, "no answer within 30 s", kH100,
          all_tried(kH100,
                    ends({Step::kDmaBuf}, Outcome::kHung, "no answer within 30 s", "mlx5_7"))),
      row("dmabuf", Verdict::kUnknown,
          "not for every pair: registering memory of 0000:1b:00.0 with mlx5_7 as dma-buf", kH100,
          all_tried(kH100,
                    ends({Step::kDmaBuf}, Outcome::kHung, "no answer within 30 s", "mlx5_7"))),
      row("dmabuf", Verdict::kFail, "opening mlx5_2: no answer within 30 s", kH100, hung),
      row("dmabuf", Verdict::kUnknown, "allow it; no registration was tried", kH100, storage),
      row("dmabuf", Verdict::kUnknown,
          "allow it; allocating memory of 0000:1b:00.0: processes use it", kH100, busy),
      row("dmabuf", Verdict::kUnknown, "no registration was tried: no RDMA device", kH100, none),
      row("peermem-effective", Verdict::kPass, "registered for 64 pairs", kA100,
          all_tried(kA100, well)),
      row("peermem-effective", Verdict::kFail, "ibv_reg_mr: Bad address", kA100,
          all_tried(kA100, neither)),
      row("peermem-effective", Verdict::kWarn, "as dma-buf it can be registered", kA100,
          all_tried(kA100, no_peer)),
      row("peermem-effective", Verdict::kUnknown,
          "bound to ib_core; no registration was tried: no RDMA", kA100, none),
      row("peermem-effective", Verdict::kSkip, "no peer memory module", kH100,
          all_tried(kH100, no_peer)),
      row("memlock", Verdict::kPass, "no limit", kH100, in_pod(all_tried(kH100, well), {})),
      row("memlock", Verdict::kFail, "limited to 8192 KiB", kH100,
          in_pod(all_tried(kH100, well), 8192 * 1024)),
      row("memlock", Verdict::kUnknown, "in the job's pod", kH100, all_tried(kH100, well)),
      row("uverbs-access", Verdict::kPass, "opens", kH100, in_pod(all_tried(kH100, well), {})),
      row("uverbs-access", Verdict::kFail, "Permission denied", kH100,
          in_pod(all_tried(kH100,
                           ends({Step::kOpen}, Outcome::kRefused, "Permission denied", "mlx5_1")),
                 {})),
      row("numa", Verdict::kPass, "the pod has CPUs of its NUMA node 1", kH100, on_cpus("3-4")),
      row("numa", Verdict::kWarn, "the pod runs on CPUs 0-3, none of them of its NUMA node 1",
          kH100, on_cpus("0-3")),
      row("numa", Verdict::kUnknown, "cannot be read: many", kH100, on_cpus("many")),
      row("mtu", Verdict::kPass, "runs at 4096 of 4096 bytes", kA100,
          ports("port 1 MTU 4096 of 4096")),
      row("mtu", Verdict::kWarn, "runs at 1024 of 4096 bytes", kA100,
          ports("port 1 MTU 1024 of 4096")),
      row("mtu", Verdict::kFail, "the ports of this node differ: 1024 to 4096", kA100,
          ports("port 1 MTU 1024 of 4096")),
      row("nccl-env", Verdict::kPass, "nothing is in the way", kH100, told_version),
      link(Verdict::kPass, "32 GT/s x16 of 32 GT/s x16 under load", Outcome::kDone,
           "32.0 GT/s PCIe x16"),
      link(Verdict::kFail, "16 GT/s x16 of 32 GT/s x16 under load", Outcome::kDone,
           "16.0 GT/s PCIe x16"),
      link(Verdict::kFail, "32 GT/s x8 of 32 GT/s x16 under load", Outcome::kDone,
           "32.0 GT/s PCIe x8"),
      link(Verdict::kUnknown, "an idle GPU lowers its link", Outcome::kDone, "very fast"),
      link(Verdict::kUnknown, "an idle GPU lowers its link", Outcome::kRefused,
           "32.0 GT/s PCIe x16"),
      row("nccl-env", Verdict::kPass, "nothing is in the way", kH100,
          in_pod(all_tried(kH100, well), {})),
      row("nccl-env", Verdict::kWarn, "NCCL_IB_DISABLE=1 (the environment) turns RDMA off", kH100,
          told(in_pod(all_tried(kH100, well), {}), {"NCCL_IB_DISABLE", "1", "the environment"})),
      row("nccl-env", Verdict::kUnknown, "in the job's pod", kH100, all_tried(kH100, well)),
      row("uverbs-access", Verdict::kUnknown, "libibverbs lists none", kH100, in_pod(none, {})),
  };
}

}  // namespace paceline::agent
