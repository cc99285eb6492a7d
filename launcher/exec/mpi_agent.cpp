// SPDX-License-Identifier: Apache-2.0
#include "launcher/exec/mpi_agent.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string_view>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "launcher/exec/exec_message.hpp"
#include "launcher/rendezvous/frame.hpp"

namespace paceline::exec {
namespace {

using boost::asio::ip::tcp;

constexpr int kAgentFailed = 255;
// Options of ssh and rsh with a value of their own.
constexpr std::string_view kWithValue = "bcDeEFiIJlLmoOpQRSwW";

std::unexpected<Error> refusal(std::string what) {
  return fail(Code::kInvalid, Origin::kConfig, std::move(what));
}

void print(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    data.remove_prefix(static_cast<std::size_t>(written));
  }
}

Result<ExecHosts> read_hosts(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail_errno("read " + path, errno);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto hosts = parse_hosts(text);
  if (!hosts) return refusal(path + ": " + hosts.error().message);
  return hosts;
}

Result<tcp::socket> connect(boost::asio::io_context& io, const AgentCall& call,
                            const ExecHosts& hosts) {
  const auto found = hosts.hosts.find(call.host);
  if (found == hosts.hosts.end()) {
    return refusal("host \"" + call.host + "\" is no replica of this job; hosts are " +
                   (hosts.hosts.empty()
                        ? "none"
                        : hosts.hosts.begin()->first + " and others in " + call.hosts_file));
  }
  tcp::socket socket(io);
  boost::system::error_code error;
  const tcp::endpoint endpoint(boost::asio::ip::make_address(found->second.host, error),
                               found->second.port);
  if (!error) socket.connect(endpoint, error);
  if (!error) socket.set_option(boost::asio::socket_base::keep_alive(true), error);
  const std::string frames =
      rendezvous::encode_frame(to_json(hosts.request)) + rendezvous::encode_frame(call.command);
  if (!error) boost::asio::write(socket, boost::asio::buffer(frames), error);
  if (error) {
    return fail(Code::kUnavailable, Origin::kProtocol,
                "the launcher of " + call.host + " at " + net::to_string(found->second) + ": " +
                    error.message());
  }
  return socket;
}

Result<int> relay(tcp::socket& socket, const std::string& host) {
  rendezvous::FrameDecoder decoder(rendezvous::kServerLimit);
  std::array<char, 65536> buffer{};
  while (true) {
    boost::system::error_code error;
    const std::size_t size = socket.read_some(boost::asio::buffer(buffer), error);
    if (error) {
      return fail(Code::kUnavailable, Origin::kProtocol,
                  "the launcher of " + host + " closed the connection: " + error.message());
    }
    decoder.push({buffer.data(), size});
    while (true) {
      auto frame = decoder.next();
      if (!frame) return std::unexpected(frame.error());
      if (!*frame) break;
      const auto answer = parse_answer(**frame);
      if (!answer) return std::unexpected(answer.error());
      if (answer->kind == AnswerKind::kExit) return answer->code;
      print(answer->kind == AnswerKind::kOutput ? STDOUT_FILENO : STDERR_FILENO, answer->data);
    }
  }
}

Result<int> run(const std::vector<std::string>& arguments) {
  const auto call = parse_agent_call(arguments);
  if (!call) return std::unexpected(call.error());
  const auto hosts = read_hosts(call->hosts_file);
  if (!hosts) return std::unexpected(hosts.error());
  boost::asio::io_context io{1};
  auto socket = connect(io, *call, *hosts);
  if (!socket) return std::unexpected(socket.error());
  return relay(*socket, call->host);
}

}  // namespace

Result<AgentCall> parse_agent_call(const std::vector<std::string>& arguments) {
  AgentCall call;
  std::size_t at = 0;
  if (arguments.size() >= 2 && arguments[0] == "--hosts") {
    call.hosts_file = arguments[1];
    at = 2;
  }
  for (; at < arguments.size() && arguments[at].starts_with('-'); ++at) {
    const std::string& option = arguments[at];
    if (option.size() == 2 && kWithValue.find(option[1]) != std::string_view::npos) ++at;
  }
  if (at < arguments.size()) call.host = arguments[at++];
  for (; at < arguments.size(); ++at)
    call.command += (call.command.empty() ? "" : " ") + arguments[at];
  if (call.hosts_file.empty() || call.host.empty() || call.command.empty()) {
    return refusal(
        "usage: paceline-launcher mpi-agent --hosts FILE HOST COMMAND…; the launcher of an MPI job "
        "writes the file, and mpirun calls this");
  }
  return call;
}

int run_agent(const std::vector<std::string>& arguments) {
  const auto code = run(arguments);
  if (code) return *code;
  std::cerr << "[paceline] mpi-agent: " << code.error().message << '\n';
  return kAgentFailed;
}

}  // namespace paceline::exec
