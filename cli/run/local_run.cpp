// SPDX-License-Identifier: Apache-2.0
#include "cli/run/local_run.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "cli/run/http_get.hpp"
#include "cli/run/merge_metrics.hpp"
#include "common/base/duration.hpp"
#include "common/contract/labels.hpp"
#include "common/telemetry/metrics/text_sink.hpp"
#include "launcher/process/line_splitter.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/summary/http_server.hpp"

namespace paceline::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kRefresh{500};
constexpr std::chrono::seconds kPatience{15};  // beyond the grace period, for launchers to end
constexpr std::chrono::milliseconds kDrain{500};
constexpr std::string_view kRankZero = "[0] ";

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return nlohmann::json::parse(text, nullptr, false);
}

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

  Result<int> run();

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
  void refresh();
  bool all_exited() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.exited; });
  }
  int finish();

  const LocalRunConfig config_;
  const LocalPlan plan_;
  Screen& screen_;
  const Clock& clock_;
  asio::io_context io_{1};
  asio::signal_set signals_;
  asio::steady_timer timer_;
  std::optional<summary::HttpServer> metrics_;
  std::vector<Child> children_;
  std::size_t open_streams_ = 0;
  std::vector<std::string> scrapes_;
  bool asking_ = false;
  int interrupted_ = 0;
  std::string problem_;  // why the run ended that is not the job's own verdict
  std::string last_words_;
  JobView seen_;  // as a launcher told last
  SteadyTime started_{};
  SteadyTime next_refresh_{};
  SteadyTime patience_{SteadyTime::max()};
  SteadyTime drained_by_{SteadyTime::max()};
};

Status LocalRun::Impl::start() {
  if (!config_.metrics_host.empty()) {
    metrics_.emplace(io_, [this](const std::string& path, const std::string&) {
      if (path == "/healthz") return summary::HttpAnswer{200, "text/plain; charset=utf-8", "ok\n"};
      if (path == "/metrics")
        return summary::HttpAnswer{200, std::string(telemetry::kTextContentType),
                                   merge_metrics(scrapes_)};
      return summary::HttpAnswer{};
    });
    if (auto opened = metrics_->open(config_.metrics_host, config_.metrics_port); !opened)
      return opened;
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
                                                         "; --map says where it lies here)");
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
    // The launchers of all replicas speak here: say which.
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
      if (orderly || interrupted_ != 0 || !problem_.empty()) continue;
      // Nobody replaces a replica here: without it the others would wait in vain.
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

void LocalRun::Impl::refresh() {
  if (asking_ || all_exited()) return;
  asking_ = true;
  http_get(io_, config_.http_ports.front(), "/v1/summary", "Bearer " + config_.token,
           [this](const std::optional<std::string>& body) {
             asking_ = false;
             if (!body || all_exited()) return;
             const auto document = nlohmann::json::parse(*body, nullptr, false);
             if (!document.is_object()) return;
             seen_ = read_view(document);
             screen_.show(seen_);
           });
  if (!metrics_) return;
  for (std::size_t i = 0; i < config_.http_ports.size(); ++i) {
    http_get(io_, config_.http_ports[i], "/metrics", "",
             [this, i](std::optional<std::string> body) {
               if (body) scrapes_[i] = std::move(*body);
             });
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
    if (now >= next_refresh_) {
      next_refresh_ = now + kRefresh;
      refresh();
    }
    tick();
  });
}

int LocalRun::Impl::finish() {
  screen_.clear();
  const std::string& state = plan_.replicas.front().state_dir;
  auto document = read_json(state + "/report.json");
  if (!document.is_object()) document = read_json(plan_.replicas.front().termination_log);
  // A launcher that was killed has left no report.
  JobView view = document.is_object() ? read_view(document) : seen_;
  if (!problem_.empty()) {
    view.phase = "Failed";
    view.message = problem_;
  } else if (interrupted_ != 0) {
    view.phase = "Terminated";
  }
  const double seconds = std::chrono::duration<double>(clock_.steady() - started_).count();
  screen_.write(final_table(config_.job, view, seconds), false);
  if (interrupted_ != 0) return 128 + interrupted_;
  if (view.phase == "Succeeded") {
    if (!last_words_.empty()) screen_.write(last_words_ + "\n", false);
    return 0;
  }
  if (!problem_.empty()) return 1;
  if (view.culprit_signal) return 128 + *view.culprit_signal;
  return view.culprit_exit_code.value_or(1);
}

Result<int> LocalRun::Impl::run() {
  ::signal(SIGPIPE, SIG_IGN);
  started_ = clock_.steady();
  wait_signal();
  if (auto started = start(); !started) {
    kill_all(SIGKILL);
    for (const Child& child : children_) ::waitpid(child.pid, nullptr, 0);
    children_.clear();
    return std::unexpected(started.error());
  }
  tick();
  io_.run();
  return finish();
}

LocalRun::LocalRun(LocalRunConfig config, LocalPlan plan, Screen& screen, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(plan), screen, clock)) {}
LocalRun::~LocalRun() = default;
Result<int> LocalRun::run() { return impl_->run(); }

}  // namespace paceline::cli
