// SPDX-License-Identifier: Apache-2.0
#include "launcher/endpoint.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/printable.hpp"
#include "common/contract/warnings.hpp"
#include "common/json/fields.hpp"
#include "common/telemetry/metrics/text_sink.hpp"

namespace paceline::launcher {
namespace {

// Kubernetes gives the pod that had a port of the node before as long to end.
constexpr std::chrono::seconds kPortIsFreed{30};
constexpr std::chrono::milliseconds kPortInterval{200};
constexpr std::size_t kLongestName = 253;  // of a Kubernetes object

summary::HttpAnswer refusal(int status, const std::string& why) {
  return {status, "text/plain; charset=utf-8", why + "\n"};
}

bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

void put_gains(telemetry::TextSink& sink, const telemetry::Labels& job,
               const std::optional<summary::Effects>& effects) {
  if (!effects) return;
  bool first = true;
  for (const summary::Effect& effect : *effects) {
    if (!effect.gain) continue;
    if (std::exchange(first, false))
      sink.family("paceline_job_effect_gain_ratio", telemetry::MetricType::kGauge,
                  "How much quicker steps are with a feature than without it, less 1, as the tuner "
                  "of rank 0 measured it.");
    telemetry::Labels labels = job;
    labels.emplace_back("feature", effect.feature);
    labels.emplace_back("kept", effect.kept ? "true" : "false");
    sink.value(labels, *effect.gain);
  }
}

void put_findings(telemetry::TextSink& sink, const telemetry::Labels& job,
                  const diagnosis::Findings& findings) {
  if (findings.empty()) return;
  sink.family("paceline_job_finding", telemetry::MetricType::kGauge,
              "1 for each finding about the job: what is wrong, and in which rank if it is one.");
  for (const diagnosis::Finding& finding : findings) {
    telemetry::Labels labels = job;
    labels.emplace_back("kind", to_string(finding.kind));
    labels.emplace_back("subject", finding.subject);
    labels.emplace_back("rank", finding.rank ? std::to_string(*finding.rank) : "");
    labels.emplace_back("node", finding.node);
    sink.value(labels, 1);
  }
}

/// Before the first step nothing can be told: a framework without marks looks like one that starts.
void put_goodput(telemetry::TextSink& sink, const telemetry::Labels& job,
                 const std::optional<telemetry::Goodput>& goodput) {
  if (!goodput || !goodput->trained) return;
  sink.family("paceline_job_goodput_ratio", telemetry::MetricType::kGauge,
              "Useful step time over wall time since the job's first start.");
  sink.value(job, goodput->ratio());
  sink.family("paceline_job_time_seconds", telemetry::MetricType::kGauge,
              "Wall time since the job's first start, by what it was used for. Together the uses "
              "are the whole time.");
  for (std::size_t use = 0; use < telemetry::kUses; ++use) {
    telemetry::Labels labels = job;
    labels.emplace_back("use", std::string(telemetry::use_name(use)));
    sink.value(labels, goodput->seconds[use]);
  }
}

void put_flops(telemetry::TextSink& sink, const telemetry::Labels& job,
               const EndpointState& state) {
  if (!state.state.model) return;
  const double speed = summary::flops_per_second(*state.state.model, state.summary);
  if (speed <= 0) return;
  sink.family("paceline_job_flops_per_second", telemetry::MetricType::kGauge,
              "Floating-point operations of the model per second on rank 0's device.");
  sink.value(job, speed);
  const auto share = summary::mfu(*state.state.model, state.summary);
  if (!share) return;
  sink.family("paceline_job_mfu_ratio", telemetry::MetricType::kGauge,
              "Model FLOPs utilization: paceline_job_flops_per_second over the peak of rank 0's "
              "device.");
  sink.value(job, *share);
}

std::vector<std::string> names_in(JsonFields& fields, std::string_view key) {
  std::vector<std::string> names;
  for (const auto& name : fields.array(key, contract::kMostWarnedNodes)) {
    if (!name.is_string() || name.get_ref<const std::string&>().size() > kLongestName) {
      fields.note(key, "has a name that is no text of at most 253 characters");
      break;
    }
    names.push_back(printable(name.get<std::string>()));
  }
  return names;
}

summary::HttpAnswer take_warning(const EndpointState& state, const std::string& body) {
  if (!state.warn) return refusal(404, "only the launcher of node rank 0 takes warnings: ask it");
  const auto object = nlohmann::json::parse(body, nullptr, false);
  std::string problem;
  JsonFields fields(object, problem);
  std::vector<std::string> nodes = names_in(fields, "nodes");
  std::vector<std::string> tainted;  // an earlier operator says nothing of these
  if (fields.find("tainted") != nullptr) tainted = names_in(fields, "tainted");
  if (!problem.empty()) return refusal(400, problem);
  // The gang knows a warning by its name. This is another one, so the ranks save once more.
  for (std::string& node : nodes) {
    if (std::ranges::find(tainted, node) != tainted.end()) node += " (tainted)";
  }
  state.warn(nodes);
  return {200, "application/json", "{}\n"};
}

std::string metrics(const EndpointState& state) {
  using telemetry::MetricType;
  telemetry::TextSink sink;
  const bool any = state.collector != nullptr && (!state.ranks || !state.ranks->empty());
  if (any) state.collector->export_metrics(sink, state.ranks);
  const telemetry::Labels job{{"namespace", state.config->job_namespace},
                              {"job", state.config->job_name}};
  if (state.whole_job) {
    sink.family("paceline_job_restarts_total", MetricType::kCounter,
                "Restarts of the gang that failures have spent.");
    sink.value(job, state.state.restarts);
    sink.family("paceline_job_replicas_gathered", MetricType::kGauge,
                "Replicas whose launchers are connected to rank 0's.");
    sink.value(job, state.state.gathered);
    if (state.summary.skew > 0) {
      sink.family("paceline_step_skew_ratio", MetricType::kGauge,
                  "Own time per step of the slowest rank over the median rank's; waiting for other "
                  "ranks is not own time.");
      sink.value(job, state.summary.skew);
    }
    put_gains(sink, job, state.state.effects);
    put_findings(sink, job, state.state.findings);
    put_goodput(sink, job, state.state.goodput);
    put_flops(sink, job, state);
  }
  return sink.text();
}

}  // namespace

summary::JobState job_state(const Config& config, const rendezvous::Gang* gang,
                            const summary::GoodputMeter* goodput,
                            const rendezvous::Member& member) {
  if (gang == nullptr || goodput == nullptr)
    return {config.job_uid,
            member.running() ? "Running" : "Gathering",
            member.attempt(),
            member.restarts(),
            1,
            1,
            std::nullopt};
  return {.job_uid = config.job_uid,
          .phase = std::string(rendezvous::to_string(gang->phase())),
          .attempt = gang->attempt(),
          .restarts = gang->restarts(),
          .gathered = gang->gathered(),
          .expected = gang->expected(),
          .culprit = gang->culprit(),
          .missing = gang->missing(),
          .effects = summary::read_effects(config.effects_file()),
          .model = summary::read_model_flops(config.effects_file()),
          .goodput = goodput->at_present(*gang),
          .saved = gang->saved()};
}

std::optional<summary::HttpAnswer> answer_without_state(const Config& config,
                                                        traces::TraceService* traces,
                                                        const summary::HttpRequest& request) {
  const std::string& path = request.path;
  const bool traced = traces != nullptr && traces::TraceService::serves(path);
  const bool warned = path == contract::kWarningsPath;
  if (request.method != (warned ? "POST" : "GET") && !traced)
    return refusal(405, warned ? "only POST is served here" : "only GET is served here");
  if (path == "/healthz") return summary::HttpAnswer{200, "text/plain; charset=utf-8", "ok\n"};
  if (path == "/metrics") return std::nullopt;
  if (path != "/v1/summary" && path != "/v1/stacks" && !warned && !traced)
    return summary::HttpAnswer{};
  if (!same_secret(request.authorization, "Bearer " + config.token))
    return refusal(401, "show the job's token: Authorization: Bearer <token>");
  if (traced) return traces->answer(request);
  return std::nullopt;
}

summary::HttpAnswer answer_request(const EndpointState& state,
                                   const summary::HttpRequest& request) {
  if (auto answer = answer_without_state(*state.config, state.traces, request))
    return *std::move(answer);
  if (request.path == contract::kWarningsPath) return take_warning(state, request.body);
  if (request.path == "/metrics")
    return {200, std::string(telemetry::kTextContentType), metrics(state)};
  if (request.path == "/v1/stacks" && state.stacks != nullptr)
    return {200, "application/json",
            summary::stacks_document(state.state.attempt, *state.stacks) + "\n"};
  return {200, "application/json", summary::summary_document(state.state, state.summary) + "\n"};
}

Status open_port(const Config& config, const std::function<Status()>& open) {
  const auto patience = std::min<std::chrono::nanoseconds>(kPortIsFreed, config.startup_timeout);
  const auto until = std::chrono::steady_clock::now() + patience;
  Status opened = open();
  while (!opened && opened.error().code == Code::kAlreadyExists && config.port_base != 0 &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kPortInterval);
    opened = open();
  }
  return opened;
}

Status Endpoint::open(boost::asio::io_context& io, std::function<EndpointState()> state) {
  if (config_.http.host.empty()) return {};
  auto traces = traces::TraceService::open(config_.trace_folder(),
                                           {config_.job_name, config_.node_rank, config_.pod_name,
                                            config_.node_name, traces::own_boot_id()},
                                           collector_, clock_);
  if (!traces) return std::unexpected(traces.error());
  traces_ = *std::move(traces);
  server_.emplace(
      io,
      [this, state = std::move(state)](const summary::HttpRequest& request) {
        return answer(state, request);
      },
      summary::HttpLimits{.body = traces::kMostRequestBytes});
  if (auto opened = server_->open(config_.http.host, config_.http.port); !opened)
    return fail(opened.error().code, Origin::kSystem,
                "PACELINE_HTTP_LISTEN: " + opened.error().message);
  return {};
}

void Endpoint::close() {
  if (server_) server_->close();
}

summary::HttpAnswer Endpoint::answer(const std::function<EndpointState()>& ask_state,
                                     const summary::HttpRequest& request) {
  if (auto answer = answer_without_state(config_, traces_.get(), request))
    return *std::move(answer);
  EndpointState state = ask_state();
  state.config = &config_;
  state.collector = &collector_;
  history_.add(clock_.steady(), state.summary.p50);
  state.state.history = &history_;
  return answer_request(state, request);
}

}  // namespace paceline::launcher
