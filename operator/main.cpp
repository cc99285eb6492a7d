// SPDX-License-Identifier: Apache-2.0
// paceline-operator: reconciles TrainingJobs. This file only wires parts together.
#include "common/base/log.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <random>

#include <CLI/CLI.hpp>

#include "common/contract/labels.hpp"
#include "common/contract/warnings.hpp"
#include "common/http/beast/transport.hpp"
#include "common/http/server/server.hpp"
#include "common/kube/client/fail_point_api.hpp"
#include "common/kube/connect/connect.hpp"
#include "common/kube/control/event_recorder.hpp"
#include "common/kube/control/leader_election.hpp"
#include "common/net/address.hpp"
#include "common/service/logging.hpp"
#include "common/service/stop_signals.hpp"
#include "operator/job_tokens.hpp"
#include "operator/metrics.hpp"
#include "operator/service/debug_job.hpp"
#include "operator/service/health.hpp"
#include "operator/service/job_events.hpp"
#include "operator/worker_pool.hpp"

namespace paceline {
namespace {

struct Options {
  std::string kubeconfig;
  std::string ns = "default";
  std::string identity;
  std::string http_listen = "[::]:" + std::to_string(contract::kOperatorHttpPort);
  std::string debug_listen = "127.0.0.1:8081";
  std::size_t workers = 8;
  std::size_t writers = 32;
  bool leader_elect = true;
  apply::Settings settings;
};

int die(const Error& error) {
  spdlog::error("{}", to_string(error));
  return 1;
}

/// 128 bits from the system's generator.
std::string random_bits() {
  std::random_device device;
  std::string bits;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t word = device();
    for (int k = 0; k < 4; ++k, word >>= 8U) bits += static_cast<char>(word & 255U);
  }
  return bits;
}

Result<std::string> fetch_summary(const apply::Launcher& launcher) {
  http::Endpoint endpoint;
  endpoint.host = launcher.ip;
  endpoint.port = std::to_string(launcher.port);
  http::BeastOptions options;
  options.max_connections = 1;
  options.max_body_bytes = 1024 * 1024;  // a user's container sends it
  const auto transport = http::make_beast_transport(endpoint, options);
  http::Request request;
  request.headers = {{"Authorization", "Bearer " + launcher.token}};
  request.timeout = std::chrono::milliseconds(1500);
  if (!launcher.warned.nodes.empty()) {
    http::Request warning = request;
    warning.method = "POST";
    warning.target = contract::kWarningsPath;
    warning.body =
        nlohmann::json{{"nodes", launcher.warned.nodes}, {"tainted", launcher.warned.tainted}}
            .dump();
    // A launcher of an earlier version refuses it, and one that is not reached is told again.
    (void)transport->send(warning, {});
  }
  request.target = "/v1/summary";
  auto answer = transport->send(request, {});
  if (!answer) return std::unexpected(answer.error());
  if (answer->status != 200)
    return fail(Code::kUnavailable, Origin::kHttp,
                "summary: status " + std::to_string(answer->status), true);
  return std::move(answer->body);
}

/// What the HTTP servers show. All of it outlives them.
struct Shown {
  const apply::Controller& controller;
  const apply::Stores& stores;
  const kube::WorkQueue& queue;
  const kube::EventRecorder& events;
  const ApiCalls& calls;
  const Clock& clock;
  std::function<Leadership()> leadership;
  const std::atomic<bool>& ready;
};

std::string metrics_of(const Shown& shown) {
  OperatorState state = state_of(shown.controller, shown.stores, shown.queue);
  state.leading = shown.leadership().leading;
  state.events_dropped = shown.events.dropped();
  state.calls = shown.calls.counts();
  return operator_metrics(state);
}

http::ServerHandler serve(Shown all) {
  return [shown = std::move(all)](const http::Request& request, http::ResponseWriter& writer) {
    http::Response response;
    response.status = 200;
    if (request.target == "/metrics") {
      response.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
      response.body = metrics_of(shown);
    } else if (request.target == "/healthz") {
      response = health(shown.queue, shown.clock);
    } else if (request.target == "/readyz") {
      response.status = shown.ready ? 200 : 503;
      response.body = shown.ready ? "ok\n" : "not ready\n";
    } else {
      response.status = 404;
    }
    writer.respond(std::move(response));
  };
}

http::ServerHandler serve_debug(Shown all) {
  return [shown = std::move(all)](const http::Request& request, http::ResponseWriter& writer) {
    writer.respond(
        debug_job(request.target, shown.controller, shown.queue, shown.clock, shown.leadership()));
  };
}

Result<std::unique_ptr<http::Server>> listen(const std::string& option, const std::string& text,
                                             http::ServerHandler handler) {
  auto address = net::parse_address(text);
  if (!address) {
    address.error().message.insert(0, option + ": ");
    return std::unexpected(std::move(address.error()));
  }
  http::ServerOptions options;
  options.address = address->host;
  options.port = address->port;
  return http::Server::start(options, std::move(handler));
}

/// Null if the address is empty or cannot be had: jobs need no /debug.
std::unique_ptr<http::Server> listen_for_debug(const std::string& address, const Shown& shown) {
  if (address.empty()) return nullptr;
  auto server = listen("--debug-listen", address, serve_debug(shown));
  if (server) return *std::move(server);
  spdlog::warn("{}; /debug/jobs is not served", to_string(server.error()));
  return nullptr;
}

/// A name that is unique among living processes and stays the same after a restart in place: the
/// pod's name, otherwise host name and port.
std::string identity_of(const Options& options, std::uint16_t port) {
  if (!options.identity.empty()) return options.identity;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + "_" + std::to_string(port);
}

struct Clients {
  std::shared_ptr<kube::Api> jobs;
  // separate connections, so that renewals never wait behind pods
  std::shared_ptr<kube::Api> lease;
};

Result<Clients> connect(const Options& options, const Clock& clock, ApiCalls& calls) {
  kube::ConnectOptions connect;
  connect.max_connections = options.writers + options.workers;
  connect.client.user_agent = "paceline-operator/" PACELINE_VERSION;
  connect.client.field_manager = contract::kFieldManager;
  connect.client.answered = [&calls](const kube::CallName& call, int status) {
    calls.count(call, status);
  };
  const auto jobs = kube::connect(options.kubeconfig, clock, connect);
  if (!jobs) return std::unexpected(jobs.error());
  connect.max_connections = 2;
  connect.prefer_cpprest = false;
  connect.client.timeout = std::chrono::seconds(5);
  // The election repeats calls itself: a wait that the server asks for could outlast the Lease.
  connect.client.throttle_retries = 0;
  const auto lease = kube::connect(options.kubeconfig, clock, connect);
  if (!lease) return std::unexpected(lease.error());
  const auto fail_point = kube::fail_point_from_environment();
  if (!fail_point) return std::unexpected(fail_point.error());
  return Clients{kube::with_fail_point(*jobs, *fail_point), *lease};
}

int run(const Options& options) {
  const StopSignals signals;
  const SystemClock clock;
  ApiCalls calls;
  const auto clients = connect(options, clock, calls);
  if (!clients) return die(clients.error());
  kube::Api& api = *clients->jobs;
  kube::Api& lease_api = *clients->lease;

  apply::Stores stores;
  kube::WorkQueue queue(clock);
  apply::PoolExecutor executor(options.writers);
  kube::EventRecorder events(lease_api, clock, "paceline.dev/operator",
                             options.identity.empty() ? "paceline-operator" : options.identity);
  JobTokens tokens(api, options.ns, random_bits);
  apply::Controller controller(
      {api, clock, stores, executor, [&](const std::string& key) { queue.add(key); },
       [&](const std::string& job_uid) { return tokens.of(job_uid); }, fetch_summary,
       [&](const api::TrainingJob& job, const api::JobStatus& status, apply::News news) {
         kube::EventNote event = event_of(job, status, news);
         log_about(job.metadata.name_space + "/" + job.metadata.name, spdlog::level::info,
                   "{} ({})", event.action, event.reason);
         events.emit(std::move(event));
       }},
      options.settings);
  controller.subscribe();
  WorkerPool pool(api, stores, queue, controller, options.workers);

  std::atomic<bool> leading = false;
  std::optional<kube::LeaderElection> lease;
  std::atomic<bool> elects = false;  // `lease` is set
  std::atomic<bool> ready = true;    // a standby process is ready, too
  const auto leadership = [&] { return Leadership{leading, elects ? lease->holder() : ""}; };
  const Shown shown{controller, stores, queue, events, calls, clock, leadership, ready};
  const auto server = listen("--http-listen", options.http_listen, serve(shown));
  if (!server) return die(server.error());
  const auto debug = listen_for_debug(options.debug_listen, shown);
  const std::string identity = identity_of(options, (*server)->port());
  spdlog::info("paceline-operator {} as {}, metrics on port {}", PACELINE_VERSION, identity,
               (*server)->port());

  std::jthread event_writer([&](const std::stop_token& stop) { events.run(stop); });
  const auto lead = [&] {
    leading = true;
    spdlog::info("leading");
    pool.start();
  };
  std::atomic<bool> lost = false;
  std::jthread election;
  if (options.leader_elect) {
    lease.emplace(lease_api, clock,
                  kube::LeaderElectionOptions{options.ns, "paceline-operator", identity});
    elects = true;
    election = std::jthread([&](const std::stop_token& stop) {
      const bool led = lease->run(lead, stop);
      if (!led || stop.stop_requested()) return;
      // Another process may be the leader already: exit without draining or flushing.
      spdlog::error("leadership is lost");
      lost = true;
      kill(getpid(), SIGTERM);
    });
  } else {
    lead();
  }

  const int signal = signals.wait();
  if (lost) _exit(1);
  spdlog::info("stopping on signal {}", signal);
  ready = false;
  pool.stop();
  if (election.joinable()) {
    election.request_stop();
    election.join();
  }
  event_writer.request_stop();
  return 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  paceline::Options options;
  CLI::App app("Reconciles TrainingJobs into gangs of pods", "paceline-operator");
  app.set_version_flag("--version", PACELINE_VERSION);
  app.add_option("--kubeconfig", options.kubeconfig,
                 "default: $KUBECONFIG, then the pod's service account");
  app.add_option("--namespace", options.ns,
                 "namespace of the Lease and of the key of the jobs' tokens")
      ->envname("POD_NAMESPACE")
      ->capture_default_str();
  app.add_option("--identity", options.identity, "holder of the Lease; default: host and port")
      ->envname("POD_NAME");
  app.add_option("--http-listen", options.http_listen,
                 "address:port of /metrics, /healthz, /readyz")
      ->capture_default_str();
  app.add_option(
         "--debug-listen", options.debug_listen,
         "address:port of /debug/jobs/NAMESPACE/NAME, which asks for no credentials; empty: "
         "not served")
      ->capture_default_str();
  app.add_option("--agent-namespace", options.settings.agent_namespace,
                 "namespace of the agents' Leases")
      ->capture_default_str();
  app.add_flag("--node-labels", options.settings.marks.labels,
               "label nodes with what their agents find");
  app.add_flag("--fault-taint", options.settings.marks.taint,
               "taint nodes whose GPUs or fabric are at fault: paceline.dev/unhealthy:NoSchedule");
  app.add_option("--workers", options.workers, "jobs reconciled at the same time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--writers", options.writers, "requests sent at the same time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_flag("--leader-elect,!--no-leader-elect", options.leader_elect,
               "hold a Lease while acting")
      ->capture_default_str();
  app.add_option("--runtime-image", options.settings.runtime_image,
                 "image that brings launcher and runtime into pods")
      ->capture_default_str();
  app.add_option("--runtime-pull-policy", options.settings.pull_policy, "its imagePullPolicy")
      ->check(CLI::IsMember({"Always", "IfNotPresent", "Never"}))
      ->capture_default_str();
  app.add_option("--startup-timeout", options.settings.startup_timeout,
                 "how long a gang may take to gather")
      ->capture_default_str();
  app.add_option("--default-priority-class", options.settings.default_priority_class,
                 "for jobs that name none; ignored where it does not exist")
      ->default_val("paceline-normal");
  using enum paceline::api::Provision;
  std::map<std::string, paceline::api::Provision> provisions;
  for (const auto way : {kAuto, kProvisioningRequest, kCapacityBuffer, kPlaceholders, kDisabled})
    provisions.emplace(std::string(paceline::api::to_string(way)), way);
  app.add_option_function<std::string>(
         "--provision",
         [&](const std::string& way) { options.settings.provision = provisions.at(way); },
         "how jobs whose spec.scheduling.provision is Auto ask for nodes")
      ->check(CLI::IsMember(
          {"Auto", "ProvisioningRequest", "CapacityBuffer", "Placeholders", "Disabled"}))
      ->default_str("Auto");
  paceline::add_log_options(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kExitUsage = 2;
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return paceline::run(options);
}
