// SPDX-License-Identifier: Apache-2.0
// A machine with any content in /sys and /proc. The input rewrites files of a small machine: as
// text, as bytes of configuration space, as folders, links, loops and pipes; it also removes some.
// Then everything is probed, checked and recorded.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "agent/checks/check.hpp"
#include "agent/checks/device_status.hpp"
#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/fingerprint.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/pci/pci_config.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/record/record.hpp"
#include "agent/probe/sysfs/counters.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

namespace fs = std::filesystem;
using namespace paceline;  // NOLINT(google-build-using-namespace): a program of its own

const std::string kGpu = "sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
const std::string kNic = "sys/devices/pci0000:16/0000:16:02.0/0000:18:00.0";
const std::string kPort = kNic + "/infiniband/mlx5_0/ports/1";

struct File {
  std::string path;
  std::string text;
};

const std::array<File, 47>& files() {
  static const std::array<File, 47> all{{
      {kGpu + "/vendor", "0x10de\n"},
      {kGpu + "/device", "0x2330\n"},
      {kGpu + "/class", "0x030200\n"},
      {kGpu + "/numa_node", "0\n"},
      {kGpu + "/config", std::string(64, '\x11')},
      {kGpu + "/current_link_speed", "32.0 GT/s PCIe\n"},
      {kNic + "/vendor", "0x15b3\n"},
      {kNic + "/class", "0x020700\n"},
      {kNic + "/numa_node", "1\n"},
      {kNic + "/config", std::string(64, '\x22')},
      {kNic + "/net/ibs0/type", "32\n"},
      {kNic + "/net/ibs0/speed", "400000\n"},
      {kNic + "/net/ibs0/mtu", "4092\n"},
      {kNic + "/net/ibs0/operstate", "up\n"},
      {kNic + "/net/ibs0/carrier", "1\n"},
      {kNic + "/infiniband/mlx5_0/fw_ver", "28.39.1002\n"},
      {kNic + "/infiniband/mlx5_0/board_id", "MT_0000000838\n"},
      {kPort + "/state", "4: ACTIVE\n"},
      {kPort + "/phys_state", "5: LinkUp\n"},
      {kPort + "/rate", "400 Gb/sec (4X NDR)\n"},
      {kPort + "/link_layer", "InfiniBand\n"},
      {kPort + "/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n"},
      {kPort + "/gid_attrs/types/0", "IB/RoCE v1\n"},
      {"sys/devices/system/cpu/online", "0-1\n"},
      {"sys/devices/system/cpu/cpu0/topology/core_id", "0\n"},
      {"sys/devices/system/node/node0/cpulist", "0\n"},
      {"sys/devices/system/node/node1/cpulist", "1\n"},
      {"sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1000000 kB\n"},
      {"proc/cpuinfo", "model name : A CPU\n\n"},
      {"proc/cmdline", "iommu=pt root=/dev/sda\n"},
      {"proc/modules", "ib_core 4096 1 nvidia_peermem,mlx5_ib, Live 0x0\n"},
      {"proc/devices", "195 nvidia\n234 nvidia-caps-imex-channels\n"},
      {"proc/sys/kernel/osrelease", "5.15.0-91-generic\n"},
      {"proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module\n"},
      {"proc/1/comm", "systemd\n"},
      {"sys/module/nvidia_peermem/version", "550\n"},
      {"sys/module/nvidia_peermem/parameters/peerdirect_support", "0\n"},
      {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1\n"},
      {kGpu + "/resource", "0x0 0xff 0x0\n0x100000000 0x1ffffffff 0x0\n"},
      {kGpu + "/max_link_speed", "32.0 GT/s PCIe\n"},
      {kNic + "/net/ibs0/qos/pfc", "0,0,0,1,0,0,0,0\n"},
      {kNic + "/net/ibs0/qos/trust", "dscp\n"},
      {kNic + "/net/ibs0/ecn/roce_np/enable/3", "1\n"},
      {kPort + "/counters/link_downed", "1\n"},
      {kPort + "/counters/port_rcv_data", "4096\n"},
      {kPort + "/hw_counters/out_of_sequence", "1\n"},
      {kNic + "/net/ibs0/statistics/rx_bytes", "4096\n"},
  }};
  return all;
}

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void build(const fs::path& root) {
  fs::remove_all(root);
  for (const auto& file : files()) write(root / file.path, file.text);
  const auto link = [&](const std::string& path, const std::string& target) {
    fs::create_directories((root / path).parent_path());
    fs::create_symlink(target, root / path);
  };
  link("sys/bus/pci/devices/0000:17:00.0", "../../../devices/pci0000:16/0000:16:01.0/0000:17:00.0");
  link("sys/bus/pci/devices/0000:18:00.0", "../../../devices/pci0000:16/0000:16:02.0/0000:18:00.0");
  link("sys/class/net/ibs0", "../../devices/pci0000:16/0000:16:02.0/0000:18:00.0/net/ibs0");
  link("sys/class/infiniband/mlx5_0",
       "../../devices/pci0000:16/0000:16:02.0/0000:18:00.0/infiniband/mlx5_0");
  link(kNic + "/net/ibs0/device", "../../../0000:18:00.0");
  link(kNic + "/infiniband/mlx5_0/device", "../../../0000:18:00.0");
}

void change(const fs::path& path, int how, const std::string& text) {
  std::error_code ignored;
  switch (how) {
    case 0: fs::remove(path, ignored); break;
    case 1:
      fs::remove(path, ignored);
      fs::create_directory(path, ignored);
      break;
    case 2:
      fs::remove(path, ignored);
      fs::create_symlink(path.filename(), path, ignored);
      break;
    case 3:
      fs::remove(path, ignored);
      fs::create_symlink("/dev/zero", path, ignored);
      break;
    case 4:
      fs::remove(path, ignored);
      ::mkfifo(path.c_str(), 0600);
      break;
    default:
      if (fs::is_regular_file(fs::symlink_status(path))) write(path, text);
  }
}

void probe(const fs::path& folder) {
  const agent::Root root = agent::Root::at(folder);
  agent::Gpu gpu;
  gpu.pci_address = "0000:17:00.0";
  const auto library = agent::replay_gpus({gpu});
  const auto hardware = agent::probe_hardware(root, *library);
  const auto fabric = agent::relate(hardware);
  fuzz::require(fabric.gpu_nic.size() == fabric.gpus.size(), "every GPU has a row");
  fuzz::require(agent::matrix_text(fabric).ends_with('\n'), "the table is whole lines");
  fuzz::require(agent::read_nccl_xml(agent::nccl_xml_text(hardware), "export").has_value(),
                "an export can be read");
  fuzz::require(agent::fingerprint(root, *library, hardware.pci) ==
                    agent::fingerprint(root, *library, hardware.pci),
                "a machine that stands still has one pulse");
  const agent::Node node(hardware, agent::read_settings(root, hardware));
  const auto findings = agent::run_checks(node);
  fuzz::require(findings.size() >= agent::checks().size(), "every check answers");
  for (const auto& finding : findings)
    fuzz::require(finding.evidence.size() <= 240, "evidence is short");
  for (const auto& status : agent::device_statuses(node, findings))
    fuzz::require(status.value >= 0 && status.value <= 2, "a status is ok, warn or fail");
  for (const auto& reading : agent::read_device_counters(root, hardware))
    fuzz::require(!reading.nic.empty(), "a counter is a device's");
  for (const auto& file : agent::record_machine(root, *library)) {
    fuzz::require(
        file.path == "nvml.json" || file.path.starts_with("sys/") || file.path.starts_with("proc/"),
        "a recording holds files of sys and proc");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string config = agent::scrub_config(std::string(fuzz::text(data, size)));
  fuzz::require(config.size() == size, "a configuration space keeps its size");
  fuzz::require(agent::scrub_config(config) == config,
                "what is scrubbed holds nothing more to scrub");

  static const fs::path kFolder =
      (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
      ("paceline-fuzz-sysfs-" + std::to_string(::getpid()));
  static const int kCleanUp = std::atexit([] { fs::remove_all(kFolder); });
  (void)kCleanUp;
  build(kFolder);
  fuzz::Bytes bytes(data, size);
  for (int changes = 0; changes < 8 && !bytes.empty(); ++changes) {
    const auto& file = files()[bytes.byte() % files().size()];
    const int how = bytes.byte() % 12;
    std::string text;
    for (int left = bytes.byte(); left > 0 && !bytes.empty(); --left)
      text += static_cast<char>(bytes.byte());
    change(kFolder / file.path, how, text);
  }
  probe(kFolder);
  return 0;
}
