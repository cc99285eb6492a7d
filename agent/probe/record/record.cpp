// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/record/record.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <set>

#include "agent/probe/pci/pci_config.hpp"
#include "agent/probe/record/scrubber.hpp"
#include "agent/probe/settings.hpp"
#include "agent/probe/sysfs/counters.hpp"
#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kConfigBytes = 4096;

class Recorder {
 public:
  explicit Recorder(const Root& root)
      : root_(root), real_sys_(resolve(root.sys()).value_or(root.sys())) {}

  std::vector<RecordedFile> take() && { return std::move(files_); }

  void proc() {
    add("proc/cpuinfo", scrub_cpuinfo(read_text(root_.proc() / "cpuinfo").value_or("")));
    add("proc/cmdline", scrub_cmdline(read_text(root_.proc() / "cmdline").value_or("")));
    add("proc/meminfo", memory_line(root_.proc() / "meminfo"));
    for (const char* file : {"driver/nvidia/version", "sys/kernel/osrelease"}) {
      if (const auto text = read_text(root_.proc() / file))
        add("proc/" + std::string(file), *text + "\n");
    }
    for (const auto& name : list_names(root_.proc())) {
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string process = read_text(root_.proc() / name / "comm").value_or("");
      const bool init = name == "1" && (process == "systemd" || process == "init");
      if (init || process.starts_with("nv-fabric") || process.starts_with("nvidia-imex"))
        add("proc/" + name + "/comm", process + "\n");
    }
    add("proc/modules", scrub_modules(read_text(root_.proc() / "modules").value_or("")));
    add("proc/devices", scrub_devices(read_text(root_.proc() / "devices").value_or("")));
  }

  /// Of the kernel log only the Xid errors, without the processes that it names.
  void kernel_log() {
    const auto log = read_kernel_log(root_.dev() / "kmsg");
    if (!log) return;
    std::string text = "recorded: Xid errors only\n";
    for (const auto& [address, codes] : parse_xids(*log)) {
      for (const int code : codes)
        text += "NVRM: Xid (PCI:" + address + "): " + std::to_string(code) + "\n";
    }
    add("dev/kmsg", text);
  }

  void cpus() {
    const fs::path system = root_.sys() / "devices/system";
    copy(system / "cpu", {"online"});
    for (const auto& name : list_names(system / "cpu")) {
      copy(system / "cpu" / name / "topology",
           {"core_id", "physical_package_id", "thread_siblings", "core_siblings"});
    }
    copy(system / "node", {"online"});
    for (const auto& name : list_names(system / "node")) {
      if (!name.starts_with("node")) continue;
      copy(system / "node" / name, {"cpulist", "cpumap", "distance"});
      add(below(system / "node" / name / "meminfo"),
          memory_line(system / "node" / name / "meminfo"));
    }
  }

  void netdevs() {
    const fs::path folder = root_.sys() / "class/net";
    for (const auto& name : list_names(folder)) {
      // Network devices without hardware describe the owner's network, and the probes ignore them.
      std::error_code error;
      if (!fs::exists(folder / name / "device", error)) continue;
      scrubber_.note_netdev(name);
      link(folder / name);
      const auto real = resolve(folder / name);
      if (!real) continue;
      copy(*real, {"type", "speed", "mtu", "operstate", "carrier", "phys_port_name", "qos/trust",
                   "qos/pfc"});
      counters(*real, CounterKind::Of::kNic);
      for (const char* point : {"ecn/roce_np/enable", "ecn/roce_rp/enable"}) {
        for (const auto& priority : list_names(*real / point))
          copy(*real / point, {priority.c_str()});
      }
      link(*real / "device");
      if (const auto device = resolve(*real / "device")) {
        link(*device / "driver");
        link(*device / "physfn");
      }
    }
  }

  void pci() {
    const fs::path folder = root_.sys() / "bus/pci/devices";
    for (const auto& name : list_names(folder)) {
      if (!is_pci_address(name)) continue;
      link(folder / name);
      const auto real = resolve(folder / name);
      if (!real) continue;
      copy(*real, {"vendor", "device", "class", "subsystem_vendor", "subsystem_device", "numa_node",
                   "local_cpus", "current_link_speed", "current_link_width", "max_link_speed",
                   "max_link_width", "resource"});
      if (const auto config = read_bytes(*real / "config", kConfigBytes);
          config && !config->empty())
        add(below(*real / "config"), scrub_config(*config));
      for (const char* other : {"driver", "physfn", "iommu_group"}) link(*real / other);
      copy(*real, {"p2p", "gdr"});
      // Vital product data holds serial numbers: only the word that the probe looks for is kept.
      if (manages_switches(*real)) add(below(*real / "vpd"), std::string(kManagesSwitches) + "\n");
      if (const auto group = resolve(*real / "iommu_group")) copy(*group, {"type"});
    }
  }

  void rdma() {
    const fs::path folder = root_.sys() / "class/infiniband";
    for (const auto& name : list_names(folder)) {
      link(folder / name);
      const auto real = resolve(folder / name);
      if (!real) continue;
      copy(*real, {"fw_ver", "board_id", "hca_type", "node_type"});
      link(*real / "device");
      for (const auto& number : list_names(*real / "ports")) {
        const fs::path port = *real / "ports" / number;
        copy(port, {"state", "phys_state", "link_layer", "rate"});
        counters(port, CounterKind::Of::kRdmaPort);
        for (const auto& index : list_names(port / "gids")) {
          const auto gid = read_text(port / "gids" / index);
          if (!gid || gid->find_first_not_of("0:") == std::string::npos) continue;
          add(below(port / "gids" / index), scrubber_.gid(*gid));
          copy(port / "gid_attrs/types", {index.c_str()});
          copy(port / "gid_attrs/ndevs", {index.c_str()});
        }
      }
    }
    for (const char* module : {"module/nvidia_peermem", "kernel/mm/memory_peers/nv_mem",
                               "kernel/mm/memory_peers/nv_mem_nc"})
      copy(root_.sys() / module, {"version", "parameters/peerdirect_support"});
    for (const char* module : {"mlx5_core", "mlx5_ib", "efa", "efa_nv_peermem"})
      copy(root_.sys() / "module" / module, {"version", "initstate"});
    for (const auto& pool : list_names(root_.sys() / "kernel/mm/hugepages"))
      copy(root_.sys() / "kernel/mm/hugepages" / pool, {"nr_hugepages"});
  }

  void gpus(GpuLibrary& library) {
    auto answer = library.devices();
    if (answer) {
      for (auto& gpu : *answer) gpu.nvlink_domain = scrubber_.domain(gpu.nvlink_domain);
    }
    add("nvml.json", nvml_json_text(answer));
  }

 private:
  /// The path in the recording of a file below /sys, whatever /sys is called on this machine.
  std::string below(const fs::path& file) const {
    const auto from = file.native().starts_with(real_sys_.native()) ? real_sys_ : root_.sys();
    return (fs::path("sys") / file.lexically_relative(from)).string();
  }

  static std::string memory_line(const fs::path& file) {
    const std::string text = read_text(file).value_or("");
    const auto at = text.find("MemTotal:");
    if (at == std::string::npos) return {};
    const auto start = text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1;
    return text.substr(start, text.find('\n', at) - start) + "\n";
  }

  void add(std::string path, std::string text, bool is_link = false) {
    if (text.empty() || !seen_.insert(path).second) return;
    path = scrubber_.names(std::move(path));
    if (path != "nvml.json") text = scrubber_.names(std::move(text));
    files_.push_back({std::move(path), std::move(text), is_link});
  }

  void copy(const fs::path& folder, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (auto text = read_text(folder / name)) add(below(folder / name), *text + "\n");
    }
  }

  void counters(const fs::path& folder, CounterKind::Of of) {
    for (const CounterKind& kind : counter_kinds()) {
      if (kind.of == of) copy(folder, {kind.file});
    }
  }

  void link(const fs::path& file) {
    std::error_code error;
    const auto target = fs::read_symlink(file, error);
    if (!error) add(below(file), target.string(), true);
  }

  const Root& root_;
  const fs::path real_sys_;
  Scrubber scrubber_;
  std::set<std::string> seen_;
  std::vector<RecordedFile> files_;
};

Status refuse(const fs::path& file, std::string_view why) {
  return fail(Code::kInternal, Origin::kSystem, file.string() + ": " + std::string(why));
}

/// Whether the path stays inside the folder.
bool stays_inside(const fs::path& path) {
  const auto plain = path.lexically_normal();
  return plain.is_relative() && !plain.empty() && *plain.begin() != "..";
}

Status write_file(const fs::path& folder, const RecordedFile& file) {
  const fs::path path = folder / file.path;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return refuse(path.parent_path(), error.message());
  if (!file.link) {
    std::ofstream stream(path, std::ios::binary);
    stream << file.text;
    stream.close();
    if (!stream) return refuse(path, std::strerror(errno));
    return {};
  }
  const fs::path leads_to = fs::path(file.path).parent_path() / file.text;
  if (!stays_inside(leads_to)) return {};
  // Probes read a link by its target, which must exist even if no file in it was recorded.
  fs::create_directories(folder / leads_to.lexically_normal(), error);
  if (!error) fs::create_symlink(file.text, path, error);
  if (error) return refuse(path, error.message());
  return {};
}

}  // namespace

std::vector<RecordedFile> record_machine(const Root& root, GpuLibrary& library) {
  Recorder recorder(root);
  recorder.netdevs();  // first, because it learns which names to replace
  recorder.proc();
  recorder.kernel_log();
  recorder.cpus();
  recorder.pci();
  recorder.rdma();
  recorder.gpus(library);
  return std::move(recorder).take();
}

Status write_recording(const std::vector<RecordedFile>& files, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return refuse(folder, error.message() + "; give a folder that can be created");
  if (!fs::is_empty(folder, error) || error) {
    return fail(
        Code::kAlreadyExists, Origin::kConfig,
        folder.string() + " is not empty; a recording wants a folder of its own: give another one");
  }
  for (const auto& file : files) {
    if (!stays_inside(file.path)) continue;
    if (auto written = write_file(folder, file); !written) return written;
  }
  return {};
}

}  // namespace paceline::agent
