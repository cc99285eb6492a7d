// SPDX-License-Identifier: Apache-2.0
// The measuring end: round trips of six sizes in turn, up to 16 of each, within 64 MiB and two
// seconds. The fastest of each size counts, because other load can only make a trip slower.
// LinkService calls it for `paceline measure`.
//
// Plain functions that block their caller; thread-safe. If the peer is slow or stalls, the result
// uses the trips so far, if they have three sizes or more. Otherwise the error is kTimeout or
// kUnavailable, and kCancelled after a stop.
#pragma once

#include <string>

#include "agent/links/link.hpp"
#include "agent/links/responder.hpp"

namespace paceline::agent {

/// `peer` is the name of the node with this numeric address. `flow_limit`: of the part with several
/// connections.
Result<Link> measure_link(const std::string& peer, const std::string& address, const Ticket& ticket,
                          const Clock& clock, const std::stop_token& stop,
                          std::chrono::milliseconds limit = kMaxLinkTime,
                          std::chrono::milliseconds flow_limit = kMaxFlowTime);

}  // namespace paceline::agent
