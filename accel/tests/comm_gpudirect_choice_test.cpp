// SPDX-License-Identifier: Apache-2.0
// Which RDMA devices reach a GPU's memory: as far as NCCL_NET_GDR_LEVEL says, and of those the
// nearest ones.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "rdma_choice.hpp"

namespace comm_gpudirect_choice_cases {

using paceline::comm::nearest_rails;
using paceline::comm::PciDistance;
using paceline::comm::read_rdma_settings;

CASE(comm_gpudirect_is_allowed_as_far_as_for_nccl) {
  const auto settings_of = [](const char* level) {
    const auto variable = [&](const char* name) {
      return std::string(name) == "NCCL_NET_GDR_LEVEL" ? level : nullptr;
    };
    return *read_rdma_settings(variable);
  };
  for (const std::string level : {"LOC", "0"})
    CHECK(settings_of(level.c_str()).no_gpudirect == "NCCL_NET_GDR_LEVEL=" + level);
  CHECK(settings_of("near").no_gpudirect ==
        "NCCL_NET_GDR_LEVEL=near: use LOC, PIX, PXB, PHB or SYS");
  const std::vector<std::pair<const char*, PciDistance>> levels{
      {nullptr, PciDistance::kPxb}, {"PIX", PciDistance::kPix}, {"1", PciDistance::kPix},
      {"PXB", PciDistance::kPxb},   {"2", PciDistance::kPxb},   {"PHB", PciDistance::kPhb},
      {"3", PciDistance::kPhb},     {"SYS", PciDistance::kSys}, {"4", PciDistance::kSys},
      {"5", PciDistance::kSys}};
  for (const auto& [level, distance] : levels) {
    CHECK(settings_of(level).no_gpudirect.empty());
    CHECK(settings_of(level).most_distant == distance);
  }
}

CASE(comm_gpudirect_rails_are_those_nearest_to_the_gpu) {
  char name[] = "/tmp/paceline-rails-XXXXXX";
  CHECK(::mkdtemp(name) != nullptr);
  const std::filesystem::path root = name;
  const auto add = [&](const std::filesystem::path& device, const std::filesystem::path& link,
                       int numa_node = 0) {
    std::filesystem::create_directories(root / "sys/devices" / device);
    std::filesystem::create_directories((root / link).parent_path());
    std::filesystem::create_directory_symlink(root / "sys/devices" / device, root / link);
    std::ofstream(root / link / "numa_node") << numa_node << "\n";
  };
  const auto nic = [&](const std::string& device, const std::filesystem::path& place,
                       int numa_node = 0) {
    add(place, "sys/class/infiniband/" + device + "/device", numa_node);
  };
  add("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0",
      "sys/bus/pci/devices/0000:1b:00.0");
  nic("mlx5_0", "pci0000:97/0000:97:01.0/0000:98:00.0", 1);
  nic("mlx5_1", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0");
  nic("mlx5_2", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1c:00.0");
  nic("mlx5_3", "pci0000:15/0000:15:02.0/0000:20:00.0");
  nic("mlx5_4", "pci0000:15/0000:15:01.0/0000:30:00.0/0000:31:00.0/0000:32:00.0");
  nic("mlx5_5", "pci0000:37/0000:37:01.0/0000:38:00.0");
  using Rails = std::vector<std::size_t>;
  const auto rails_of = [&](const std::vector<std::string>& names,
                            PciDistance most_distant = PciDistance::kPxb, std::size_t first = 0,
                            std::size_t most = 4, const char* gpu = "0000:1B:00.0") {
    return nearest_rails(root, gpu, names,
                         {.most = most, .most_distant = most_distant, .first = first});
  };
  const std::vector<std::string> all{"mlx5_0", "mlx5_1", "mlx5_1:2", "mlx5_2", "mlx5_3"};
  CHECK(rails_of(all) == Rails({1, 2, 3}));
  CHECK(rails_of(all, PciDistance::kPix) == Rails({1, 2, 3}));
  CHECK(rails_of(all, PciDistance::kPxb, 0, 2) == Rails({1, 2}));
  // Lanes that have the same rails begin at different ones.
  CHECK(rails_of(all, PciDistance::kPxb, 1, 2) == Rails({2, 3}));
  CHECK(rails_of(all, PciDistance::kPxb, 5, 2) == Rails({3, 1}));

  const auto refusal = [&](const char* device, PciDistance most_distant) {
    const auto rails = rails_of({device}, most_distant);
    return rails ? "none" : rails.error();
  };
  const std::string too_far = " share no PCI switch; NCCL_NET_GDR_LEVEL=";
  CHECK(refusal("mlx5_4", PciDistance::kPix) ==
        "its GPU and mlx5_4 share no single PCI switch; NCCL_NET_GDR_LEVEL=PXB allows it");
  CHECK(refusal("mlx5_4", PciDistance::kPxb) == "none");
  CHECK(refusal("mlx5_3", PciDistance::kPxb) == "its GPU and mlx5_3" + too_far + "PHB allows it");
  CHECK(refusal("mlx5_5", PciDistance::kPxb) == "its GPU and mlx5_5" + too_far + "PHB allows it");
  CHECK(refusal("mlx5_5", PciDistance::kPhb) == "none");
  CHECK(refusal("mlx5_0", PciDistance::kPhb) == "its GPU and mlx5_0" + too_far + "SYS allows it");
  CHECK(rails_of({"mlx5_0", "mlx5_5", "mlx5_3"}, PciDistance::kSys) == Rails({2}));
  CHECK(rails_of({"mlx5_0", "mlx5_5"}, PciDistance::kSys) == Rails({1}));

  // A machine that does not say where it has its GPU, and one that shows all devices on root buses.
  CHECK(rails_of({"mlx5_0", "mlx5_3"}, PciDistance::kPix, 0, 4, "0000:77:00.0") == Rails({0, 1}));
  add("pci0001:00/0001:00:00.0", "sys/bus/pci/devices/0001:00:00.0");
  nic("mlx5_6", "pci0002:00/0002:00:00.0", 1);
  nic("mlx5_7", "pci0001:00/0001:00:02.0");
  CHECK(rails_of({"mlx5_6", "mlx5_7"}, PciDistance::kPix, 0, 4, "0001:00:00.0") == Rails({0, 1}));
  std::filesystem::remove_all(root);
}

}  // namespace comm_gpudirect_choice_cases
