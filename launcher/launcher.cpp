// SPDX-License-Identifier: Apache-2.0
#include "launcher/launcher.hpp"

#include <signal.h>
#include <sys/prctl.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

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
#include "launcher/process/processor_time.hpp"
#include "launcher/process/rank_set.hpp"
#include "launcher/rank_plan.hpp"
#include "launcher/rendezvous/client.hpp"
#include "launcher/rendezvous/member.hpp"
#include "launcher/rendezvous/server.hpp"
#include "launcher/rendezvous/table_relay.hpp"
#include "launcher/saving/save_duty.hpp"
#include "launcher/spans/job_spans.hpp"
#include "launcher/start_plan.hpp"
#include "launcher/watch/job_watch.hpp"
#include "launcher/watch/stack_capture.hpp"
#include "launcher/watch/unserved_ranks.hpp"

namespace paceline::launcher {
namespace {

constexpr std::chrono::milliseconds kTick{100};
// After a longer time between two ticks this process did not run, or was busy.
constexpr std::chrono::seconds kLongestTurn{1};
constexpr std::chrono::seconds kEndGrace{5};

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
        standbys_(clock, "/", [this](const std::string& line) { log_.line(line); }),
        ranks_(pump_, clock, config_.grace, "/",
               {[this](int local_rank, const std::optional<rendezvous::Failure>& failure) {
                  perform(member_.on_rank_exit(local_rank, failure));
                },
                [this] { perform(member_.on_all_stopped(clock_.steady())); },
                [this](pid_t pid, int status) { commands_.on_exit(pid, status); }},
               &standbys_),
        commands_(io_, config_.token, config_.job_uid, config_.grace,
                  [this](pid_t pid) { ranks_.adopt(pid); }),
        horovod_(io_),
        stacks_(io_, log_),
        saves_(log_),
        tables_(io_, config_.token, config_.job_uid),
        table_port_(rendezvous::passes_table_on(config_.node_rank, config_.node_count)
                        ? tables_.open(config_.pod_ip)
                        : 0),
        member_(member_of(config_, table_port_,
                          config_.uses_mpirun() ? commands_.open(config_.pod_ip) : 0),
                clock.steady()),
        spans_(environment_, config_, clock, log),
        endpoint_(config_, collector_, clock) {}

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
  telemetry::JobSummary folded(telemetry::Span span) const;
  EndpointState state();

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
  process::Standbys standbys_;
  process::RankSet ranks_;
  exec::ExecServer commands_;  // those of mpirun
  HorovodStore horovod_;
  StackCapture stacks_;
  saving::SaveDuty saves_;
  rendezvous::TableRelay tables_;
  const std::uint16_t table_port_;  // where children fetch the rank table; 0: nobody does
  rendezvous::Member member_;
  std::optional<rendezvous::Server> server_;
  std::optional<JobWatch> watch_;
  spans::JobSpans spans_;
  std::optional<rendezvous::Client> client_;
  Endpoint endpoint_;
  RankPlan plan_;
  std::optional<rendezvous::Outcome> outcome_;
  SteadyTime stop_by_{};
  std::optional<SteadyTime> last_tick_;
  bool joining_ = false;  // before this, the member's startup time does not run
  std::jthread preflight_;
  std::vector<std::string> last_changes_;
  UnservedRanks unserved_;
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
    const auto open = [this] { return server_->open(config_.listen.host, config_.listen.port); };
    if (auto opened = open_port(config_, open); !opened) return opened;
    watch_.emplace(config_, *server_, clock_, log_);
  }
  if (auto opened = saves_.open(config_.saves_folder()); !opened) return opened;
  const auto open = [this] { return endpoint_.open(io_, [this] { return state(); }); };
  if (auto opened = open_port(config_, open); !opened) return opened;
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
  if (auto prepared = prepare(); !prepared) return refuse(config_, prepared.error(), log_);

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
  if (watch_) watch_->tell_failure();
  write_ending(config_, *outcome_, folded(telemetry::Span::kTotal),
               watch_ ? std::optional(watch_->goodput()) : std::nullopt,
               watch_ ? watch_->findings() : diagnosis::Findings{}, log_);
  if (server_) spans_.end(server_->gang(), *outcome_);
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

// What the job requires of this pod is checked before the barrier: no step begins without it.
void Launcher::Impl::preflight() {
  if (config_.gpu_direct != "Required" && config_.gpu_direct != "Preferred") return join();
  preflight_ = ask_in_background(pod_probe(own_tree(), environment_), [this](PodReadiness told) {
    boost::asio::post(io_, [this, told = std::move(told)] { on_preflight(told); });
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
      perform(member_.on_terminate(signal == SIGTERM ? "SIGTERM" : "SIGINT", saves_.can_save(),
                                   clock_.steady()));
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
    if (watch_) watch_->tick();
    if (server_) spans_.tick(server_->gang());
    if (const auto saved = saves_.ended())
      perform(member_.on_saved(saved->step, saved->ranks, saved->saved, saved->gone));
    if (auto imports = standbys_.told()) perform(member_.on_imports(*std::move(imports)));
    if (joining_) perform(member_.on_tick(clock_.steady()));
    unserved_.look(agent_.served_here(), log_);
    if (outcome_) stop_when_heard();
    tick();
  });
}

// Node rank 0 stops last: when all members and the agent have heard of the end, or it is late.
void Launcher::Impl::stop_when_heard() {
  const bool heard = !server_ || !server_->gang().finished() || server_->all_gone();
  if (clock_.steady() < stop_by_ && !(heard && agent_.reported())) return;
  if (server_) server_->close();
  tables_.close();
  commands_.close();
  horovod_.close();
  stacks_.cancel();
  endpoint_.close();
  io_.stop();
}

void Launcher::Impl::perform(const rendezvous::MemberActions& actions) {
  for (const auto& action : actions) {
    if (const auto reached = saves_.take(action)) client_->send(*reached);
    if (std::holds_alternative<rendezvous::ConnectServer>(action)) {
      client_->connect();
    } else if (std::holds_alternative<rendezvous::DropServer>(action)) {
      client_->drop();
    } else if (const auto* send = std::get_if<rendezvous::SendMessage>(&action)) {
      client_->send(send->message);
    } else if (std::holds_alternative<rendezvous::SendSummary>(action)) {
      rings_.pump();
      auto ranks = collector_.summaries();
      process::add_lost_processor("/", collector_.processes(), ranks);
      client_->send(rendezvous::Heartbeat{std::move(ranks)});
    } else if (const auto* capture = std::get_if<rendezvous::SendStacks>(&action)) {
      stacks_.begin(ranks_.processes(), collector_.processes(),
                    [this, attempt = capture->attempt](auto ranks) {
                      client_->send(rendezvous::CapturedStacks{attempt, std::move(ranks)});
                    });
    } else if (std::holds_alternative<rendezvous::AskForWindow>(action)) {
      if (const auto asked = endpoint_.ask_for_window(); !asked) log_.line(asked.error().message);
    } else if (const auto* tell = std::get_if<rendezvous::SendFailure>(&action)) {
      if (const auto failure = ranks_.first_failure())
        client_->send(rendezvous::Failed{tell->attempt, *failure});
    } else if (const auto* fetch = std::get_if<rendezvous::FetchTable>(&action)) {
      fetch_table(*fetch);
    } else if (const auto* start = std::get_if<rendezvous::StartRanks>(&action)) {
      start_ranks(*start);
    } else if (const auto* next = std::get_if<rendezvous::PrepareRanks>(&action)) {
      ranks_.prepare(plan_stand_in(plan_, config_, next->table), next->imports);
    } else if (const auto* stop = std::get_if<rendezvous::StopRanks>(&action)) {
      commands_.stop();
      ranks_.stop(stop->since);
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
    const auto table = rendezvous::parse_table(payload);
    if (!table) return missing(table.error().message);
    keep_table(*table, *payload);
    perform(member_.on_table(table->table));
  });
}

void Launcher::Impl::start_ranks(const rendezvous::StartRanks& start) {
  const auto not_started = [this](const Error& error) {
    perform(member_.on_rank_exit(0, failure_to_start(error)));
  };
  rendezvous::RankTable table = start.table;
  rendezvous::name_hosts(table, config_.job_name, config_.subdomain);
  auto planned = plan_start(plan_, at_place(config_, start.node_rank), table, start.restarts);
  if (!planned) return not_started(planned.error());
  log_changes(planned->ranks, last_changes_, log_);
  const auto& node = table.nodes[static_cast<std::size_t>(start.node_rank)];
  if (config_.framework == "Horovod" && !config_.passthrough) {
    if (auto served = horovod_.begin(table, node); !served) return not_started(served.error());
  }
  const auto [first, processes] = ranks_of(config_, node);
  const auto attempt = static_cast<std::uint32_t>(table.attempt);
  collector_.begin_attempt(attempt, start.node_rank, first, processes);
  agent_.begin_attempt(attempt, start.node_rank, first, processes);
  spans_.tell(table.attempt, planned->ranks.ranks);
  ranks_.start(planned->ranks.ranks);
  if (config_.uses_mpirun()) commands_.begin(table.attempt, std::move(planned->shell));
}

telemetry::JobSummary Launcher::Impl::folded(telemetry::Span span) const {
  return telemetry::fold(server_ ? server_->gang().ranks() : collector_.summaries(), span);
}

EndpointState Launcher::Impl::state() {
  const rendezvous::Gang* gang = server_ ? &server_->gang() : nullptr;
  EndpointState state{
      .ranks = agent_.served_here(),
      .whole_job = gang != nullptr,
      .state = job_state(config_, gang, watch_ ? &watch_->meter() : nullptr, member_),
      .summary = folded(telemetry::Span::kWindow),
      .stacks = gang != nullptr ? &gang->stacks() : &stacks_.stacks()};
  if (watch_) state.state.findings = watch_->findings();
  if (server_) state.warn = [this](const auto& nodes) { server_->warn(nodes); };
  return state;
}

Launcher::Launcher(Config config, frameworks::Environment environment,
                   std::vector<std::string> command, const Clock& clock, Log& log)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(environment), std::move(command),
                                   clock, log)) {}
Launcher::~Launcher() = default;
int Launcher::run() { return impl_->run(); }

}  // namespace paceline::launcher
