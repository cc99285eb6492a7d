// SPDX-License-Identifier: Apache-2.0
#include "launcher/gang_settings.hpp"

#include <memory>
#include <optional>

#include "common/contract/host_ports.hpp"
#include "common/contract/labels.hpp"
#include "common/net/ports.hpp"

namespace paceline::launcher {
namespace {

/// All replicas have one address, and other jobs may run beside this one. Programs listen only
/// after they have imported their framework. Until then the ports are kept from other jobs.
void share_machine(const std::string& address, rendezvous::GangConfig& gang) {
  auto master = std::make_shared<std::optional<net::PortRange>>();
  gang.master_port = [master, address](int) { return master->emplace(address, 1).first(); };
  auto processes = std::make_shared<std::optional<net::PortRange>>();
  gang.port_base = [processes, address](int count) {
    return processes->emplace(address, count).first();
  };
}

rendezvous::Hello hello_of(const Config& config, std::uint16_t table_port,
                           std::uint16_t exec_port) {
  rendezvous::Hello hello;
  hello.token = config.token;
  hello.job_uid = config.job_uid;
  hello.node = {.node_rank = config.node_rank,
                .role = config.role,
                .replica_index = config.replica_index,
                .incarnation = config.incarnation,
                .pod_name = config.pod_name,
                .address = config.pod_ip,
                .node_name = config.node_name,
                .processes = config.processes,
                .kind = config.kind};
  hello.node.exec_port = exec_port;
  hello.node.port_base = config.port_base;
  hello.start_stage = config.start_stage;
  hello.attempt = config.attempt;
  hello.restarts = config.restarts;
  hello.table_port = table_port;
  return hello;
}

}  // namespace

rendezvous::MemberConfig member_of(const Config& config, std::uint16_t table_port,
                                   std::uint16_t exec_port) {
  return {.hello = hello_of(config, table_port, exec_port),
          .children = config.starts_one_process() ? 1 : 0,
          .startup_timeout = config.startup_timeout,
          .rank_zero_decides = config.rank_zero_decides,
          .longest_save = config.grace / 5 * 4,  // the rest is for SIGTERM
          .has_spares = config.spares > 0};
}

Address server_of(const Config& config) {
  if (config.node_rank != 0) return config.rendezvous;
  // Every machine has 127.0.0.1; ::1 only with IPv6, without which "::" listens on 0.0.0.0.
  if (config.listen.host == "0.0.0.0" || config.listen.host == "::")
    return {"127.0.0.1", config.listen.port};
  return config.listen;
}

rendezvous::GangConfig gang_of(const Config& config) {
  rendezvous::GangConfig gang;
  gang.job_uid = config.job_uid;
  gang.token = config.token;
  gang.node_count = config.node_count;
  gang.spares = config.spares;
  gang.max_restarts = config.max_restarts;
  gang.backoff = config.backoff;
  gang.rules = config.failure_rules;
  // The pod of rank 0 runs mpirun, whose end is the end of all ranks.
  gang.rank_zero_decides = config.rank_zero_decides || config.uses_mpirun();
  gang.workers_together = !contract::keeps_without_a_worker(config.framework);
  gang.attempt = config.attempt;
  gang.restarts = config.restarts;
  if (config.master_port == 0) {
    share_machine(config.pod_ip, gang);
    return gang;
  }
  gang.master_port = [address = config.pod_ip, port = config.master_port,
                      base = config.port_base](int attempt) {
    // A new port for each attempt, so that a restart never meets a half-closed socket.
    const int preferred = port > 0   ? port
                          : base > 0 ? contract::host_master_port(base, attempt)
                                     : contract::kMasterPortBase + attempt % 100;
    return net::free_port(address, static_cast<std::uint16_t>(preferred));
  };
  return gang;
}

}  // namespace paceline::launcher
