// SPDX-License-Identifier: Apache-2.0
#include "agent/serve/documents.hpp"

#include <utility>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/view/checks_json.hpp"
#include "agent/view/fabric_json.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::agent {

void Documents::put(WallTime now, const Hardware& hardware, const std::vector<Finding>& findings,
                    const std::vector<Link>& links) {
  const auto text = [&](nlohmann::json view) {
    view["node"] = node_name_;
    view["observedTime"] = format_time(now);
    // Device names come from the hardware and may hold any bytes.
    return view.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  };
  nlohmann::json fabric = fabric_json(hardware, relate(hardware));
  fabric["links"] = nlohmann::json::array();
  for (const Link& link : links) fabric["links"].push_back(link_json(link));
  auto fresh = std::make_shared<const Of>(Of{text(std::move(fabric)), text(checks_json(findings))});
  const std::lock_guard lock(mutex_);
  latest_ = std::move(fresh);
}

std::shared_ptr<const Documents::Of> Documents::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

}  // namespace paceline::agent
