// SPDX-License-Identifier: Apache-2.0
// ExecServer: starts commands in this replica for an MPI launcher of another replica, in place of
// sshd (docs/designs/mpi.md). The peer shows the job's token. It gets the command's output and
// its exit code; if it closes the connection before, the command is stopped.
//
// Ownership: owns its sockets and the pipes of the commands; borrows io_context. The owner waits
// for the children, stops them with the ranks, and reports each end to `on_exit`. One thread.
// Failure: a command that cannot be started ends with code 127, as a shell's would.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/clock.hpp"
#include "common/subprocess/spawn.hpp"
#include "launcher/rendezvous/listener.hpp"

namespace paceline::exec {

class ExecServer {
 public:
  /// `started` is called with each child.
  ExecServer(boost::asio::io_context& io, std::string token, std::string job_uid,
             std::chrono::nanoseconds grace, std::function<void(pid_t)> started);
  ~ExecServer();
  ExecServer(const ExecServer&) = delete;
  ExecServer& operator=(const ExecServer&) = delete;

  /// Listens on a free port of this address, and returns it; 0 if the address cannot be bound.
  std::uint16_t open(const std::string& host);
  /// Commands of this attempt may start now, each as `shell` with the command as last argument.
  /// Those that came before the attempt began here have waited.
  void begin(int attempt, process::SpawnRequest shell);
  /// No command of this attempt may start any more. The owner stops those that run.
  void stop();
  /// A child of this process ended.
  void on_exit(pid_t pid, int status);
  /// Call a few times a second.
  void tick(SteadyTime now);
  void close();

 private:
  struct Session;

  void accept(boost::asio::ip::tcp::socket socket);
  void on_frame(std::uint64_t id, std::string payload);
  bool authenticate(Session& session, const std::string& payload);
  void launch(Session& session);
  void read(const std::shared_ptr<Session>& session, bool error);
  void lose(std::uint64_t id);
  void finish(Session& session);
  void refuse(Session& session, const std::string& why);

  boost::asio::io_context& io_;
  const std::string token_;
  const std::string job_uid_;
  const std::chrono::nanoseconds grace_;
  const std::function<void(pid_t)> started_;
  rendezvous::Listener listener_;
  process::SpawnRequest shell_;
  int attempt_ = -1;  // that has begun here last
  bool running_ = false;
  std::map<std::uint64_t, std::shared_ptr<Session>> sessions_;
  std::uint64_t next_ = 0;
  SteadyTime now_{};
};

}  // namespace paceline::exec
