// SPDX-License-Identifier: Apache-2.0
#include "common/kube/fake/server.hpp"

#include <utility>

#include "common/http/server/server.hpp"

namespace paceline::kube {
namespace {

bool is_watch(const http::Request& request) {
  return request.method == "GET" && request.target.find('?') != std::string::npos &&
         request.target.find("watch=true") != std::string::npos;
}

void serve_watch(FakeCluster& cluster, const http::Request& request, http::ResponseWriter& writer) {
  bool begun = false;
  const auto begin = [&] {
    return begun || (begun = writer.begin_stream(200, {{"Content-Type", "application/json"}}));
  };
  auto response = cluster.watch(
      request, [&](std::string_view chunk) { return begin() && writer.write(chunk); },
      writer.stop());
  if (!response) {
    writer.abort();
  } else if (!begun) {
    if (response->status < 300)
      begin();
    else
      writer.respond(std::move(*response));
  }
}

}  // namespace

FakeServer::FakeServer(std::unique_ptr<http::Server> server) : server_(std::move(server)) {}
FakeServer::~FakeServer() = default;
std::uint16_t FakeServer::port() const { return server_->port(); }

Result<std::unique_ptr<FakeServer>> FakeServer::start(FakeCluster& cluster, std::uint16_t port) {
  http::ServerOptions options;
  // larger than any object that a real server accepts
  options.max_body_bytes = 4 * 1024 * 1024;
  options.port = port;
  options.max_connections = 512;
  auto server = http::Server::start(
      options, [&cluster](const http::Request& request, http::ResponseWriter& writer) {
        if (is_watch(request)) return serve_watch(cluster, request, writer);
        auto response = cluster.handle(request);
        if (response)
          writer.respond(std::move(*response));
        else
          writer.abort();
      });
  if (!server) return std::unexpected(server.error());
  return std::unique_ptr<FakeServer>(new FakeServer(std::move(*server)));
}

}  // namespace paceline::kube
