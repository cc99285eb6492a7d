// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {

std::vector<CheckCase> port_cases() {
  const auto no_gpu = [](Hardware& machine) { machine.gpu = {}; };
  const auto second_port = [](const NodeTree& tree) {
    const std::string port = "sys/class/infiniband/mlx5_3/ports/2/";
    tree.write(port + "state", "4: ACTIVE\n");
    tree.write(port + "rate", "100 Gb/sec (4X EDR)\n");
    tree.write(port + "link_layer", "Ethernet\n");
    tree.write(port + "hw_counters/link_downed", "7\n");
  };
  return {
      {"port-state", Verdict::kPass, "ACTIVE, LinkUp", kH100},
      {"port-state", Verdict::kFail, "DOWN, Disabled", kH100},
      {"port-state", Verdict::kUnknown, "cannot be read", kH100, drop(kPort3 + "state")},
      {"port-rate", Verdict::kPass, "400 Gb/s", kH100},
      {"port-rate", Verdict::kFail, "200 Gb/s, its peers on this node 400 Gb/s", kBroken},
      {"port-rate", Verdict::kUnknown, "its rate cannot be read", kH100, drop(kPort3 + "rate")},
      {"link-layer", Verdict::kPass, "InfiniBand", kH100},
      {"link-layer", Verdict::kFail, "Ethernet: mlx5_3/1; InfiniBand: mlx5_0/1", kH100,
       put(kPort3 + "link_layer", "Ethernet\n")},
      {"link-layer", Verdict::kUnknown, "no port says", kSockets,
       [](const NodeTree& tree) {
         for (const char* name : {"mlx5_0", "mlx5_1"})
           tree.remove("sys/class/infiniband/" + std::string(name) + "/ports/1/link_layer");
       }},
      {"nic-firmware", Verdict::kPass, "MT_0000000838 28.39.1002", kH100},
      {"nic-firmware", Verdict::kWarn, "28.37.1014: mlx5_2;", kBroken},
      {"nic-firmware", Verdict::kUnknown, "cannot be read", kH100,
       drop("sys/class/infiniband/mlx5_3/fw_ver")},
      {"port-errors", Verdict::kUnknown, "one reading says nothing", kH100},
      {"port-errors", Verdict::kUnknown, "counters cannot be read", kSockets,
       [](const NodeTree& tree) {
         tree.remove("sys/class/infiniband/mlx5_0/ports/1/counters");
         tree.remove("sys/class/infiniband/mlx5_0/ports/1/hw_counters");
       }},
      {"port-errors", Verdict::kPass, "no error within 60 min", kH100,
       put(kPort3 + "counters/link_downed", "4\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 4)},
      {"port-errors", Verdict::kWarn, "link_downed +3 within 60 min", kH100,
       put(kPort3 + "counters/link_downed", "7\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 4)},
      {"port-errors", Verdict::kWarn, "link_downed +2 within", kH100,  // counted from 0 again
       put(kPort3 + "counters/link_downed", "2\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 4)},
      {"port-errors", Verdict::kPass, "no error", kH100,
       put(kPort3 + "counters/symbol_error", "119\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 symbol_error", 0)},
      {"port-errors", Verdict::kWarn, "symbol_error +120", kH100,
       put(kPort3 + "counters/symbol_error", "120\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 symbol_error", 0)},
      {"gid", Verdict::kPass, "GID 3 is RoCE v2 with an IPv4 address", kA100},
      {"port-errors", Verdict::kUnknown, "link_downed 255: full counters rise no further", kH100,
       put(kPort3 + "counters/link_downed", "255\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 255)},
      {"port-errors", Verdict::kWarn, "link_downed +5 within", kH100,
       put(kPort3 + "counters/link_downed", "255\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 250)},
      {"link-layer", Verdict::kPass, "EFA", kEfa},
      {"nic-firmware", Verdict::kSkip, "AWS keeps the firmware", kEfa},
      {"gid", Verdict::kFail, "none of its 3 GIDs", kA100,
       put(kPort3 + "gids/3", "0000:0000:0000:0000:0000:0000:0000:0000")},
      {"gid", Verdict::kUnknown, "GIDs cannot be read", kA100, drop(kPort3 + "gids")},
      {"gid", Verdict::kSkip, "is known to use RDMA over Ethernet", kH100},
      {"gid", Verdict::kSkip, "is known to use RDMA over Ethernet", kEfa},
      {"gid", Verdict::kPass, "GID 3 is RoCE v2 with an IPv6 address", kA100,
       put(kPort3 + "gids/3", "2001:0db8:0000:0000:0000:0000:0000:0004")},
      {"port-errors", Verdict::kWarn, "link_downed +7 within", kH100, second_port, [](Hardware&) {},
       an_hour_ago("mlx5_3/2 link_downed", 0)},
      {"link-layer", Verdict::kFail, "Ethernet: mlx5_3/2; InfiniBand: mlx5_0/1", kH100,
       second_port},
      {"port-rate", Verdict::kFail, "100 Gb/s, its peers on this node 400 Gb/s", kH100,
       second_port},
      // Without accelerators the check reads the ports with a link.
      {"port-state", Verdict::kPass, "ACTIVE", kSockets, [](const NodeTree&) {}, no_gpu},
      {"gid", Verdict::kPass, "is RoCE v2 with an IPv4 address", kSockets, [](const NodeTree&) {},
       no_gpu},
      {"port-state", Verdict::kSkip, "no RDMA device with a link", "nothing"},
      {"mtu", Verdict::kPass, "MTU 4200", kA100},
      {"mtu", Verdict::kWarn, "MTU 1500: RoCE's 4096", kA100, put(kNet3 + "mtu", "1500\n")},
      {"mtu", Verdict::kFail, "differ: packets carry 1024 to 4096 bytes", kA100,
       put(kNet3 + "mtu", "1500\n")},
      {"mtu", Verdict::kUnknown, "MTU cannot be read", kA100, drop(kNet3 + "mtu")},
      {"pfc-ecn", Verdict::kPass, "PFC and ECN on priority 3", kA100},
      {"pfc-ecn", Verdict::kWarn, "trusts pcp, not dscp", kA100, put(kNet3 + "qos/trust", "pcp\n")},
      {"pfc-ecn", Verdict::kWarn, "no priority has flow control", kA100,
       put(kNet3 + "qos/pfc", "0 0 0 0 0 0 0 0\n")},
      {"pfc-ecn", Verdict::kWarn, "ECN is off for priority 3", kA100,
       put(kNet3 + "ecn/roce_rp/enable/3", "0\n")},
      {"pfc-ecn", Verdict::kUnknown, "mlnx_qos -i eth3", kA100, drop(kNet3 + "qos")},
      {"pfc-ecn", Verdict::kUnknown, "mlnx_qos -i eth3", kA100,
       put(kNet3 + "qos/pfc", "0,0,many\n")},
  };
}

}  // namespace paceline::agent
