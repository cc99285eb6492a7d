// SPDX-License-Identifier: Apache-2.0
// Peer: one launcher of the job, as `paceline-launcher trace` asks it: over HTTP, with the job's
// token, on one connection that is opened again when it broke. Built from header-only parts, so
// that it links into the static launcher.
//
// Not thread-safe; blocks until the answer or the time limit. Failure: an Error that names the
// address, or what the launcher said.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/net/address.hpp"

namespace paceline::traces {

class Peer {
 public:
  Peer(net::Address address, std::string token);
  ~Peer();
  Peer(Peer&&) noexcept;
  Peer& operator=(Peer&&) noexcept;

  /// The body of an answer 200.
  Result<std::string> get(const std::string& path);
  Result<nlohmann::json> get_json(const std::string& path);
  /// A conflict (409) has the code kConflict.
  Status post(const std::string& path, const nlohmann::json& body);
  const net::Address& address() const { return address_; }

 private:
  class Link;
  Result<std::string> ask(bool post, const std::string& path, const std::string& body);

  net::Address address_;
  std::string token_;
  std::unique_ptr<Link> link_;
};

/// How a peer's wall clock differs from the one here.
struct ClockOffset {
  std::chrono::nanoseconds offset{0};       // peer's clock less own
  std::chrono::nanoseconds uncertainty{0};  // half of the shortest round trip; 0: one machine
};

/// The best of several round trips. On the same boot of one machine the clock is the same.
Result<ClockOffset> measure_clock(Peer& peer, const std::string& own_boot_id);

}  // namespace paceline::traces
