// SPDX-License-Identifier: Apache-2.0
// What the rendezvous needs of the launcher's settings: this replica's Hello, the gang's settings,
// and the address of the server. Launcher calls all three at its start. Pure.
#pragma once

#include "launcher/config.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/member.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::launcher {

/// `table_port`: where this launcher passes the rank table on; 0: it does not. `exec_port`: where
/// it starts commands for mpirun; 0: it does not.
rendezvous::MemberConfig member_of(const Config& config, std::uint16_t table_port,
                                   std::uint16_t exec_port);

rendezvous::GangConfig gang_of(const Config& config);

/// The launcher of node rank 0 connects to its own listener. Through the Service it would need
/// hairpin routing and its own published endpoint.
Address server_of(const Config& config);

}  // namespace paceline::launcher
