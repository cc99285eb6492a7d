// SPDX-License-Identifier: Apache-2.0
// Publisher: keeps this node's NodeFabric and Lease in the API server. The fabric is written only
// if it differs from the stored one, the Lease at every renewal. Uplink calls it.
//
// Borrows the Api and the Clock, which must outlive it. One thread. Failure is the API's Error; the
// next call repeats what is missing. Every write is a server-side apply, so a write whose answer
// was lost does no harm.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"
#include "agent/checks/summary.hpp"
#include "agent/links/link_store.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "common/base/clock.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::agent {

struct PublisherOptions {
  std::string node_name;
  std::string ns;      // namespace of the Lease: the agent's own
  std::string holder;  // holder of the Lease: the agent's pod
  std::string version;
  std::chrono::seconds lease_duration{40};
  /// How often the stored object is read again: it may have been deleted, or the Node may have a
  /// new UID.
  std::chrono::seconds resync{300};
  /// The agent's address and measured links; links published earlier are put back into it.
  /// Borrowed; null if links are not measured.
  LinkStore* links = nullptr;
};

class Publisher {
 public:
  Publisher(kube::Api& api, const Clock& clock, PublisherOptions options)
      : api_(api), clock_(clock), options_(std::move(options)) {}

  /// Updates the stored NodeFabric. Returns true if that took a write.
  Result<bool> publish(const Hardware& hardware, const std::vector<Finding>& findings = {},
                       const std::optional<Summary>& runtime = std::nullopt,
                       const std::stop_token& stop = {});

  /// Renews the Lease. It needs the Node's UID, so the first call reads the Node.
  Status renew(const std::stop_token& stop = {});

 private:
  Status read_node(const std::stop_token& stop);
  Status read_stored(const std::stop_token& stop);
  Error explain(Error error) const;

  kube::Api& api_;
  const Clock& clock_;
  const PublisherOptions options_;
  std::string node_uid_;
  nlohmann::json stored_;  // the status in the API; null if this Node has no object
  std::optional<SteadyTime> read_at_;
};

}  // namespace paceline::agent
