// SPDX-License-Identifier: Apache-2.0
#include "agent/registration/nccl_settings.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {
namespace {

constexpr std::array<std::string_view, 7> kNames{
    "NCCL_IB_DISABLE",   "NCCL_NET",           "NCCL_NET_GDR_LEVEL", "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME", "NCCL_DMABUF_ENABLE"};
constexpr std::size_t kMaxValue = 256;

bool is_wanted(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

void add(std::vector<NcclSetting>& all, std::string_view name, std::string_view value,
         const std::string& source) {
  const bool known = std::any_of(all.begin(), all.end(),
                                 [&](const NcclSetting& other) { return other.name == name; });
  if (!known) all.push_back({std::string(name), std::string(value.substr(0, kMaxValue)), source});
}

void read_file(std::vector<NcclSetting>& all, const std::filesystem::path& root,
               const std::string& file) {
  const auto text = read_text(root / std::filesystem::path(file).relative_path());
  if (!text) return;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const auto equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::string value = line.substr(equals + 1);
    value.erase(std::remove_if(value.begin(), value.end(),
                               [](char c) { return c == ' ' || c == '\t' || c == '\r'; }),
                value.end());
    const std::string name = line.substr(0, equals);
    if (is_wanted(name)) add(all, name, value, file);
  }
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    list.remove_prefix(std::min(word.size() + 1, list.size()));
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

/// A list of names in NCCL's syntax: by prefix, exact after '=', excluded after '^'.
struct Choice {
  explicit Choice(std::string_view text) {
    excludes = text.starts_with('^');
    if (excludes) text.remove_prefix(1);
    exact = text.starts_with('=');
    if (exact) text.remove_prefix(1);
    names = split(text);
    for (auto& name : names) name = name.substr(0, name.find(':'));  // a port
  }
  std::vector<std::string> chosen(const std::vector<std::string>& all) const {
    std::vector<std::string> result;
    for (const auto& one : all) {
      const bool listed = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return exact ? one == name : one.starts_with(name);
      });
      if (listed != excludes) result.push_back(one);
    }
    return result;
  }
  bool excludes = false;
  bool exact = false;
  std::vector<std::string> names;
};

void judge_devices(const NcclSetting& setting, const std::string& says,
                   const std::vector<std::string>& nics, std::vector<NcclTrouble>& troubles) {
  const Choice choice(setting.value);
  if (nics.empty()) return;
  if (choice.chosen(nics).empty()) {
    troubles.push_back({says + " chooses none of the RDMA devices that are here", true});
    return;
  }
  if (choice.exact) return;
  for (const auto& name : choice.names) {
    if (std::find(nics.begin(), nics.end(), name) == nics.end()) continue;
    const auto other = std::find_if(nics.begin(), nics.end(), [&](const std::string& nic) {
      return nic != name && nic.starts_with(name);
    });
    if (other != nics.end())
      troubles.push_back(
          {says + " matches by prefix, so " + name + " also means " + *other, false});
  }
}

/// NCCL compares such words without case.
bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

bool is_integer(const std::string& value) {
  return !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

std::vector<std::string> nccl_libraries(const std::string& name,
                                        const std::filesystem::path& root) {
  std::vector<std::string> files{name};
  std::vector<std::filesystem::path> prefixes{root / "usr/local", root / "usr", root / "opt/conda",
                                              root / "opt/venv"};
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(variable); value != nullptr && *value == '/')
      prefixes.insert(prefixes.begin(), root / std::filesystem::path(value).relative_path());
  }
  for (const auto& prefix : prefixes) {
    for (const auto& python : list_names(prefix / "lib")) {
      if (!python.starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const auto file = prefix / "lib" / python / packages / "nvidia/nccl/lib" / name;
        std::error_code error;
        if (std::filesystem::is_regular_file(file, error)) files.push_back(file.string());
      }
    }
  }
  return files;
}

std::optional<std::vector<std::string>> chosen_nics(const std::vector<NcclSetting>& settings,
                                                    const std::vector<std::string>& nics) {
  const auto found = std::find_if(settings.begin(), settings.end(), [](const NcclSetting& setting) {
    return setting.name == "NCCL_IB_HCA";
  });
  if (found == settings.end()) return std::nullopt;
  return Choice(found->value).chosen(nics);
}

std::vector<NcclSetting> read_nccl_settings(
    const std::function<std::string(const std::string&)>& variable,
    const std::filesystem::path& root) {
  std::vector<NcclSetting> all;
  for (const auto& name : kNames) {
    if (const std::string value = variable(std::string(name)); !value.empty())
      add(all, name, value, "the environment");
  }
  const std::string file = variable("NCCL_CONF_FILE");
  const std::string home = variable("HOME");
  if (!file.empty()) {
    read_file(all, root, file);
  } else if (!home.empty()) {
    read_file(all, root, (std::filesystem::path(home) / ".nccl.conf").string());
  }
  read_file(all, root, "/etc/nccl.conf");
  return all;
}

std::vector<NcclTrouble> nccl_troubles(const std::vector<NcclSetting>& settings,
                                       const std::vector<std::string>& nics,
                                       const std::vector<std::string>& netdevs,
                                       std::optional<int> version) {
  std::vector<NcclTrouble> troubles;
  for (const auto& setting : settings) {
    const std::string says = setting.name + "=" + setting.value + " (" + setting.source + ")";
    if (setting.name == "NCCL_IB_DISABLE") {
      if (setting.value != "0") troubles.push_back({says + " turns RDMA off", true});
    } else if (setting.name == "NCCL_NET") {
      if (same_word(setting.value, "Socket"))
        troubles.push_back({says + " takes sockets instead of RDMA", true});
    } else if (setting.name == "NCCL_DMABUF_ENABLE") {
      if (setting.value == "0")
        troubles.push_back(
            {says + " turns dma-buf off, so that only a peer memory module is left", false});
    } else if (setting.name == "NCCL_NET_GDR_LEVEL") {
      if (setting.value == "LOC" || setting.value == "0") {
        troubles.push_back({says + " turns GPUDirect RDMA off", true});
      } else if (is_integer(setting.value)) {
        troubles.push_back(
            {says + " is a number, whose meaning differs between releases of NCCL", false});
      }
    } else if (setting.name == "NCCL_IB_HCA") {
      judge_devices(setting, says, nics, troubles);
    } else if (setting.name == "NCCL_IB_GID_INDEX") {
      // Older versions do not choose a GID index by themselves.
      constexpr int kChooses = 22100;
      if (version && *version < kChooses) continue;
      const std::string which = version ? ", " + version_text(*version) + " here" : "";
      troubles.push_back(
          {says + " is in the way of NCCL's own choice, from 2.21 on" + which, false});
    } else if (setting.name == "NCCL_SOCKET_IFNAME") {
      if (!netdevs.empty() && Choice(setting.value).chosen(netdevs).empty())
        troubles.push_back({says + " chooses none of the network devices that are here", false});
    }
  }
  return troubles;
}

}  // namespace paceline::agent
