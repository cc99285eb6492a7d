// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/settings.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/sysfs/counters.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfig = 4096;
constexpr std::size_t kMaxWord = 64;
constexpr std::size_t kMaxLine = 256;
constexpr std::size_t kMaxModules = 4096;
constexpr std::size_t kMaxProcesses = 16384;
constexpr int kPriorities = 8;

std::string word(const fs::path& file, std::size_t most = kMaxWord) {
  std::string text = read_text(file).value_or("");
  return text.size() <= most ? text : std::string{};
}

std::string first_line(const fs::path& file) {
  const std::string text = read_text(file).value_or("");
  return text.substr(0, std::min(text.find('\n'), kMaxLine));
}

std::optional<std::uint64_t> number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Size of BAR 1 from `resource`: a line "first last flags" for each BAR.
std::optional<std::uint64_t> bar1_mib(const fs::path& device) {
  std::istringstream lines(read_text(device / "resource").value_or(""));
  std::string line;
  std::getline(lines, line);  // BAR 0
  if (!std::getline(lines, line)) return std::nullopt;
  std::istringstream words(line);
  std::string first;
  std::string last;
  words >> first >> last;
  if (!first.starts_with("0x") || !last.starts_with("0x")) return std::nullopt;
  const auto from = number(std::string_view(first).substr(2), 16);
  const auto to = number(std::string_view(last).substr(2), 16);
  if (!from || !to || *to <= *from) return std::nullopt;
  return (*to - *from) / (1U << 20U) + 1;
}

FunctionSettings read_function(const Root& root, const std::string& address,
                               const PciSnapshot& snapshot) {
  const fs::path device = root.sys() / "bus/pci/devices" / address;
  FunctionSettings found;
  const std::string shown = read_bytes(device / "config", kMaxConfig).value_or("");
  found.config = parse_pci_config(shown);
  if (!found.config.shows_extended()) {
    const PciConfig recorded = parse_pci_config(snapshot.config_of(address, shown));
    if (recorded.bytes > found.config.bytes) found.config = recorded;
  }
  std::error_code error;
  found.in_iommu_group = fs::exists(device / "iommu_group", error);
  if (found.in_iommu_group) found.iommu_type = word(device / "iommu_group/type");
  found.max_link_speed = word(device / "max_link_speed");
  found.max_link_width = word(device / "max_link_width");
  found.bar1_mib = bar1_mib(device);
  return found;
}

std::map<int, bool> read_switches(const fs::path& folder) {
  std::map<int, bool> found;
  for (int priority = 0; priority < kPriorities; ++priority) {
    if (const auto value = read_number(folder / std::to_string(priority)))
      found[priority] = *value == 1;
  }
  return found;
}

QosSettings read_qos(const fs::path& netdev) {
  QosSettings found;
  found.trust = word(netdev / "qos/trust");
  std::string text = word(netdev / "qos/pfc");
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream fields(text);
  int priority = 0;
  for (int on = 0; fields >> on && priority < kPriorities; ++priority) {
    if (on == 1) found.pfc.push_back(priority);
  }
  found.pfc_known = priority == kPriorities;
  found.notification_point = read_switches(netdev / "ecn/roce_np/enable");
  found.reaction_point = read_switches(netdev / "ecn/roce_rp/enable");
  return found;
}

Counters read_counters(const Root& root, const Hardware& hardware) {
  Counters counters;
  for (const auto& device : hardware.rdma) {
    for (const auto& port : device.ports) {
      const fs::path folder =
          root.sys() / "class/infiniband" / device.name / "ports" / std::to_string(port.number);
      const std::string name = device.name + "/" + std::to_string(port.number) + " ";
      // Some drivers have no counters/link_downed and count in hw_counters/link_downed.
      if (const auto downed = read_number(folder / "hw_counters/link_downed");
          downed && *downed >= 0)
        counters[name + "link_downed"] = static_cast<std::uint64_t>(*downed);
      for (const CounterKind& kind : counter_kinds()) {
        if (kind.of != CounterKind::Of::kRdmaPort || kind.label != "kind") continue;
        const auto value = read_number(folder / kind.file);
        if (value && *value >= 0)
          counters[name + std::string(kind.value)] = static_cast<std::uint64_t>(*value);
      }
    }
  }
  for (const auto& gpu : hardware.gpu.gpus) {
    std::optional<std::uint64_t> errors;
    for (const auto& link : gpu.nvlinks) {
      if (link.errors) errors = errors.value_or(0) + *link.errors;
    }
    if (errors) counters[nvlink_counter(gpu)] = *errors;
  }
  return counters;
}

void read_processes(const Root& root, Settings& settings) {
  const std::string first = word(root.proc() / "1/comm");
  settings.sees_all_processes = first == "systemd" || first == "init";
  std::size_t read = 0;
  for (const auto& name : list_names(root.proc())) {
    if (name.find_first_not_of("0123456789") != std::string::npos || ++read > kMaxProcesses)
      continue;
    std::string process = word(root.proc() / name / "comm");
    // The kernel cuts names to 15 characters: nv-fabricmanager.
    if (process.starts_with("nv-fabric") || process.starts_with("nvidia-imex"))
      settings.processes.push_back(process);
  }
}

void read_kernel(const Root& root, Settings& settings) {
  settings.kernel = word(root.proc() / "sys/kernel/osrelease");
  settings.cmdline = read_text(root.proc() / "cmdline");
  const std::string cpus = read_text(root.proc() / "cpuinfo").value_or("");
  if (const auto flags = cpus.find("\nflags"); flags != std::string::npos) {
    const std::string line = cpus.substr(flags + 1, cpus.find('\n', flags + 1) - flags - 1) + " ";
    settings.hypervisor = line.find(" hypervisor ") != std::string::npos;
  }
  if (const auto modules = read_text(root.proc() / "modules"))
    settings.modules = parse_modules(*modules);
  if (const auto text = read_text(root.proc() / "devices")) {
    settings.char_devices.emplace();
    std::istringstream lines(*text);
    for (std::string line;
         std::getline(lines, line) && settings.char_devices->size() < kMaxModules;) {
      std::istringstream fields(line);
      int major = 0;
      std::string name;
      if (fields >> major >> name) settings.char_devices->push_back(name.substr(0, kMaxWord));
    }
  }
}

/// Also a module that is listed as a user of another one.
bool is_loaded(const std::map<std::string, std::vector<std::string>>& modules,
               const std::string& name) {
  return modules.contains(name) ||
         std::any_of(modules.begin(), modules.end(), [&](const auto& entry) {
           return std::find(entry.second.begin(), entry.second.end(), name) != entry.second.end();
         });
}

void read_modules(const Root& root, Settings& settings) {
  settings.nvidia_driver = first_line(root.proc() / "driver/nvidia/version");
  settings.peer_memory = peer_memory_modules(root);
  settings.peerdirect_support =
      read_number(root.sys() / "module/nvidia_peermem/parameters/peerdirect_support");
  settings.mlx5_version = word(root.sys() / "module/mlx5_core/version");
  for (const char* module : {"mlx4_ib", "mlx5_ib", "efa", "efa_nv_peermem"}) {
    std::error_code error;
    const bool loaded = settings.modules && is_loaded(*settings.modules, module);
    if (loaded || fs::exists(root.sys() / "module" / module, error))
      settings.rdma_modules.emplace_back(module);
  }
}

}  // namespace

std::vector<std::string> peer_memory_modules(const Root& root) {
  std::vector<std::string> loaded;
  std::error_code error;
  for (const char* module : {"nv_mem", "nv_mem_nc"}) {
    if (fs::exists(root.sys() / "kernel/mm/memory_peers" / module / "version", error))
      loaded.emplace_back(module);
  }
  if (fs::exists(root.sys() / "module/nvidia_peermem/version", error))
    loaded.emplace_back("nvidia_peermem");
  return loaded;
}

std::string nvlink_counter(const Gpu& gpu) { return gpu.pci_address + " nvlink_errors"; }

std::map<std::string, std::vector<int>> parse_xids(std::string_view text) {
  constexpr std::string_view kMark = "NVRM: Xid (PCI:";
  std::map<std::string, std::vector<int>> xids;
  for (auto at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at)) {
    at += kMark.size();
    // "0000:3b:00): 79, pid=…": the kernel's message names no function.
    const auto close = text.find("): ", at);
    if (close == std::string_view::npos || close - at > kMaxWord) continue;
    // A GPU in MIG mode adds its instance: "0000:3b:00 GPU-I:05".
    std::string address = sysfs_address(text.substr(at, std::min(close, text.find(' ', at)) - at));
    if (address.find('.') == std::string::npos) address += ".0";
    int code = 0;
    const char* first = text.data() + close + 3;
    if (std::from_chars(first, text.data() + text.size(), code).ec != std::errc{}) continue;
    if (!is_pci_address(address)) continue;
    auto& codes = xids[address];
    if (std::find(codes.begin(), codes.end(), code) == codes.end()) codes.push_back(code);
  }
  return xids;
}

std::map<std::string, std::vector<std::string>> parse_modules(std::string_view text) {
  std::map<std::string, std::vector<std::string>> modules;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line) && modules.size() < kMaxModules;) {
    std::istringstream fields(line);
    std::string name;
    std::string size;
    std::string count;
    std::string users;
    if (!(fields >> name >> size >> count >> users) || name.size() > kMaxWord) continue;
    auto& list = modules[name];
    std::replace(users.begin(), users.end(), ',', ' ');
    std::istringstream entries(users);
    for (std::string user; entries >> user && list.size() < kMaxModules;) {
      if (user != "-" && user.size() <= kMaxWord) list.push_back(user);
    }
  }
  return modules;
}

Settings read_settings(const Root& root, const Hardware& hardware, const PciSnapshot& snapshot) {
  constexpr std::string_view kHugepages = "hugepages-";
  Settings settings;
  read_kernel(root, settings);
  read_modules(root, settings);
  read_processes(root, settings);
  if (!root.dev().empty()) {
    settings.imex_channels = list_names(root.dev() / "nvidia-caps-imex-channels");
    if (const auto log = read_kernel_log(root.dev() / "kmsg")) settings.xids = parse_xids(*log);
  }
  const fs::path pools = root.sys() / "kernel/mm/hugepages";
  for (const auto& name : list_names(pools)) {
    if (!name.starts_with(kHugepages) || !name.ends_with("kB")) continue;
    const auto size = number(
        std::string_view(name).substr(kHugepages.size(), name.size() - kHugepages.size() - 2), 10);
    const auto count = read_number(pools / name / "nr_hugepages");
    if (size && count) settings.hugepages[*size] = *count;
  }
  for (const auto& address : functions_on_gpu_nic_paths(hardware))
    settings.functions.emplace(address, read_function(root, address, snapshot));
  for (const auto& device : hardware.rdma) {
    for (const auto& netdev : device.netdevs) {
      const fs::path folder = root.sys() / "class/net" / netdev;
      std::error_code error;
      if (!fs::exists(folder, error)) {
        settings.netdevs_elsewhere.insert(netdev);
        continue;
      }
      settings.qos.emplace(netdev, read_qos(folder));
      if (const auto mtu = read_number(folder / "mtu"); mtu && *mtu > 0)
        settings.mtus.emplace(netdev, *mtu);
    }
  }
  settings.counters = read_counters(root, hardware);
  return settings;
}

}  // namespace paceline::agent
