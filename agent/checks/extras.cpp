// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/checks/check_functions.hpp"

namespace paceline::agent {

void check_gdrcopy(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  if (!node.settings.char_devices) return found.unknown("", "/proc/devices cannot be read");
  const auto& devices = *node.settings.char_devices;
  std::find(devices.begin(), devices.end(), "gdrdrv") != devices.end()
      ? found.pass("", "gdrdrv is loaded")
      : found.skip("gdrdrv is not loaded");
}

void check_hugepages(const Node& node, Findings& found) {
  if (node.settings.hugepages.empty())
    return found.unknown("", "sysfs shows no pools of huge pages");
  std::string says;
  for (const auto& [kib, count] : node.settings.hugepages)
    says +=
        (says.empty() ? "" : ", ") + std::to_string(count) + " of " + std::to_string(kib) + " KiB";
  found.pass("", says);
}

}  // namespace paceline::agent
