// SPDX-License-Identifier: Apache-2.0
#include "launcher/exec/exec_server.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "launcher/exec/exec_message.hpp"
#include "launcher/rendezvous/connection.hpp"
#include "launcher/rendezvous/secret.hpp"

namespace paceline::exec {
namespace {

namespace asio = boost::asio;
using rendezvous::Connection;

// For a peer to show the token and the command.
constexpr std::chrono::seconds kRequestTime{10};
// After a command ended, its children may keep its output open.
constexpr std::chrono::milliseconds kDrain{150};
constexpr std::size_t kMostSessions = 1024;
constexpr int kBacklog = 128;
constexpr int kNotStarted = 127;
constexpr int kRefused = 255;

int shown_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

struct ExecServer::Session {
  struct Pipe {
    Pipe(asio::io_context& io, int fd) : descriptor(io, fd) {}
    asio::posix::stream_descriptor descriptor;
    std::array<char, 16384> buffer{};
  };

  std::uint64_t id = 0;
  std::shared_ptr<Connection> connection;  // null: the peer has closed it
  SteadyTime since{};
  int attempt = -1;  // -1: the peer has not shown the token yet
  std::optional<std::string> command;
  pid_t pid = -1;                              // -1: not started, or ended
  std::array<std::unique_ptr<Pipe>, 2> pipes;  // stdout and stderr; null after their end
  std::optional<int> code;                     // set when the command has ended
  SteadyTime ended{};
  std::optional<SteadyTime> kill_at;
};

ExecServer::ExecServer(asio::io_context& io, std::string token, std::string job_uid,
                       std::chrono::nanoseconds grace, std::function<void(pid_t)> started)
    : io_(io),
      token_(std::move(token)),
      job_uid_(std::move(job_uid)),
      grace_(grace),
      started_(std::move(started)),
      listener_(io) {}

ExecServer::~ExecServer() = default;

std::uint16_t ExecServer::open(const std::string& host) {
  return listener_
      .open({host, 0}, kBacklog,
            [this](asio::ip::tcp::socket socket) { accept(std::move(socket)); })
      .value_or(0);
}

void ExecServer::accept(asio::ip::tcp::socket socket) {
  if (sessions_.size() >= kMostSessions) return;
  boost::system::error_code ignored;
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  auto session = std::make_shared<Session>();
  session->id = next_++;
  session->since = now_;
  session->connection = std::make_shared<Connection>(std::move(socket), rendezvous::kHelloLimit);
  sessions_[session->id] = session;
  session->connection->start(
      {[this, id = session->id](std::string payload) { on_frame(id, std::move(payload)); },
       [this, id = session->id](const std::string&) { lose(id); }});
}

bool ExecServer::authenticate(Session& session, const std::string& payload) {
  const auto request = parse_request(payload);
  if (!request || !rendezvous::same_secret(request->token, token_) || request->job_uid != job_uid_)
    return false;
  session.attempt = request->attempt;
  session.connection->set_limit(rendezvous::kMemberLimit);
  return true;
}

void ExecServer::on_frame(std::uint64_t id, std::string payload) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const auto session = found->second;
  if (session->attempt < 0) {
    if (authenticate(*session, payload)) return;
    sessions_.erase(found);
    return session->connection->close();
  }
  if (session->command) return refuse(*session, "a connection runs one command");
  session->command = std::move(payload);
  const bool over = session->attempt < attempt_ || (session->attempt == attempt_ && !running_);
  if (over) return refuse(*session, "attempt " + std::to_string(session->attempt) + " is over");
  if (session->attempt == attempt_) launch(*session);
}

void ExecServer::begin(int attempt, process::SpawnRequest shell) {
  attempt_ = attempt;
  running_ = true;
  shell_ = std::move(shell);
  const auto waiting = sessions_;
  for (const auto& [id, session] : waiting) {
    if (session->pid >= 0 || session->code || !session->command) continue;
    if (session->attempt == attempt) launch(*session);
  }
}

void ExecServer::launch(Session& session) {
  process::SpawnRequest request = shell_;
  // The shell must outlive a SIGTERM to its group: its end would be taken for the command's.
  request.argv.push_back("trap : TERM\n" + *session.command);
  auto spawned = process::spawn(request);
  if (!spawned) {
    session.connection->send(
        encode_output(AnswerKind::kError, "[paceline] " + spawned.error().message + "\n"));
    session.code = kNotStarted;
    return finish(session);
  }
  session.pid = spawned->pid;
  session.pipes[0] = std::make_unique<Session::Pipe>(io_, spawned->out.release());
  session.pipes[1] = std::make_unique<Session::Pipe>(io_, spawned->err.release());
  started_(session.pid);
  const auto shared = sessions_.at(session.id);
  read(shared, false);
  read(shared, true);
}

void ExecServer::read(const std::shared_ptr<Session>& session, bool error) {
  Session::Pipe& pipe = *session->pipes[error ? 1 : 0];
  pipe.descriptor.async_read_some(
      asio::buffer(pipe.buffer),
      [this, session, error](boost::system::error_code failed, std::size_t size) {
        auto& own = session->pipes[error ? 1 : 0];
        if (!own || failed == asio::error::operation_aborted) return;
        if (failed) {
          own.reset();
          if (session->code && !session->pipes[0] && !session->pipes[1]) finish(*session);
          return;
        }
        const std::string_view data(own->buffer.data(), size);
        if (session->connection)
          session->connection->send(
              encode_output(error ? AnswerKind::kError : AnswerKind::kOutput, data));
        read(session, error);
      });
}

void ExecServer::on_exit(pid_t pid, int status) {
  for (const auto& [id, session] : sessions_) {
    if (session->pid != pid) continue;
    session->pid = -1;
    session->code = shown_code(status);
    session->ended = now_;
    const auto ended = session;
    if (!ended->pipes[0] && !ended->pipes[1]) finish(*ended);
    return;
  }
}

void ExecServer::finish(Session& session) {
  if (session.connection) {
    session.connection->send(encode_exit(*session.code));
    session.connection->close();
  }
  const auto found = sessions_.find(session.id);
  if (found == sessions_.end()) return;
  const auto keep = found->second;
  for (auto& pipe : keep->pipes) pipe.reset();
  sessions_.erase(found);
}

void ExecServer::refuse(Session& session, const std::string& why) {
  session.connection->send(encode_output(AnswerKind::kError, "[paceline] " + why + "\n"));
  if (session.pid >= 0) return;
  session.code = kRefused;
  finish(session);
}

void ExecServer::lose(std::uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  session.connection.reset();
  if (session.pid < 0) {
    // A pipe that a child of the command still holds keeps the session: its read would not end.
    for (auto& pipe : session.pipes) pipe.reset();
    sessions_.erase(found);
    return;
  }
  ::kill(-session.pid, SIGTERM);
  session.kill_at = now_ + std::chrono::duration_cast<SteadyTime::duration>(grace_);
}

void ExecServer::stop() {
  running_ = false;
  const auto waiting = sessions_;
  for (const auto& [id, session] : waiting) {
    if (session->pid < 0 && !session->code && session->command && session->attempt <= attempt_)
      refuse(*session, "attempt " + std::to_string(session->attempt) + " is over");
  }
}

void ExecServer::tick(SteadyTime now) {
  now_ = now;
  const auto all = sessions_;
  for (const auto& [id, session] : all) {
    if (session->since == SteadyTime{}) session->since = now;  // came before the first tick
    if (session->code && now - session->ended > kDrain) {
      finish(*session);
    } else if (session->kill_at && now >= *session->kill_at && session->pid >= 0) {
      ::kill(-session->pid, SIGKILL);
    } else if (!session->command && now - session->since > kRequestTime) {
      session->connection->abort();
      sessions_.erase(id);
    }
  }
}

void ExecServer::close() {
  listener_.close();
  for (const auto& [id, session] : sessions_) {
    if (session->connection) session->connection->abort();
    for (auto& pipe : session->pipes) pipe.reset();
  }
  sessions_.clear();
}

}  // namespace paceline::exec
