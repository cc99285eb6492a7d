// SPDX-License-Identifier: Apache-2.0
#include "rdma_choice.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

namespace paceline::comm {
namespace {

constexpr int kMostGids = 256;
constexpr std::string_view kMappedIpv4 = "0000:0000:0000:0000:0000:ffff:";

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

void read_level(const std::string& level, RdmaSettings& settings) {
  // The numbers are those of old releases of NCCL, as new ones read them.
  static constexpr std::array<std::pair<std::string_view, PciDistance>, 9> kLevels{
      {{"PIX", PciDistance::kPix},
       {"1", PciDistance::kPix},
       {"PXB", PciDistance::kPxb},
       {"2", PciDistance::kPxb},
       {"PHB", PciDistance::kPhb},
       {"3", PciDistance::kPhb},
       {"SYS", PciDistance::kSys},
       {"4", PciDistance::kSys},
       {"5", PciDistance::kSys}}};
  if (level.empty()) return;
  const auto* const found =
      std::ranges::find(kLevels, level, [](const auto& one) { return one.first; });
  if (found != kLevels.end()) {
    settings.most_distant = found->second;
  } else {
    settings.no_gpudirect = "NCCL_NET_GDR_LEVEL=" + level;
    if (level != "LOC" && level != "0") settings.no_gpudirect += ": use LOC, PIX, PXB, PHB or SYS";
  }
}

// Where a device is in the tree of PCI bridges: the host bridge, root port and switches above it,
// and itself. Empty where that is not known.
std::vector<std::string> bridges_of(const std::filesystem::path& device) {
  std::vector<std::string> names;
  for (const auto& part : device)
    if (!names.empty() || part.string().starts_with("pci")) names.push_back(part.string());
  return names;
}

// Less is nearer: the distance, and among equals the negative number of bridges that both are
// below.
std::pair<PciDistance, std::ptrdiff_t> distance_of(const std::filesystem::path& gpu,
                                                   const std::filesystem::path& device) {
  constexpr std::size_t kOnRootBus = 2;    // host bridge and device
  constexpr std::size_t kBelowSwitch = 2;  // its port and the device
  const auto one = bridges_of(gpu);
  const auto other = bridges_of(device);
  const std::size_t longest = std::max(one.size(), other.size());
  if (one.empty() || other.empty() || longest <= kOnRootBus) return {PciDistance::kUnknown, 0};
  const auto common = std::distance(one.begin(), std::ranges::mismatch(one, other).in1);
  if (common > 1)
    return {longest - static_cast<std::size_t>(common) <= kBelowSwitch ? PciDistance::kPix
                                                                       : PciDistance::kPxb,
            -common};
  const bool same_node =
      common == 1 || first_line(gpu / "numa_node") == first_line(device / "numa_node");
  return {same_node ? PciDistance::kPhb : PciDistance::kSys, -common};
}

// Why the nearest rail, at this distance, is too far.
std::string too_far(const std::string& name, PciDistance distance) {
  const std::string level = distance == PciDistance::kPxb   ? "PXB"
                            : distance == PciDistance::kPhb ? "PHB"
                                                            : "SYS";
  return "its GPU and " + name + " share no " + (distance == PciDistance::kPxb ? "single " : "") +
         "PCI switch; NCCL_NET_GDR_LEVEL=" + level + " allows it";
}

}  // namespace

std::expected<RdmaSettings, std::string> read_rdma_settings(
    const std::function<const char*(const char* name)>& variable) {
  RdmaSettings settings;
  std::string wrong;
  const auto text = [&](const char* name) {
    const char* value = variable(name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto number = [&](const char* name, int least, int most, int& place) {
    const std::string value = text(name);
    if (value.empty()) return;
    int read = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), read);
    if (error == std::errc() && end == value.data() + value.size() && read >= least &&
        read <= most) {
      place = read;
    } else if (wrong.empty()) {
      wrong = std::string(name) + "=" + value + ": use " + std::to_string(least) + " to " +
              std::to_string(most);
    }
  };
  int disabled = 0;
  number("NCCL_IB_DISABLE", 0, 1, disabled);
  number("NCCL_IB_GID_INDEX", -1, kMostGids - 1, settings.gid_index);
  number("NCCL_IB_TIMEOUT", 1, 31, settings.timeout);
  number("NCCL_IB_RETRY_CNT", 0, 7, settings.retries);
  number("NCCL_IB_SL", 0, 15, settings.service_level);
  number("NCCL_IB_TC", 0, 255, settings.traffic_class);
  if (!wrong.empty()) return std::unexpected(wrong);
  settings.disabled = disabled == 1;
  settings.devices = text("NCCL_IB_HCA");
  read_level(text("NCCL_NET_GDR_LEVEL"), settings);
  return settings;
}

bool is_wanted(const std::string& devices, const std::string& device, int port) {
  const bool others = devices.starts_with('^');
  std::string_view list = std::string_view(devices).substr(others ? 1 : 0);
  const bool whole = list.starts_with('=');
  list.remove_prefix(whole ? 1 : 0);
  if (list.empty()) return true;
  bool named = false;
  std::istringstream words{std::string(list)};
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t colon = word.find(':');
    const std::string name = word.substr(0, colon);
    const bool fits = whole ? device == name : device.starts_with(name);
    const bool same_port =
        colon == std::string::npos || word.substr(colon + 1) == std::to_string(port);
    named = named || (!name.empty() && fits && same_port);
  }
  return named != others;
}

std::expected<std::vector<std::size_t>, std::string> nearest_rails(
    const std::filesystem::path& root, const std::string& pci,
    const std::vector<std::string>& names, const RailsWanted& wanted) {
  // The driver writes the address in capitals, the system does not.
  std::string address = pci;
  std::ranges::transform(address, address.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto real = [](const std::filesystem::path& link) {
    std::error_code unknown;
    return std::filesystem::canonical(link, unknown);
  };
  const std::filesystem::path gpu = real(root / "sys/bus/pci/devices" / address);
  std::vector<std::pair<PciDistance, std::ptrdiff_t>> distances;
  for (const std::string& name : names)
    distances.push_back(distance_of(
        gpu, real(root / "sys/class/infiniband" / name.substr(0, name.find(':')) / "device")));
  std::vector<std::size_t> nearest;
  for (std::size_t rail = 0; rail < names.size(); ++rail)
    if (distances[rail] == std::ranges::min(distances)) nearest.push_back(rail);
  if (nearest.empty()) return nearest;
  const PciDistance distance = distances[nearest.front()].first;
  if (distance != PciDistance::kUnknown && distance > wanted.most_distant)
    return std::unexpected(too_far(names[nearest.front()], distance));
  std::ranges::rotate(nearest,
                      nearest.begin() + static_cast<std::ptrdiff_t>(wanted.first % nearest.size()));
  nearest.resize(std::min(nearest.size(), wanted.most));
  return nearest;
}

std::expected<int, std::string> gid_index_of(const std::filesystem::path& root,
                                             const std::string& device, int port) {
  const auto folder = root / "sys/class/infiniband" / device / "ports" / std::to_string(port);
  for (int index = 0; index < kMostGids; ++index) {
    const std::string name = std::to_string(index);
    if (first_line(folder / "gid_attrs/types" / name) == "RoCE v2" &&
        first_line(folder / "gids" / name).starts_with(kMappedIpv4))
      return index;
  }
  return std::unexpected(device + " port " + std::to_string(port) +
                         " has no RoCE v2 GID with an IPv4 address: give its network device one, "
                         "or set NCCL_IB_GID_INDEX");
}

std::string driver_of(const std::filesystem::path& root, const std::string& device) {
  std::error_code unknown;
  return std::filesystem::read_symlink(root / "sys/class/infiniband" / device / "device/driver",
                                       unknown)
      .filename()
      .string();
}

}  // namespace paceline::comm
