// SPDX-License-Identifier: Apache-2.0
#include "launcher/launcher.hpp"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/contract/labels.hpp"
#include "common/net/address.hpp"
#include "common/telemetry/collector.hpp"
#include "common/telemetry/ring_server.hpp"
#include "common/telemetry/slot/slot_client.hpp"
#include "launcher/ending.hpp"
#include "launcher/endpoint.hpp"
#include "launcher/exec/exec_server.hpp"
#include "launcher/gang_settings.hpp"
#include "launcher/horovod_store.hpp"
#include "launcher/install.hpp"
#include "launcher/preflight.hpp"
#include "launcher/process/open_files.hpp"
#include "launcher/process/rank_set.hpp"
#include "launcher/rank_plan.hpp"
#include "launcher/rendezvous/client.hpp"
#include "launcher/rendezvous/member.hpp"
#include "launcher/rendezvous/server.hpp"
#include "launcher/rendezvous/table_relay.hpp"
#include "launcher/start_plan.hpp"
#include "launcher/summary/http_server.hpp"

namespace paceline::launcher {
namespace {

constexpr std::chrono::milliseconds kTick{100};
// After a longer time between two ticks this process did not run, or was busy.
constexpr std::chrono::seconds kLongestTurn{1};
constexpr std::chrono::seconds kEndGrace{5};
constexpr int kAnyRank = 1 << 24;

}  // namespace

class Launcher::Impl {
 public:
  Impl(Config config, frameworks::Environment environment, std::vector<std::string> command,
       const Clock& clock, Log& log)
      : config_(std::move(config)),
        environment_(std::move(environment)),
        command_(std::move(command)),
        clock_(clock),
        log_(log),
        signals_(io_, SIGCHLD, SIGTERM, SIGINT),
        timer_(io_),
        collector_({config_.job_namespace, config_.job_name, config_.role, config_.node_name},
                   clock),
        agent_(config_.slot_dir,
               {config_.job_name, config_.role, config_.replica_index, config_.incarnation}, clock),
        rings_(collector_, &agent_),
        ranks_(pump_, clock, config_.grace, "/",
               {[this](int local_rank, const std::optional<rendezvous::Failure>& failure) {
                  perform(member_.on_rank_exit(local_rank, failure));
                },
                [this] { perform(member_.on_all_stopped(clock_.steady())); },
                [this](pid_t pid, int status) { commands_.on_exit(pid, status); }}),
        commands_(io_, config_.token, config_.job_uid, config_.grace,
                  [this](pid_t pid) { ranks_.adopt(pid); }),
        horovod_(io_),
        tables_(io_, config_.token, config_.job_uid),
        table_port_(rendezvous::passes_table_on(config_.node_rank, config_.node_count)
                        ? tables_.open(config_.pod_ip)
                        : 0),
        member_({hello_of(config_, table_port_,
                          config_.uses_mpirun() ? commands_.open(config_.pod_ip) : 0),
                 config_.starts_one_process() ? 1 : 0, config_.startup_timeout,
                 config_.rank_zero_decides},
                clock.steady()) {}

  int run();

 private:
  Status prepare();
  void perform(const rendezvous::MemberActions& actions);
  void start_ranks(const rendezvous::StartRanks& start);
  void keep_table(const rendezvous::Message& message, std::string_view payload);
  void fetch_table(const rendezvous::FetchTable& fetch);
  void wait_signal();
  void tick();
  void preflight();
  void on_preflight(const PodReadiness& readiness);
  void join();
  void stop_when_heard();
  void log_unserved_ranks();
  telemetry::JobSummary folded(telemetry::Span span) const;
  summary::HttpAnswer answer(const summary::HttpRequest& request) const;

  const Config config_;
  const frameworks::Environment environment_;
  const std::vector<std::string> command_;
  const Clock& clock_;
  Log& log_;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  boost::asio::steady_timer timer_;
  process::LogPump pump_;
  UniqueFd log_pipe_;
  telemetry::Collector collector_;
  telemetry::SlotClient agent_;
  telemetry::RingServer rings_;
  process::RankSet ranks_;
  exec::ExecServer commands_;  // those of mpirun
  HorovodStore horovod_;
  rendezvous::TableRelay tables_;
  const std::uint16_t table_port_;  // where children fetch the rank table; 0: nobody does
  rendezvous::Member member_;
  std::optional<rendezvous::Server> server_;
  std::optional<rendezvous::Client> client_;
  std::optional<summary::HttpServer> http_;
  RankPlan plan_;
  std::optional<rendezvous::Outcome> outcome_;
  SteadyTime stop_by_{};
  std::optional<SteadyTime> last_tick_;
  bool joining_ = false;  // before this, the member's startup time does not run
  std::jthread preflight_;
  std::vector<std::string> last_changes_;
  std::size_t unserved_ = 0;  // number of ranks without the node's agent, as last logged
};

Status Launcher::Impl::prepare() {
  std::error_code error;
  std::filesystem::create_directories(config_.state_dir, error);
  if (error)
    return fail_errno("state directory " + config_.state_dir + " (PACELINE_STATE_DIR)",
                      error.value());
  auto plan = prepare_ranks(config_, environment_, command_, log_);
  if (!plan) return std::unexpected(plan.error());
  plan_ = *std::move(plan);
  if (auto opened = rings_.open(plan_.telemetry_socket); !opened) return opened;
  if (config_.node_rank == 0) {
    auto limit = process::allow_connections(config_.node_count);
    if (!limit) return std::unexpected(limit.error());
    plan_.open_files = *limit;
    server_.emplace(io_, clock_, gang_of(config_),
                    [this](const std::string& line) { log_.line(line); });
    if (auto opened = server_->open(config_.listen.host, config_.listen.port); !opened)
      return opened;
  }
  if (!config_.http.host.empty()) {
    http_.emplace(io_, [this](const summary::HttpRequest& request) { return answer(request); });
    if (auto opened = http_->open(config_.http.host, config_.http.port); !opened)
      return fail(Code::kUnavailable, Origin::kSystem,
                  "PACELINE_HTTP_LISTEN: " + opened.error().message);
  }
  const Address server = server_of(config_);
  client_.emplace(io_, server.host, server.port,
                  rendezvous::Client::Callbacks{
                      [this] { perform(member_.on_connected(clock_.steady())); },
                      [this](const std::string& why) {
                        perform(member_.on_disconnected(why, clock_.steady()));
                      },
                      [this](const rendezvous::Message& message, const std::string& payload) {
                        keep_table(message, payload);
                        perform(member_.on_message(message, clock_.steady()));
                      },
                      [this] { member_.on_progress(clock_.steady()); }});
  return {};
}

int Launcher::Impl::run() {
  ::signal(SIGPIPE, SIG_IGN);
  // Adopt orphans even if the launcher is not PID 1, so that no process outlives its attempt.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (auto prepared = prepare(); !prepared)
    return refuse(config_.termination_log, prepared.error().message, log_);

  log_pipe_ = pump_.log_pipe();
  if (log_pipe_.valid()) log_.use(log_pipe_.get());
  std::jthread pumping([this](const std::stop_token& stop) { pump_.run(stop); });
  std::jthread reading([this](const std::stop_token& stop) { rings_.run(stop); });

  wait_signal();
  preflight();
  tick();
  io_.run();

  preflight_ = {};  // stops and joins the thread
  reading.request_stop();
  reading.join();
  rings_.pump();
  write_ending(config_, *outcome_, folded(telemetry::Span::kTotal), log_);
  std::error_code ignored;
  std::filesystem::remove(plan_.rank_table, ignored);
  log_.use(STDERR_FILENO);
  log_pipe_.reset();
  pumping.request_stop();
  pumping.join();
  return exit_code(outcome_->end);
}

void Launcher::Impl::join() {
  joining_ = true;
  perform(member_.begin(clock_.steady()));
}

// Check what the job requires of this pod before the gang's barrier, so that no training step
// begins without it.
void Launcher::Impl::preflight() {
  if (config_.gpu_direct != "Required" && config_.gpu_direct != "Preferred") return join();
  preflight_ = std::jthread([this](const std::stop_token& stop) {
    const ProbeCommand probe = pod_probe(own_tree(), environment_);
    PodReadiness readiness = ask_probe(probe, stop);
    boost::asio::post(io_, [this, readiness = std::move(readiness)] { on_preflight(readiness); });
  });
}

void Launcher::Impl::on_preflight(const PodReadiness& readiness) {
  agent_.report(readiness.findings);
  if (outcome_) return;  // SIGTERM came while the probe ran
  const auto judged = judge(readiness, config_.gpu_direct, config_.pod_name);
  if (judged.joins) {
    log_.line(judged.text);
    return join();
  }
  outcome_ = rendezvous::Outcome{
      rendezvous::End::kPreflightFailed, config_.attempt, config_.restarts, judged.text, {}};
  stop_by_ = clock_.steady() + kEndGrace;
}

void Launcher::Impl::wait_signal() {
  signals_.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    if (signal == SIGCHLD) {
      ranks_.on_child();
    } else {
      perform(member_.on_terminate(signal == SIGTERM ? "SIGTERM" : "SIGINT"));
    }
    wait_signal();
  });
}

void Launcher::Impl::tick() {
  timer_.expires_after(kTick);
  timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    ranks_.on_tick();
    const SteadyTime now = clock_.steady();
    if (last_tick_ && now - *last_tick_ > kLongestTurn) member_.on_pause(now - *last_tick_);
    last_tick_ = now;
    tables_.tick(now);
    commands_.tick(now);
    if (server_) server_->tick();
    if (joining_) perform(member_.on_tick(clock_.steady()));
    log_unserved_ranks();
    if (outcome_) stop_when_heard();
    tick();
  });
}

void Launcher::Impl::log_unserved_ranks() {
  const auto here = agent_.served_here();
  const std::size_t count = here ? here->size() : 0;
  if (count > unserved_) {
    log_.line("the node's agent does not take the rings of " + std::to_string(count) +
              " ranks (rank " + std::to_string(*here->begin()) +
              " is the first): their metrics are served here");
  }
  unserved_ = count;
}

// Node rank 0 stops last: it waits until every member has received the end of the job, or until the
// time is over.
void Launcher::Impl::stop_when_heard() {
  const bool heard =
      !server_ || !server_->gang().finished() || server_->all_gone() || clock_.steady() >= stop_by_;
  // Hand the findings to the node's agent before the pod ends.
  if (!agent_.reported() && clock_.steady() < stop_by_) return;
  if (!heard) return;
  if (server_) server_->close();
  tables_.close();
  commands_.close();
  horovod_.close();
  if (http_) http_->close();
  io_.stop();
}

void Launcher::Impl::perform(const rendezvous::MemberActions& actions) {
  for (const auto& action : actions) {
    if (std::holds_alternative<rendezvous::ConnectServer>(action)) {
      client_->connect();
    } else if (std::holds_alternative<rendezvous::DropServer>(action)) {
      client_->drop();
    } else if (const auto* send = std::get_if<rendezvous::SendMessage>(&action)) {
      client_->send(send->message);
    } else if (std::holds_alternative<rendezvous::SendSummary>(action)) {
      rings_.pump();
      client_->send(rendezvous::Heartbeat{collector_.summaries()});
    } else if (const auto* tell = std::get_if<rendezvous::SendFailure>(&action)) {
      if (const auto failure = ranks_.first_failure())
        client_->send(rendezvous::Failed{tell->attempt, *failure});
    } else if (const auto* fetch = std::get_if<rendezvous::FetchTable>(&action)) {
      fetch_table(*fetch);
    } else if (const auto* start = std::get_if<rendezvous::StartRanks>(&action)) {
      start_ranks(*start);
    } else if (std::holds_alternative<rendezvous::StopRanks>(action)) {
      commands_.stop();
      ranks_.stop();
    } else if (const auto* line = std::get_if<rendezvous::LogLine>(&action)) {
      log_.line(line->text);
    } else if (const auto* exit = std::get_if<rendezvous::Exit>(&action)) {
      outcome_ = exit->outcome;
      stop_by_ = clock_.steady() + kEndGrace;
    }
  }
}

void Launcher::Impl::keep_table(const rendezvous::Message& message, std::string_view payload) {
  const auto* table = std::get_if<rendezvous::Table>(&message);
  if (table != nullptr && table_port_ != 0) tables_.offer(table->table.attempt, payload);
}

void Launcher::Impl::fetch_table(const rendezvous::FetchTable& fetch) {
  const auto missing = [this, attempt = fetch.attempt](const std::string& why) {
    perform(member_.on_no_table(attempt, why));
  };
  const auto from = net::parse_address(fetch.from);
  if (!from) return missing(from.error().message);
  tables_.fetch(fetch.attempt, *from, [this, missing](const Result<std::string>& payload) {
    if (!payload) return missing(payload.error().message);
    const auto message = rendezvous::parse_message(*payload);
    const auto* table = message ? std::get_if<rendezvous::Table>(&*message) : nullptr;
    if (table == nullptr)
      return missing(message ? "it sent another message" : message.error().message);
    keep_table(*message, *payload);
    perform(member_.on_table(table->table));
  });
}

void Launcher::Impl::start_ranks(const rendezvous::StartRanks& start) {
  const auto not_started = [this](const Error& error) {
    rendezvous::Failure failure;
    failure.exit_code = 1;
    failure.reason = error.code == Code::kInvalid       ? "NotExecutable"
                     : error.code == Code::kUnavailable ? "PortInUse"
                                                        : "StateDirectory";
    failure.last_lines = {error.message};
    perform(member_.on_rank_exit(0, failure));
  };
  rendezvous::RankTable table = start.table;
  rendezvous::name_hosts(table, config_.job_name, config_.subdomain);
  auto planned = plan_start(plan_, config_, table, start.restarts);
  if (!planned) return not_started(planned.error());
  const PlannedRanks& specs = planned->ranks;
  log_changes(specs, last_changes_, log_);
  const auto& node = table.nodes[static_cast<std::size_t>(config_.node_rank)];
  if (config_.framework == "Horovod" && !config_.passthrough) {
    if (auto served = horovod_.begin(table, node); !served) return not_started(served.error());
  }
  // The framework's own launcher numbers its ranks.
  const int first = config_.starts_one_process() ? 0 : node.first_rank;
  const int processes = config_.starts_one_process() ? kAnyRank : node.processes;
  collector_.begin_attempt(static_cast<std::uint32_t>(table.attempt), config_.node_rank, first,
                           processes);
  agent_.begin_attempt(static_cast<std::uint32_t>(table.attempt), config_.node_rank, first,
                       processes);
  ranks_.start(specs.ranks);
  if (config_.uses_mpirun()) commands_.begin(table.attempt, std::move(planned->shell));
}

telemetry::JobSummary Launcher::Impl::folded(telemetry::Span span) const {
  return telemetry::fold(server_ ? server_->gang().ranks() : collector_.summaries(), span);
}

summary::HttpAnswer Launcher::Impl::answer(const summary::HttpRequest& request) const {
  EndpointState state;
  state.config = &config_;
  state.collector = &collector_;
  state.ranks = agent_.served_here();
  state.whole_job = server_.has_value();
  state.state = job_state(config_, server_ ? &server_->gang() : nullptr, member_);
  state.summary = folded(telemetry::Span::kWindow);
  return answer_request(state, request);
}

Launcher::Launcher(Config config, frameworks::Environment environment,
                   std::vector<std::string> command, const Clock& clock, Log& log)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(environment), std::move(command),
                                   clock, log)) {}
Launcher::~Launcher() = default;
int Launcher::run() { return impl_->run(); }

}  // namespace paceline::launcher
