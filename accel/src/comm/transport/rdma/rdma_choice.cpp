// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/rdma/rdma_choice.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
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

}  // namespace paceline::comm
