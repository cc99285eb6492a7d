// SPDX-License-Identifier: Apache-2.0
#include "launcher/fabric/nccl.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "launcher/fabric/rdma_choice.hpp"

namespace paceline::fabric {
namespace {

// NCCL's documentation sets both socket variables to 4 for a network of 100 Gbit/s.
constexpr std::int64_t kMbpsOfOneSocket = 25'000;
constexpr int kMostSockets = 4;
// A connection has helper threads for each direction.
constexpr int kDirections = 2;
// On network devices of these vendors NCCL chooses threads and sockets by itself.
constexpr std::array<std::string_view, 2> kKnownToNccl{"0x1d0f", "0x1ae0"};

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

class Composer {
 public:
  Composer(const Machine& machine, const Job& job) : machine_(machine), job_(job) {}

  Advice compose() {
    addresses();
    if (machine_.gpus > 0 && !job_.profiler.empty())
      set(kProfilerPlugin, job_.profiler, "it counts and times NCCL's collectives");
    if (job_.hosts < 2 || machine_.gpus == 0) return advice_;
    if (!job_.left_alone.empty()) {
      advice_.transport = "left to NCCL: " + job_.left_alone;
    } else if (!user("NCCL_NET_PLUGIN").empty() && !same_word(user("NCCL_NET_PLUGIN"), "none")) {
      advice_.transport = "the plugin of NCCL_NET_PLUGIN=" + user("NCCL_NET_PLUGIN") + " decides";
    } else if (!user("NCCL_NET").empty() && !same_word(user("NCCL_NET"), "IB") &&
               !same_word(user("NCCL_NET"), "Socket")) {
      advice_.transport = "the plugin of NCCL_NET=" + user("NCCL_NET") + " decides";
    } else if (std::ranges::any_of(machine_.ports, &RdmaPort::efa)) {
      advice_.transport = "EFA: the plugin aws-ofi-nccl decides";
    } else {
      transport();
    }
    return advice_;
  }

 private:
  std::string user(const std::string& name) const {
    const auto found = job_.user_sets.find(name);
    return found == job_.user_sets.end() ? "" : found->second;
  }
  bool user_sets(const std::string& name) const { return job_.user_sets.contains(name); }

  void set(const std::string& name, std::string value, std::string reason) {
    if (!user_sets(name)) advice_.settings.push_back({name, std::move(value), std::move(reason)});
  }

  /// These are set on one host, too.
  void addresses() {
    const std::string& device = machine_.interface.name;
    if (!device.empty()) {
      set("GLOO_SOCKET_IFNAME", device, "it has this pod's address");
      set("NCCL_SOCKET_IFNAME", "=" + device, "it has this pod's address");
    }
    if (job_.gpu_direct_off) set("NCCL_NET_GDR_LEVEL", "LOC", "spec.network.gpuDirect is Disabled");
  }

  void transport() {
    const std::string disabled = user("NCCL_IB_DISABLE");
    const bool refused =
        same_word(user("NCCL_NET"), "Socket") || (!disabled.empty() && disabled != "0");
    const RdmaChoice choice = choose_ports(machine_.ports);
    if (refused || choice.taken == 0) return sockets(refused);
    advice_.transport = choice.summary;
    // The user's choice may be another one than ours, and all that follows depends on it.
    if (user_sets("NCCL_IB_HCA")) {
      advice_.transport = "RDMA over NCCL_IB_HCA=" + user("NCCL_IB_HCA");
      return;
    }
    if (!choice.list.empty()) set("NCCL_IB_HCA", choice.list, choice.reason);
    if (user_sets("NCCL_IB_GID_INDEX") || user_sets("NCCL_IB_ADDR_FAMILY")) return;
    if (choice.only_ipv6)
      set("NCCL_IB_ADDR_FAMILY", "AF_INET6",
          "the RoCE v2 addresses of these ports are all IPv6, and NCCL looks for IPv4");
    advice_.old_gid_index = choice.gid_index;
  }

  void sockets(bool refused) {
    const Interface& device = machine_.interface;
    const std::string why = refused ? "RDMA is turned off"
                            : machine_.ports.empty()
                                ? "no RDMA device can be opened in this container"
                                : "no RDMA port here is active";
    advice_.transport = "TCP" + (device.name.empty() ? "" : " over " + device.name) + ": " + why;
    // With another interface the speed of this one says nothing.
    if (device.name.empty() || user_sets("NCCL_SOCKET_IFNAME") ||
        user_sets("NCCL_SOCKET_NTHREADS") || user_sets("NCCL_NSOCKS_PERTHREAD") ||
        same_word(user("NCCL_NET"), "IB") ||
        std::ranges::find(kKnownToNccl, device.vendor) != kKnownToNccl.end())
      return;
    const auto by_speed =
        static_cast<int>(std::min<std::int64_t>(kMostSockets, device.mbps / kMbpsOfOneSocket));
    const int number = std::min(by_speed, job_.cpus / kDirections);
    if (number < 2) return;
    const std::string reason = "TCP over " + device.name + " of " +
                               std::to_string(device.mbps / 1000) + " Gbit/s, with " +
                               std::to_string(job_.cpus) + " CPUs a rank";
    set("NCCL_SOCKET_NTHREADS", std::to_string(number), reason);
    set("NCCL_NSOCKS_PERTHREAD", std::to_string(number), reason);
  }

  const Machine& machine_;
  const Job& job_;
  Advice advice_;
};

}  // namespace

Advice advise(const Machine& machine, const Job& job) { return Composer(machine, job).compose(); }

}  // namespace paceline::fabric
