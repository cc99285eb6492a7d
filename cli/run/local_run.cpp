// SPDX-License-Identifier: Apache-2.0
#include "cli/run/local_run.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "cli/run/merge_metrics.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/local_runs.hpp"
#include "common/base/duration.hpp"
#include "common/contract/labels.hpp"
#include "common/http/beast/transport.hpp"
#include "common/http/server/server.hpp"
#include "common/subprocess/line_splitter.hpp"
#include "common/subprocess/spawn.hpp"
#include "common/telemetry/metrics/text_sink.hpp"

namespace paceline::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kRefresh{500};
constexpr std::chrono::seconds kPatience{15};  // for launchers to end, on top of the grace period
constexpr std::chrono::milliseconds kDrain{500};
constexpr std::chrono::seconds kAnswer{3};
constexpr std::size_t kMostAnswer = 16 * 1024 * 1024;
constexpr std::string_view kRankZero = "[0] ";
constexpr std::size_t kMostActed = 64;  // lines about what acted

nlohmann::json read_json(const std::string& path) {
  return read_document(path).value_or(nlohmann::json());
}

/// GETs from the launcher that listens on this port of this machine.
class LauncherClient {
 public:
  explicit LauncherClient(std::uint16_t port) {
    http::Endpoint endpoint;
    endpoint.host = "127.0.0.1";
    endpoint.port = std::to_string(port);
    transport_ =
        http::make_beast_transport(endpoint, {.max_connections = 1, .max_body_bytes = kMostAnswer});
  }

  /// The body of a 200; nullopt if there is no such answer.
  std::optional<std::string> get(const std::string& target, std::vector<http::Header> headers,
                                 const std::stop_token& stop) const {
    http::Request request;
    request.target = target;
    request.headers = std::move(headers);
    request.timeout = kAnswer;
    auto answer = transport_->send(request, stop);
    if (!answer || answer->status != 200) return std::nullopt;
    return std::move(answer->body);
  }

 private:
  std::shared_ptr<http::HttpTransport> transport_;
};

}  // namespace

class LocalRun::Impl {
 public:
  Impl(LocalRunConfig config, LocalPlan plan, Screen& screen, const Clock& clock)
      : config_(std::move(config)),
        plan_(std::move(plan)),
        screen_(screen),
        clock_(clock),
        signals_(io_, SIGCHLD, SIGINT, SIGTERM),
        timer_(io_),
        scrapes_(plan_.replicas.size()) {}

  ~Impl() { kill_all(SIGKILL); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<RunEnd> run();

 private:
  struct Stream {
    Stream(asio::io_context& io, int fd, bool err) : descriptor(io, fd), to_stderr(err) {}
    asio::posix::stream_descriptor descriptor;
    process::LineSplitter splitter{""};
    std::array<char, 16384> buffer{};
    bool to_stderr;
  };
  struct Child {
    pid_t pid = -1;
    bool exited = false;
    int status = 0;
  };

  Status start();
  void read(std::size_t replica, const std::shared_ptr<Stream>& stream);
  void print(std::size_t replica, const std::string& lines, bool to_stderr);
  void wait_signal();
  void reap();
  void stop(int signal);
  void kill_all(int signal);
  void tick();
  Status serve_metrics();
  void poll(const std::stop_token& stop);
  void show(const std::string& summary);
  bool all_exited() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.exited; });
  }
  RunEnd finish();
  int exit_code(const JobView& view) const;

  LocalRunConfig config_;
  const LocalPlan plan_;
  Screen& screen_;
  const Clock& clock_;
  asio::io_context io_{1};
  asio::signal_set signals_;
  asio::steady_timer timer_;
  std::mutex scrapes_mutex_;
  std::vector<Child> children_;
  std::size_t open_streams_ = 0;
  std::vector<std::string> scrapes_;
  int interrupted_ = 0;
  std::string problem_;  // why the run ended, if not by the job's own verdict
  std::string last_words_;
  JobView seen_;         // the last report of a launcher
  bool enough_ = false;  // the last step that was asked for is done
  SteadyTime started_{};
  SteadyTime patience_{SteadyTime::max()};
  SteadyTime drained_by_{SteadyTime::max()};
  // These two end before the members that their threads use.
  std::unique_ptr<http::Server> metrics_;
  std::jthread poller_;
};

Status LocalRun::Impl::serve_metrics() {
  http::ServerOptions options;
  options.address = config_.metrics_host;
  options.port = config_.metrics_port;
  auto server =
      http::Server::start(options, [this](const http::Request& request, http::ResponseWriter& out) {
        const auto text = [](int status, std::string_view type, std::string body) {
          return http::Response{status, {{"Content-Type", std::string(type)}}, std::move(body)};
        };
        constexpr std::string_view kPlain = "text/plain; charset=utf-8";
        if (request.target == "/healthz") return out.respond(text(200, kPlain, "ok\n"));
        if (request.target != "/metrics") return out.respond(text(404, kPlain, "not found\n"));
        const std::lock_guard lock(scrapes_mutex_);
        out.respond(text(200, telemetry::kTextContentType, merge_metrics(scrapes_)));
      });
  if (!server) return std::unexpected(server.error());
  metrics_ = std::move(*server);
  return {};
}

Status LocalRun::Impl::start() {
  if (!config_.metrics_host.empty()) {
    if (auto served = serve_metrics(); !served) return served;
  }
  for (std::size_t i = 0; i < plan_.replicas.size(); ++i) {
    const LocalReplica& replica = plan_.replicas[i];
    process::SpawnRequest request;
    request.argv = replica.argv;
    for (const auto& [name, value] : replica.environment)
      request.environment.push_back(name + "=" + value);
    request.working_dir = replica.working_dir;
    auto spawned = process::spawn(request);
    if (!spawned) {
      auto error = spawned.error();
      error.message = replica.name + ": " + error.message +
                      (replica.working_dir.empty() ? ""
                                                   : " (workingDir " + replica.working_dir +
                                                         "; --map names its local path)");
      return std::unexpected(error);
    }
    children_.push_back({spawned->pid});
    read(i, std::make_shared<Stream>(io_, spawned->out.release(), false));
    read(i, std::make_shared<Stream>(io_, spawned->err.release(), true));
    open_streams_ += 2;
  }
  return {};
}

void LocalRun::Impl::read(std::size_t replica, const std::shared_ptr<Stream>& stream) {
  stream->descriptor.async_read_some(
      asio::buffer(stream->buffer),
      [this, replica, stream](boost::system::error_code error, std::size_t size) {
        if (error) {
          print(replica, stream->splitter.finish(), stream->to_stderr);
          --open_streams_;
          return;
        }
        print(replica, stream->splitter.push({stream->buffer.data(), size}), stream->to_stderr);
        read(replica, stream);
      });
}

void LocalRun::Impl::print(std::size_t replica, const std::string& lines, bool to_stderr) {
  if (lines.empty()) return;
  std::string shown;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    std::string line = lines.substr(at, end - at);
    at = end + 1;
    if (!to_stderr && line.starts_with(kRankZero)) last_words_ = line.substr(kRankZero.size());
    // All launchers print to this screen: name the replica.
    if (replica > 0 && line.starts_with("[paceline] "))
      line = "[paceline " + std::to_string(replica) + "] " + line.substr(11);
    shown += line + "\n";
  }
  screen_.write(shown, to_stderr);
}

void LocalRun::Impl::wait_signal() {
  signals_.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    if (signal == SIGCHLD) {
      reap();
    } else if (interrupted_ != 0) {
      screen_.write("[paceline] killing what is left\n", true);
      kill_all(SIGKILL);
    } else {
      interrupted_ = signal;
      screen_.write("[paceline] ending all replicas (once more to kill them)\n", true);
      stop(SIGTERM);
    }
    wait_signal();
  });
}

void LocalRun::Impl::reap() {
  while (true) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    for (std::size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      if (child.pid != pid || child.exited) continue;
      child.exited = true;
      child.status = status;
      const bool orderly = WIFEXITED(status) && (WEXITSTATUS(status) == contract::kExitOk ||
                                                 WEXITSTATUS(status) == contract::kExitJobFailed);
      if (orderly || interrupted_ != 0 || enough_ || !problem_.empty()) continue;
      // A local run replaces no replica, so the others would wait for ever.
      const JobView last = read_view(read_json(plan_.replicas[i].termination_log));
      problem_ = plan_.replicas[i].name + ": " +
                 (WIFSIGNALED(status)
                      ? "its launcher was killed by signal " + std::to_string(WTERMSIG(status))
                  : last.message.empty()
                      ? "its launcher ended with code " + std::to_string(WEXITSTATUS(status))
                      : last.message);
      stop(SIGTERM);
    }
  }
  if (all_exited() && drained_by_ == SteadyTime::max()) drained_by_ = clock_.steady() + kDrain;
}

void LocalRun::Impl::kill_all(int signal) {
  for (const Child& child : children_) {
    if (!child.exited) ::kill(child.pid, signal);
  }
}

void LocalRun::Impl::stop(int signal) {
  patience_ =
      clock_.steady() + std::chrono::duration_cast<SteadyTime::duration>(config_.grace) + kPatience;
  kill_all(signal);
}

void LocalRun::Impl::poll(const std::stop_token& stop) {
  std::vector<LauncherClient> launchers;
  for (const std::uint16_t port : config_.http_ports) launchers.emplace_back(port);
  std::mutex mutex;
  std::condition_variable_any wake;
  while (!stop.stop_requested()) {
    if (auto body = launchers.front().get("/v1/summary",
                                          {{"Authorization", "Bearer " + config_.token}}, stop))
      asio::post(io_, [this, summary = std::move(*body)] { show(summary); });
    for (std::size_t i = 0; metrics_ && i < launchers.size(); ++i) {
      if (auto body = launchers[i].get("/metrics", {}, stop)) {
        const std::lock_guard lock(scrapes_mutex_);
        scrapes_[i] = std::move(*body);
      }
    }
    std::unique_lock lock(mutex);
    wake.wait_for(lock, stop, kRefresh, [] { return false; });
  }
}

void LocalRun::Impl::show(const std::string& summary) {
  if (all_exited()) return;
  const auto document = nlohmann::json::parse(summary, nullptr, false);
  if (!document.is_object()) return;
  seen_ = read_view(document);
  add_summary(config_.document, document);
  screen_.show(seen_);
  if (config_.last_step != 0 && seen_.steps >= config_.last_step && !enough_) {
    enough_ = true;
    stop(SIGTERM);
  }
}

void LocalRun::Impl::tick() {
  timer_.expires_after(std::chrono::milliseconds(50));
  timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    const SteadyTime now = clock_.steady();
    if (all_exited() && (open_streams_ == 0 || now >= drained_by_)) return io_.stop();
    if (config_.deadline && now - started_ > *config_.deadline && problem_.empty() &&
        interrupted_ == 0) {
      problem_ = "spec.activeDeadline of " + format_duration(*config_.deadline) + " has passed";
      stop(SIGTERM);
    }
    if (now >= patience_) {
      patience_ = SteadyTime::max();
      kill_all(SIGKILL);
    }
    tick();
  });
}

RunEnd LocalRun::Impl::finish() {
  screen_.clear();
  const std::string& state = plan_.replicas.front().state_dir;
  auto document = read_json(state + "/report.json");
  if (!document.is_object()) document = read_json(plan_.replicas.front().termination_log);
  // A killed launcher leaves no report.
  JobView view = document.is_object() ? read_view(document) : seen_;
  add_summary(config_.document, document);
  if (!problem_.empty()) {
    view.phase = "Failed";
    view.message = problem_;
  } else if (interrupted_ != 0) {
    view.phase = "Terminated";
  } else if (enough_) {
    view.phase = "Stopped";
  }
  for (const LocalReplica& replica : plan_.replicas) {
    std::ifstream file(replica.explain_file);
    std::string line;
    while (view.acted.size() < kMostActed && std::getline(file, line)) view.acted.push_back(line);
  }
  const double seconds = std::chrono::duration<double>(clock_.steady() - started_).count();
  const std::string words = view.phase == "Succeeded" ? last_words_ : "";
  config_.document["phase"] = view.phase;
  config_.document["message"] = view.message;
  return {exit_code(view), view, seconds, words, std::move(config_.document)};
}

int LocalRun::Impl::exit_code(const JobView& view) const {
  if (interrupted_ != 0) return 128 + interrupted_;
  if (view.phase == "Succeeded" || view.phase == "Stopped") return 0;
  if (!problem_.empty()) return 1;
  if (view.culprit_signal) return 128 + *view.culprit_signal;
  return view.culprit_exit_code.value_or(1);
}

Result<RunEnd> LocalRun::Impl::run() {
  ::signal(SIGPIPE, SIG_IGN);
  started_ = clock_.steady();
  wait_signal();
  if (auto started = start(); !started) {
    kill_all(SIGKILL);
    for (const Child& child : children_) ::waitpid(child.pid, nullptr, 0);
    children_.clear();
    return std::unexpected(started.error());
  }
  poller_ = std::jthread([this](const std::stop_token& stop) { poll(stop); });
  tick();
  io_.run();
  poller_ = {};
  return finish();
}

LocalRun::LocalRun(LocalRunConfig config, LocalPlan plan, Screen& screen, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(plan), screen, clock)) {}
LocalRun::~LocalRun() = default;
Result<RunEnd> LocalRun::run() { return impl_->run(); }

}  // namespace paceline::cli
