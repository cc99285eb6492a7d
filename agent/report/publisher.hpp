// SPDX-License-Identifier: Apache-2.0
// Keeps this node's NodeFabric and Lease in the API: the fabric is written only when it differs
// from what is stored, the Lease at every renewal.
//
// Borrows the Api and the Clock, which outlive it. One thread. Failure is the API's Error; the next
// call repeats what is missing, and every write is a server-side apply, so a write whose answer was
// lost is harmless.
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
  std::string ns;      // of the Lease: the agent's own namespace
  std::string holder;  // of the Lease: the agent's pod
  std::string version;
  std::chrono::seconds lease_duration{40};
  /// How often what is stored is read again: somebody may have deleted the object, or the Node came
  /// back under another UID.
  std::chrono::seconds resync{300};
  /// Where the agent is asked, and its measured links; what was published before is put back into
  /// it. Borrowed; null: it has none.
  LinkStore* links = nullptr;
};

class Publisher {
 public:
  Publisher(kube::Api& api, const Clock& clock, PublisherOptions options)
      : api_(api), clock_(clock), options_(std::move(options)) {}

  /// Makes the stored NodeFabric say this. True when that took a write.
  Result<bool> publish(const Hardware& hardware, const std::vector<Finding>& findings = {},
                       const std::optional<Summary>& runtime = std::nullopt,
                       const std::stop_token& stop = {});

  /// Tells that the agent is alive. Needs the Node's UID, so it waits for nothing but reads it
  /// once.
  Status renew(const std::stop_token& stop = {});

 private:
  Status read_node(const std::stop_token& stop);
  Status read_stored(const std::stop_token& stop);
  Error explain(Error error) const;

  kube::Api& api_;
  const Clock& clock_;
  const PublisherOptions options_;
  std::string node_uid_;
  nlohmann::json stored_;  // the status in the API, null when there is no object of this Node
  std::optional<SteadyTime> read_at_;
};

}  // namespace paceline::agent
