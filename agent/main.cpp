// SPDX-License-Identifier: Apache-2.0
// paceline-agent: wiring only.
#include "common/base/log.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>

#include "agent/agent.hpp"
#include "agent/checks/check.hpp"
#include "agent/client/measure.hpp"
#include "agent/collect/slot_collector.hpp"
#include "agent/inject/injector.hpp"
#include "agent/links/service.hpp"
#include "agent/options.hpp"
#include "agent/plugin/grpc_kubelet.hpp"
#include "agent/probe/probe.hpp"
#include "agent/report/node_fabric.hpp"
#include "agent/serve/access.hpp"
#include "agent/serve/documents.hpp"
#include "agent/serve/handler.hpp"
#include "common/contract/labels.hpp"
#include "common/http/beast/transport.hpp"
#include "common/http/server/server.hpp"
#include "common/http/server/tls.hpp"
#include "common/http/token_file.hpp"
#include "common/kube/connect/connect.hpp"
#include "common/service/stop_signals.hpp"
#include "common/telemetry/metrics/text_sink.hpp"

namespace {

using namespace paceline;  // NOLINT(google-build-using-namespace): this file belongs to no part
using agent::Options;

/// Serves the kubelet's probes and Prometheus.
http::ServerHandler serve(const agent::Agent& loop, const agent::Metrics& metrics,
                          const agent::SlotCollector* collector) {
  return [&loop, &metrics, collector](const http::Request& request, http::ResponseWriter& writer) {
    const auto answer = [&](int status, std::string body) {
      writer.respond({status,
                      {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                      std::move(body)});
    };
    if (request.target == "/metrics") {
      telemetry::TextSink ranks;
      if (collector != nullptr) collector->export_metrics(ranks);
      return answer(200, metrics.text() + ranks.text());
    }
    if (request.target == "/healthz") {
      return loop.healthy() ? answer(200, "ok\n")
                            : answer(503, "the probe loop is stuck: a device or library hangs\n");
    }
    if (request.target == "/readyz") {
      return loop.ready() ? answer(200, "ok\n")
                          : answer(503, "the NodeFabric is not published yet\n");
    }
    answer(404, "there are /metrics, /healthz and /readyz\n");
  };
}

/// Serves /v1/… over TLS, if a certificate is given. Unauthenticated clients get nothing, and no
/// token is sent in plain text.
Result<std::unique_ptr<http::Server>> serve_api(const Options& options,
                                                const agent::Documents& documents,
                                                agent::AccessReview& access,
                                                agent::LinkService* links) {
  if (options.certificate.certificate_file.empty()) return nullptr;
  auto connections = http::make_tls_connections(options.certificate);
  if (!connections) return std::unexpected(connections.error());
  http::ServerOptions listen;
  listen.address = options.listen;
  listen.port = options.api_port;
  listen.max_connections = 16;
  listen.idle_timeout = std::chrono::seconds(10);  // any client may connect
  listen.connections = std::move(*connections);
  return http::Server::start(std::move(listen), agent::serve_documents(documents, access, links));
}

/// The address at which other agents call this one; empty if it serves no API.
std::string reached_at(const Options& options, const http::Server* server) {
  if (server == nullptr || options.pod_address.empty()) return {};
  const bool colons = options.pod_address.find(':') != std::string::npos;
  const std::string host = colons ? "[" + options.pod_address + "]" : options.pod_address;
  return host + ":" + std::to_string(server->port());
}

/// Each ring is an open file, so share the process's limit of open files evenly.
std::size_t rings_of_pod(int slots, std::size_t most) {
  constexpr rlim_t kWanted = 65536;
  constexpr std::size_t kOwn = 256;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return most;
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, kWanted));
  ::setrlimit(RLIMIT_NOFILE, &files);
  const std::size_t left = files.rlim_cur > kOwn ? files.rlim_cur - kOwn : 0;
  // Each slot also needs a listening socket and some connections.
  const std::size_t each = left / static_cast<std::size_t>(slots);
  return std::clamp<std::size_t>(each > 6 ? each - 6 : 1, 1, most);
}

int die(const Error& error) {
  spdlog::error("{}", to_string(error));
  return 1;
}

int print_fabric(const Options& options, const agent::Root& root, agent::GpuLibrary& library) {
  const auto hardware = agent::probe_hardware(root, library);
  auto scan = agent::read_privileged_scan(options.scan);
  if (!scan.problem.empty()) {
    std::cerr << "paceline-agent: " << scan.problem << "\n";
    return 1;
  }
  // On stderr and not in the document: an age would differ at every call.
  if (const auto ages = ages_text(options.scan, scan, SystemClock().wall()); !ages.empty())
    std::cerr << "privileged scan: " << ages << "\n";
  const auto findings = agent::run_checks(agent::Node(
      hardware, agent::read_settings(root, hardware, scan.pci), {}, std::move(scan.registrations)));
  std::cout << agent::fabric_status(hardware, PACELINE_VERSION, findings).dump(2) << "\n";
  return 0;
}

/// What is wrong with the options of an agent that serves a node; nullopt if nothing is.
std::optional<Error> wrong_options(const Options& options) {
  if (options.node_name.empty()) {
    return Error{Code::kInvalid, Origin::kConfig,
                 "--node-name (or NODE_NAME) is empty: give the name of this Node, as `kubectl get "
                 "nodes` shows it"};
  }
  if (options.links_port && options.certificate.certificate_file.empty()) {
    return Error{Code::kInvalid, Origin::kConfig,
                 "--links-port is given without --api-certificate: only clients of the API over "
                 "TLS may measure links; give both or neither"};
  }
  return std::nullopt;
}

kube::ConnectOptions connect_options() {
  kube::ConnectOptions connect;
  connect.max_connections = 2;
  connect.prefer_cpprest = false;  // cpprestsdk starts 40 threads, too many for this program
  connect.client.user_agent = "paceline-agent/" PACELINE_VERSION;
  connect.client.field_manager = "paceline-agent";
  connect.client.timeout = std::chrono::seconds(10);
  return connect;
}

/// The parts that bring the runtime into pods and collect their telemetry. The collector must
/// outlive the injector.
struct Injection {
  Injection(const Options& options, const Clock& clock)
      : kubelet(agent::make_grpc_kubelet(
            {.device_plugins = std::filesystem::path(options.kubelet) / "device-plugins",
             .pod_resources =
                 std::filesystem::path(options.kubelet) / "pod-resources" / "kubelet.sock"})),
        collector(options.node_name, clock, limits_of(options)),
        injector(*kubelet, clock, with_sockets(options.inject, collector)) {}

  static agent::CollectLimits limits_of(const Options& options) {
    agent::CollectLimits limits;
    limits.rings_of_pod = rings_of_pod(options.inject.slots, limits.rings_of_pod);
    limits.records_per_second = options.records_per_second;
    return limits;
  }
  static agent::InjectorOptions with_sockets(agent::InjectorOptions options,
                                             agent::SlotCollector& collector) {
    options.sockets = &collector;
    return options;
  }

  std::unique_ptr<agent::Kubelet> kubelet;
  agent::SlotCollector collector;
  agent::Injector injector;
};

/// Asks the agent that serves in this container.
int ask(const Options& options) {
  constexpr int kExitInput = 2;
  const auto refuse = [](const std::string& why) {
    std::cerr << "paceline-agent measure: " << why << "\n";
    return kExitInput;
  };
  if (options.pod_address.empty() || options.links.token_file.empty())
    return refuse(
        "links are not measured here: the chart's agent.api.tlsSecret and agent.links.enabled must "
        "be set");
  const auto token = http::read_token(options.links.token_file);
  if (!token) return refuse(token.error().message);
  http::Endpoint self;
  self.host = options.pod_address;
  self.port = std::to_string(options.api_port);
  self.tls = true;
  self.ca_file = options.links.ca_file;
  self.server_name = options.links.server_name;
  const auto transport = http::make_beast_transport(std::move(self));
  agent::AskOptions asked = options.ask;
  asked.node = options.node_name;
  return agent::ask_to_measure(*transport, *token, asked, std::cout, std::cerr);
}

int run(const Options& options) {
  if (!options.ask.peer.empty()) return ask(options);
  const auto library = agent::open_nvml(options.nvml);
  const agent::Root root(options.sys, options.proc);
  if (options.print) return print_fabric(options, root, *library);
  if (const auto wrong = wrong_options(options)) return die(*wrong);

  const StopSignals signals;
  const SystemClock clock;
  const auto api = kube::connect(options.kubeconfig, clock, connect_options());
  if (!api) return die(api.error());

  agent::Metrics metrics(options.node_name, PACELINE_VERSION);
  agent::PublisherOptions publishing;
  publishing.node_name = options.node_name;
  publishing.ns = options.ns;
  publishing.holder = options.holder.empty() ? options.node_name : options.holder;
  publishing.version = PACELINE_VERSION;
  agent::LinkStore book;
  if (options.links_port) publishing.links = &book;
  agent::Publisher publisher(**api, clock, publishing);
  agent::AgentOptions timing;
  timing.probe_interval = std::chrono::seconds(options.probe_seconds);
  timing.scan = options.scan;
  agent::Documents documents(options.node_name);
  timing.documents = &documents;
  timing.links = publishing.links;
  std::optional<Injection> injection;
  if (!options.inject.source.empty()) {
    injection.emplace(options, clock);
    timing.runtime = [&] { return injection->injector.state(); };
    timing.pods = [&] { return injection->collector.findings(); };
    timing.probed = [&](const agent::Hardware& hardware) {
      injection->collector.know(hardware.gpu.gpus);
    };
  }
  agent::Agent loop(root, *library, publisher, metrics, clock, timing);

  http::ServerOptions listen;
  listen.address = options.listen;
  listen.port = options.port;
  listen.max_connections = 16;
  const auto server = http::Server::start(
      listen, serve(loop, metrics, injection ? &injection->collector : nullptr));
  if (!server) return die(server.error());
  agent::AccessOptions who;
  who.node_name = options.node_name;
  who.audience = options.audience;
  agent::AccessReview access(**api, clock, who);
  std::optional<agent::LinkService> links;
  if (options.links_port) {
    auto measuring = options.links;
    measuring.node_name = options.node_name;
    measuring.responder.address = options.listen;
    measuring.responder.port = *options.links_port;
    const auto reach = [](http::Endpoint endpoint) {
      return http::make_beast_transport(std::move(endpoint),
                                        {.max_connections = 1, .max_body_bytes = 64UL * 1024});
    };
    links.emplace(**api, clock, book, reach, std::move(measuring));
  }
  const auto api_server = serve_api(options, documents, access, links ? &*links : nullptr);
  if (!api_server) return die(api_server.error());
  book.reached_at(reached_at(options, api_server->get()));
  if (*api_server)
    spdlog::info("/v1/fabric and /v1/checks on port {}, over TLS", (*api_server)->port());
  spdlog::info("paceline-agent {} on node {}, metrics on port {}", PACELINE_VERSION,
               options.node_name, (*server)->port());

  std::optional<std::jthread> collecting;
  std::optional<std::jthread> injecting;
  if (injection) {
    collecting.emplace([&](const std::stop_token& stop) { injection->collector.run(stop); });
    injecting.emplace([&](const std::stop_token& stop) { injection->injector.run(stop); });
  }
  std::jthread worker([&](const std::stop_token& stop) { loop.run(stop); });
  spdlog::info("stopping on signal {}", signals.wait());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Publishes the hardware of this node (NodeFabric) and a sign of life (Lease)",
               "paceline-agent");
  app.set_version_flag("--version", PACELINE_VERSION);
  agent::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kExitUsage = 2;
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return run(options);
}
