// SPDX-License-Identifier: Apache-2.0
// The asking end of a measurement: round trips of six sizes, in permit, up to 16 of each, within 64
// MiB and two seconds; the quickest of each size counts, since what else the machines do can only
// add to it.
//
// Plain functions that block their caller; thread-safe. A peer that is slow or stalls ends with
// what came back until then, if that is three sizes or more; otherwise kTimeout or kUnavailable,
// and kCancelled when stopped.
#pragma once

#include <string>

#include "agent/links/link.hpp"
#include "agent/links/responder.hpp"

namespace paceline::agent {

/// `peer` names the node that has the numeric address.
Result<Link> measure_link(const std::string& peer, const std::string& address, const Ticket& ticket,
                          const Clock& clock, const std::stop_token& stop,
                          std::chrono::milliseconds limit = kMaxLinkTime);

}  // namespace paceline::agent
