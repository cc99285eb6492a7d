// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <vector>

#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxPath = 128;
constexpr std::size_t kMaxPciElements = 4096;
constexpr int kMaxNvLinks = 256;
constexpr std::size_t kMaxAttribute = 255;  // NCCL's own limit
constexpr std::uint32_t kSwitchClass = 0x068000;

/// "0000ffff,ffff0000" (highest word first) as the kernel's list "16-47".
std::string cpus_of_mask(std::string_view mask) {
  std::string list;
  int cpu = 0;
  int first = -1;
  const auto close = [&] {
    if (first < 0) return;
    list += (list.empty() ? "" : ",") + std::to_string(first) +
            (cpu - 1 > first ? "-" + std::to_string(cpu - 1) : "");
    first = -1;
  };
  for (auto digit = mask.rbegin(); digit != mask.rend(); ++digit) {
    if (*digit == ',') continue;
    int value = 0;
    if (std::from_chars(&*digit, &*digit + 1, value, 16).ec != std::errc{}) return {};
    for (int bit = 0; bit < 4; ++bit, ++cpu) {
      if ((value >> bit & 1) != 0 && first < 0) first = cpu;
      if ((value >> bit & 1) == 0) close();
    }
  }
  close();
  return list;
}

class Reader {
 public:
  Result<Hardware> read(const pugi::xml_node& system, std::string_view file) {
    if (std::string_view(system.name()) != "system") {
      complain(system, "the first element must be <system>, as NCCL_TOPO_DUMP_FILE writes it");
    }
    for (const auto& cpu : system.children("cpu")) read_cpu(cpu);
    if (hardware_.gpu.gpus.empty()) gpus_by_class();
    if (hardware_.rdma.empty() && hardware_.nics.empty()) nics_by_class();
    hardware_.from_topology_file = true;
    if (complaint_.empty() && hardware_.cpu.numa_nodes.empty() && system.child("cpu").empty())
      complain(system, "holds no <cpu>");
    if (!complaint_.empty()) {
      return fail(Code::kInvalid, Origin::kConfig,
                  std::string(file) + ": " + complaint_ +
                      "; NCCL_TOPO_DUMP_FILE makes NCCL write such a file");
    }
    return std::move(hardware_);
  }

 private:
  void complain(const pugi::xml_node& node, const std::string& why) {
    if (!complaint_.empty()) return;
    complaint_ = "<" + std::string(node.name());
    if (const auto bus = node.attribute("busid"))
      complaint_ += " busid=\"" + cut(bus.value()) + "\"";
    complaint_ += "> at byte " + std::to_string(node.offset_debug()) + ": " + why;
  }
  static std::string cut(std::string_view text) { return std::string(text.substr(0, 60)); }

  std::string text(const pugi::xml_node& node, const char* name) {
    const std::string_view value = node.attribute(name).value();
    if (value.size() <= kMaxAttribute) return std::string(value);
    complain(node, std::string(name) + " is longer than 255 bytes");
    return {};
  }

  std::optional<long> number(const pugi::xml_node& node, const char* name, long least, long most) {
    const std::string value = text(node, name);
    if (value.empty()) return std::nullopt;
    long result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error == std::errc{} && end == value.data() + value.size() && result >= least &&
        result <= most)
      return result;
    complain(node, std::string(name) + "=\"" + cut(value) + "\" must be a whole number from " +
                       std::to_string(least) + " to " + std::to_string(most));
    return std::nullopt;
  }

  std::uint32_t hex(const pugi::xml_node& node, const char* name) {
    const std::string value = text(node, name);
    if (value.empty()) return 0;
    std::uint32_t result = 0;
    if (value.starts_with("0x") &&
        std::from_chars(value.data() + 2, value.data() + value.size(), result, 16).ptr ==
            value.data() + value.size()) {
      return result;
    }
    complain(node, std::string(name) + "=\"" + cut(value) + "\" must be a number such as 0x030200");
    return 0;
  }

  void read_cpu(const pugi::xml_node& node) {
    const auto id = number(node, "numaid", -1, 65535);
    if (!id) return complain(node, "lacks the attribute numaid");
    if (*id >= 0)
      hardware_.cpu.numa_nodes.push_back(
          {static_cast<int>(*id), cpus_of_mask(text(node, "affinity")), 0});
    if (hardware_.cpu.model.empty()) hardware_.cpu.model = text(node, "vendor");
    if (*id >= 0)
      numa_ = static_cast<int>(*id);
    else
      numa_.reset();
    const std::vector<std::string> root{"cpu " + std::to_string(*id)};
    for (const auto& child : node.children("pci")) read_pci(child, root, 1);
    // Virtual network devices are directly below the CPU and have no place on a bus.
  }

  void read_pci(const pugi::xml_node& node, const std::vector<std::string>& above, int depth) {
    if (!complaint_.empty()) return;
    if (depth > kMaxDepth) return complain(node, "is nested deeper than 32 levels");
    if (hardware_.pci.size() == kMaxPciElements)
      return complain(node, "is one <pci> more than 4096");
    PciFunction function;
    function.address = sysfs_address(text(node, "busid"));
    if (!is_pci_address(function.address))
      return complain(node, "busid must be a PCI address such as 0000:3b:00.0");
    if (!seen_.insert(function.address).second)
      return complain(node, "this busid is here a second time");
    function.path = path_of(node, above, function.address);
    if (function.path.size() > kMaxPath) return complain(node, "sysfs names too many bridges");
    function.class_code = hex(node, "class");
    function.vendor = hex(node, "vendor");
    function.device = hex(node, "device");
    function.link_speed = text(node, "link_speed");
    function.link_width = text(node, "link_width");
    function.numa_node = numa_;
    hardware_.pci.push_back(function);
    for (const auto& gpu : node.children("gpu")) read_gpu(gpu, function);
    for (const auto& nic : node.children("nic")) {
      for (const auto& net : nic.children("net")) read_net(net, function);
    }
    for (const auto& child : node.children("pci")) read_pci(child, function.path, depth + 1);
  }

  std::vector<std::string> path_of(const pugi::xml_node& node,
                                   const std::vector<std::string>& above,
                                   const std::string& address) {
    std::vector<std::string> path = above;
    const std::string between = text(node, "sysfs");
    if (between.empty()) {
      // NCCL omits one component here: a port that leads to this device only.
      path.push_back("port of " + address);
    } else {
      const bool top = above.size() == 1;
      if (top) path.clear();
      for (std::size_t at = 0; at < between.size();) {
        const std::size_t end = std::min(between.find('/', at), between.size());
        path.push_back(between.substr(at, end - at));
        at = end + 1;
      }
      if (between == "-") path.pop_back();
    }
    path.push_back(address);
    return path;
  }

  void read_gpu(const pugi::xml_node& node, const PciFunction& function) {
    Gpu gpu;
    gpu.index = static_cast<int>(
        number(node, "dev", 0, 65535).value_or(static_cast<long>(hardware_.gpu.gpus.size())));
    gpu.pci_address = function.address;
    gpu.numa_node = function.numa_node;
    if (const auto* kind = accelerator_kind(function)) gpu.resource = kind->resource;
    gpu.model = "GPU";
    if (const auto capability = number(node, "sm", 0, 999)) {
      gpu.compute_capability = static_cast<int>(*capability);
      gpu.model += " of compute capability " + std::to_string(*capability / 10) + "." +
                   std::to_string(*capability % 10);
    }
    gpu.c2c = !node.child("c2c").empty();
    gpu.nccl_gdr = flag(node, "gdr");
    for (const auto& entry : node.children("nvlink")) read_links(entry, gpu, LinkKind::kNvLink);
    for (const auto& entry : node.children("xgmi")) read_links(entry, gpu, LinkKind::kXgmi);
    const auto place =
        std::upper_bound(hardware_.gpu.gpus.begin(), hardware_.gpu.gpus.end(), gpu.index,
                         [](int index, const Gpu& other) { return index < other.index; });
    hardware_.gpu.gpus.insert(place, std::move(gpu));
  }

  void read_links(const pugi::xml_node& entry, Gpu& gpu, LinkKind kind) {
    const auto count = number(entry, "count", 0, kMaxNvLinks);
    if (!count) return complain(entry, "lacks the attribute count");
    std::string target = sysfs_address(text(entry, "target"));
    // NCCL's address for a far end that it cannot see
    if (target.starts_with("ffff")) target.clear();
    const bool to_switch = hex(entry, "tclass") == kSwitchClass;
    for (long i = 0; i < *count && gpu.nvlinks.size() < kMaxNvLinks; ++i) {
      gpu.nvlinks.push_back({static_cast<int>(gpu.nvlinks.size()), true,
                             to_switch ? NvLinkRemote::kSwitch : NvLinkRemote::kGpu, target,
                             std::nullopt, kind});
    }
  }

  /// "1" or "0"; nullopt for an absent attribute.
  std::optional<bool> flag(const pugi::xml_node& node, const char* name) {
    const auto value = number(node, name, 0, 1);
    return value ? std::optional(*value == 1) : std::nullopt;
  }

  /// The files that clouds ship hold no <gpu>: NCCL finds the GPUs of a machine by itself, and
  /// takes their places from the file.
  void gpus_by_class() {
    constexpr std::uint32_t k3d = 0x0302;
    constexpr std::uint32_t kProcessing = 0x1200;
    for (const auto& function : hardware_.pci) {
      const auto* kind = accelerator_kind(function);
      const std::uint32_t of_class = function.class_code >> 8U;
      const bool nameless = function.vendor == 0 && (of_class == k3d || of_class == kProcessing);
      if (kind == nullptr && !nameless) continue;
      Gpu gpu;
      gpu.index = static_cast<int>(hardware_.gpu.gpus.size());
      gpu.pci_address = function.address;
      gpu.numa_node = function.numa_node;
      gpu.model = "accelerator, known by its PCI class";
      gpu.class_only = true;
      if (kind != nullptr) gpu.resource = kind->resource;
      hardware_.gpu.gpus.push_back(std::move(gpu));
    }
  }

  /// NICs without a <net>: their ports are not known.
  void nics_by_class() {
    constexpr std::uint32_t kNetwork = 0x02;
    for (const auto& function : hardware_.pci) {
      if (function.class_code >> 16U != kNetwork) continue;
      RdmaDevice device;
      device.name = function.address;
      device.pci_address = function.address;
      device.numa_node = function.numa_node;
      hardware_.rdma.push_back(std::move(device));
    }
  }

  void read_net(const pugi::xml_node& node, const PciFunction& function) {
    const std::string name = text(node, "name");
    if (name.empty()) return complain(node, "lacks the attribute name");
    const auto speed = number(node, "speed", 0, 1'000'000'000);
    const long port = number(node, "port", 0, 255).value_or(1);
    // NCCL's socket transport uses port 0; the name is then that of a network device.
    if (port == 0) {
      hardware_.nics.push_back({name, "", speed, 0, function.numa_node, function.address, true});
      return;
    }
    RdmaDevice device;
    device.name = name;
    device.pci_address = function.address;
    device.numa_node = function.numa_node;
    device.nccl_gdr = flag(node, "gdr");
    // The file does not tell whether the port is up, nor which link layer it has.
    device.ports.push_back({static_cast<int>(port), "", "", "", speed, {}});
    hardware_.rdma.push_back(std::move(device));
  }

  Hardware hardware_;
  std::optional<int> numa_;
  std::set<std::string> seen_;
  std::string complaint_;
};

}  // namespace

Result<Hardware> read_nccl_xml(std::string_view text, std::string_view file) {
  pugi::xml_document document;
  const auto parsed = document.load_buffer(text.data(), text.size());
  if (!parsed) {
    return fail(Code::kInvalid, Origin::kConfig,
                std::string(file) + ": is not XML, or was cut off: " + parsed.description() +
                    " at byte " + std::to_string(parsed.offset) +
                    "; NCCL_TOPO_DUMP_FILE makes NCCL write such a file");
  }
  return Reader().read(document.document_element(), file);
}

}  // namespace paceline::agent
