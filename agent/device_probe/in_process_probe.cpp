// SPDX-License-Identifier: Apache-2.0
#include "agent/device_probe/in_process_probe.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/device_probe/cuda.hpp"
#include "agent/device_probe/gpu_usage.hpp"
#include "agent/device_probe/verbs.hpp"
#include "agent/probe/gpu/probe_gpus.hpp"
#include "agent/probe/sysfs/devices.hpp"
#include "agent/probe/sysfs/root.hpp"
#include "agent/registration/attempt_json.hpp"
#include "common/contract/env.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

Attempt about(Step step, std::string nic = {}, std::string gpu = {}) {
  return {step, std::move(nic), std::move(gpu), Outcome::kNotTried, 0, {}};
}

constexpr int kMostPorts = 8;

struct OpenNic {
  std::string name;
  std::unique_ptr<Verbs::Nic> nic;
};

class Trial {
 public:
  Trial(const DeviceProbeOptions& options, bool in_pod,
        const std::function<void(const std::string&)>& tell)
      : options_(options), in_pod_(in_pod), tell_(tell) {}

  /// Returns why nothing could be tried; empty if something was.
  std::string run() {
    Verbs verbs(options_.verbs);
    std::vector<OpenNic> nics;
    std::string problem = open_nics(verbs, nics);
    // A GPU's link is checked even without a NIC.
    if (!nics.empty() || !in_pod_) try_gpus(nics);
    return problem;
  }

 private:
  std::string open_nics(Verbs& verbs, std::vector<OpenNic>& nics) {
    if (!verbs.problem().empty())
      return "libibverbs cannot be used (" + verbs.problem() +
             "): install rdma-core's library (libibverbs1)";
    std::vector<std::string> names;
    Refusal listed;
    step(about(Step::kDevices), [&] { return listed = verbs.list(names); }, ENOSYS);
    if (listed.error == ENOSYS)
      return "no RDMA device: this kernel has no RDMA (ib_uverbs is not loaded)";
    if (listed.refused()) return "the RDMA devices cannot be listed: " + listed.why;
    if (names.empty()) return "no RDMA device: libibverbs lists none";
    nics = open_all(verbs, names);
    return {};
  }

  void say(const char* what, json content) {
    tell_(json{{what, std::move(content)}}.dump(-1, ' ', true, json::error_handler_t::replace));
  }

  /// Runs a step and reports it before and after. A refusal with the error `harmless` is no
  /// failure: the step did not apply.
  template <typename Run>
  bool step(Attempt attempt, Run run, int harmless = 0, const std::string& saw = {}) {
    say("begin", attempt_json(attempt));
    const Refusal refusal = run();
    attempt.outcome = !refusal.refused()                           ? Outcome::kDone
                      : harmless != 0 && refusal.error == harmless ? Outcome::kNotTried
                                                                   : Outcome::kRefused;
    attempt.error = attempt.outcome == Outcome::kRefused ? refusal.error : 0;
    attempt.why = refusal.why;
    attempt.saw = saw;
    say("end", attempt_json(attempt));
    return !refusal.refused();
  }

  std::vector<OpenNic> open_all(const Verbs& verbs, const std::vector<std::string>& names) {
    std::vector<OpenNic> nics;
    // Page-aligned, two pages, like a job's buffers.
    constexpr std::size_t kPage = 4096;
    constexpr std::size_t kSize = 2 * kPage;
    const std::unique_ptr<void, decltype(&std::free)> host(std::aligned_alloc(kPage, kSize),
                                                           &std::free);
    for (std::size_t i = 0; i < names.size(); ++i) {
      OpenNic open{names[i], nullptr};
      step(about(Step::kOpen, names[i]), [&] {
        Refusal refusal;
        open.nic = verbs.open(i, refusal);
        return refusal;
      });
      if (open.nic == nullptr) continue;
      step(about(Step::kHostMemory, names[i]),
           [&] { return open.nic->register_pointer(host.get(), kSize); });
      ask_ports(names[i], *open.nic);
      step(about(Step::kDmaBufDriver, names[i]), [&] { return open.nic->knows_dmabuf(); });
      nics.push_back(std::move(open));
    }
    return nics;
  }

  void ask_ports(const std::string& name, const Verbs::Nic& nic) {
    auto ports =
        list_names(std::filesystem::path(options_.sys) / "class/infiniband" / name / "ports");
    if (ports.empty()) ports = {"1"};
    for (const auto& text : ports) {
      const int number = std::atoi(text.c_str());
      if (number < 1 || number > kMostPorts) continue;
      std::string saw;
      step(
          about(Step::kPort, name),
          [&] {
            Verbs::Nic::Port port;
            auto refusal = nic.query_port(number, port);
            if (!refusal.refused() && port.active_mtu > 0) {
              saw = "port " + std::to_string(number) + " MTU " + std::to_string(port.active_mtu) +
                    " of " + std::to_string(port.max_mtu);
            }
            return refusal;
          },
          EINVAL, saw);
    }
  }

  void try_gpus(const std::vector<OpenNic>& nics) {
    std::optional<Cuda> cuda;
    std::vector<std::string> gpus;
    // Without a NIC, missing GPUs are not worth a report.
    if (nics.empty() && !Cuda(options_.cuda).is_there()) return;
    step(
        about(Step::kGpus),
        [&] {
          cuda.emplace(options_.cuda);
          return cuda->list(gpus);
        },
        Cuda::kNoGpus);
    if (gpus.empty()) return;
    const GpuUsage idle(options_.nvml);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const std::string busy = options_.even_busy ? std::string{} : idle.why_busy(gpus[i]);
      if (!busy.empty()) {
        Attempt left = about(Step::kGpuMemory, {}, gpus[i]);
        left.why = busy;
        say("end", attempt_json(left));
        continue;
      }
      const auto memory = cuda->memory(i);
      if (!step(about(Step::kGpuMemory, {}, gpus[i]), [&] { return memory->allocate(); })) continue;
      if (!in_pod_) load_link(*memory, gpus[i]);
      step(
          about(Step::kFabricMemory, {}, gpus[i]), [&] { return memory->share_with_domain(); },
          Cuda::Memory::kNoDomain);
      for (const auto& [name, nic] : nics) try_pair(*memory, gpus[i], name, *nic);
    }
  }

  /// A quarter of a second raises an idle GPU's link to full speed, and it stays there long enough
  /// to be read.
  void load_link(Cuda::Memory& memory, const std::string& gpu) {
    std::string saw;
    step(
        about(Step::kLinkLoad, {}, gpu),
        [&] {
          auto refusal = memory.fill_for(std::chrono::milliseconds(250));
          const auto device = std::filesystem::path(options_.sys) / "bus/pci/devices" / gpu;
          const auto speed = read_text(device / "current_link_speed");
          const auto width = read_text(device / "current_link_width");
          if (refusal.refused()) return refusal;
          if (!speed || !width) return Refusal{ENOENT, "its link cannot be read in sysfs"};
          saw = *speed + " x" + *width;
          return refusal;
        },
        ENOENT, saw);
  }

  /// Tries both ways although one is enough, to find a module that is loaded but has no effect.
  void try_pair(Cuda::Memory& memory, const std::string& gpu, const std::string& name,
                const Verbs::Nic& nic) {
    step(about(Step::kDmaBuf, name, gpu), [&] {
      int descriptor = -1;
      auto refusal = memory.export_dmabuf(descriptor);
      return refusal.refused() ? refusal
                               : nic.register_dmabuf(descriptor, memory.address(), memory.size());
    });
    step(about(Step::kPeerMemory, name, gpu), [&] {
      return nic.register_pointer(
          reinterpret_cast<void*>(static_cast<std::uintptr_t>(memory.address())), memory.size());
    });
  }

  const DeviceProbeOptions& options_;
  const bool in_pod_;
  const std::function<void(const std::string&)>& tell_;
};

/// True if the process has CAP_IPC_LOCK, which removes the limit; it is effective for uid 0 only.
bool may_lock_all() {
  constexpr unsigned kIpcLock = 14;
  const std::string status = read_text("/proc/self/status").value_or("");
  const auto at = status.find("\nCapEff:");
  if (at == std::string::npos) return false;
  return (std::strtoull(status.c_str() + at + 8, nullptr, 16) >> kIpcLock & 1U) != 0;
}

/// The RDMA devices of this machine that serve its GPUs, chosen as the agent does.
std::vector<std::string> job_nics(const Root& root) {
  Hardware hardware;
  hardware.pci = probe_pci(root);
  hardware.rdma = probe_rdma(root);
  // From the bus alone: a GPU's place does not depend on whether this pod may use it.
  const auto no_library = replay_gpus({}, "not asked");
  hardware.gpu = probe_gpus(hardware.pci, *no_library);
  std::vector<std::string> names;
  for (const auto* nic : compute_nics_of(hardware, relate(hardware))) {
    if (names.size() < kMaxJobNics) names.push_back(nic->name);
  }
  return names;
}

/// The CPUs that this process may use, as a kernel CPU list.
std::string own_cpus() {
  const std::string status = read_text("/proc/self/status").value_or("");
  constexpr std::string_view kField = "\nCpus_allowed_list:";
  const auto at = status.find(kField);
  if (at == std::string::npos) return {};
  const auto begin = status.find_first_not_of(" \t", at + kField.size());
  const auto end = status.find('\n', at + 1);
  return begin == std::string::npos || begin > end ? std::string{}
                                                   : status.substr(begin, end - begin);
}

/// NCCL's version, read only if a setting depends on it, because the library is large.
std::optional<int> nccl_version(const DeviceProbeOptions& options,
                                const std::vector<NcclSetting>& settings) {
  const bool decides =
      std::any_of(settings.begin(), settings.end(),
                  [](const NcclSetting& setting) { return setting.name == "NCCL_IB_GID_INDEX"; });
  if (!decides) return std::nullopt;
  for (const auto& file : nccl_libraries(options.nccl)) {
    SharedLibrary library(file);
    int (*version)(int* number) = nullptr;
    library.find("ncclGetVersion", version);
    int number = 0;
    if (version != nullptr && version(&number) == 0 && number > 0) return number;
  }
  return std::nullopt;
}

/// Adds what only a job's pod can tell.
void tell_pod(const DeviceProbeOptions& options, Registrations& end) {
  const auto variable = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  };
  const Root root(options.sys, "/proc");
  end.nccl = read_nccl_settings(variable);
  end.netdevs = list_names(root.sys() / "class/net");
  if (end.netdevs.size() > kMaxNetdevs) end.netdevs.resize(kMaxNetdevs);
  end.job_nics = job_nics(root);
  end.cpus = own_cpus();
  end.nccl_version = nccl_version(options, end.nccl);
}

}  // namespace

void probe_devices(const DeviceProbeOptions& options,
                   const std::function<void(const std::string&)>& tell) {
  Registrations end;
  end.in_pod = std::getenv(std::string(env::kJobName.name).c_str()) != nullptr;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && !may_lock_all())
    end.memlock_bytes = limit.rlim_cur;
  end.problem = Trial(options, end.in_pod, tell).run();
  if (end.in_pod) tell_pod(options, end);
  tell(json{{"finished", json::parse(registrations_json(end))}}.dump());
}

}  // namespace paceline::agent
