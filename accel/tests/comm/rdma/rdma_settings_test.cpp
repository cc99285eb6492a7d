// SPDX-License-Identifier: Apache-2.0
// Which RDMA devices and addresses the environment and sysfs choose.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "check.hpp"
#include "comm/transport/rdma/rdma_choice.hpp"

namespace {

using paceline::comm::gid_index_of;
using paceline::comm::is_wanted;
using paceline::comm::RdmaSettings;
using paceline::comm::read_rdma_settings;

}  // namespace

CASE(comm_rdma_devices_are_chosen_as_nccl_chooses_them) {
  CHECK(is_wanted("", "mlx5_0", 1) && is_wanted("mlx5", "mlx5_10", 2));
  CHECK(is_wanted("mlx5_1", "mlx5_10", 1) && !is_wanted("=mlx5_1", "mlx5_10", 1) &&
        is_wanted("=mlx5_1", "mlx5_1", 1));
  CHECK(is_wanted("mlx5_0:1,mlx5_2", "mlx5_0", 1) && !is_wanted("mlx5_0:1,mlx5_2", "mlx5_0", 2));
  CHECK(is_wanted("mlx5_0:1,mlx5_2", "mlx5_2", 2) && !is_wanted("mlx5_0:1,mlx5_2", "mlx5_1", 1));
  CHECK(!is_wanted("^mlx5_0", "mlx5_0", 1) && is_wanted("^=mlx5_0", "mlx5_01", 1) &&
        is_wanted("^mlx5_0", "bnxt_re0", 1));

  std::map<std::string, std::string> variables{
      {"NCCL_IB_HCA", "mlx5_0"},  {"NCCL_IB_GID_INDEX", "3"}, {"NCCL_IB_TIMEOUT", "22"},
      {"NCCL_IB_RETRY_CNT", "5"}, {"NCCL_IB_SL", "3"},        {"NCCL_IB_TC", "106"}};
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const auto read = read_rdma_settings(variable);
  CHECK(read.has_value());
  CHECK(*read == RdmaSettings({.disabled = false,
                               .devices = "mlx5_0",
                               .gid_index = 3,
                               .timeout = 22,
                               .retries = 5,
                               .service_level = 3,
                               .traffic_class = 106}));
  variables = {{"NCCL_IB_TIMEOUT", "long"}};
  CHECK(read_rdma_settings(variable).error() == "NCCL_IB_TIMEOUT=long: use 1 to 31");
  variables = {{"NCCL_IB_RETRY_CNT", "8"}};
  CHECK(read_rdma_settings(variable).error() == "NCCL_IB_RETRY_CNT=8: use 0 to 7");
}

CASE(comm_rdma_ports_are_reached_by_roce_v2_with_an_ipv4_address) {
  char name[] = "/tmp/paceline-gids-XXXXXX";
  CHECK(::mkdtemp(name) != nullptr);
  const std::filesystem::path root = name;
  const auto port = root / "sys/class/infiniband/mlx5_0/ports/1";
  std::filesystem::create_directories(port / "gids");
  std::filesystem::create_directories(port / "gid_attrs/types");
  const auto write = [&](int index, const std::string& gid, const std::string& type) {
    std::ofstream(port / "gids" / std::to_string(index)) << gid << "\n";
    std::ofstream(port / "gid_attrs/types" / std::to_string(index)) << type << "\n";
  };
  write(0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "IB/RoCE v1");
  write(1, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2");
  write(2, "0000:0000:0000:0000:0000:ffff:c000:0201", "IB/RoCE v1");
  const auto none = gid_index_of(root, "mlx5_0", 1);
  CHECK(!none.has_value() &&
        none.error().starts_with("mlx5_0 port 1 has no RoCE v2 GID with an IPv4 address: "));
  write(3, "0000:0000:0000:0000:0000:ffff:c000:0201", "RoCE v2");
  CHECK_EQ(gid_index_of(root, "mlx5_0", 1).value_or(-1), 3);
  std::filesystem::remove_all(root);
}
