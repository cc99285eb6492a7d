// SPDX-License-Identifier: Apache-2.0
#include "launcher/horovod_store.hpp"

#include <utility>

#include "launcher/frameworks/frameworks.hpp"

namespace paceline::launcher {
namespace {

using summary::HttpAnswer;
using summary::HttpRequest;

constexpr const char* kBinary = "application/octet-stream";
// Each request has a connection of its own, and each rank asks for one key after another.
constexpr std::size_t kMostConnections = 4096;

HttpAnswer refused(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

}  // namespace

HttpAnswer HorovodKeys::answer(HttpRequest request) {
  const std::size_t slash = request.path.find('/', 1);
  if (!request.path.starts_with('/') || slash == std::string::npos)
    return refused(400, "the path is not /SCOPE/KEY");
  const std::string scope = request.path.substr(1, slash - 1);
  const std::string key = request.path.substr(slash + 1);
  if (request.method == "PUT") return put(scope, key, std::move(request.body));
  if (request.method == "DELETE") {
    remove(scope, key);
    return {200, kBinary, ""};
  }
  if (request.method != "GET") return refused(405, "only GET, PUT and DELETE are served here");
  const auto keys = scopes_.find(scope);
  if (keys == scopes_.end()) return {404, kBinary, ""};
  const auto value = keys->second.find(key);
  if (value == keys->second.end()) return {404, kBinary, ""};
  return {200, kBinary, value->second};
}

HttpAnswer HorovodKeys::put(const std::string& scope, const std::string& key, std::string value) {
  // A new key costs its own name and its scope's, too.
  const std::size_t size = scope.size() + key.size() + value.size();
  if (value.size() > kMostValue || bytes_ + size > most_bytes_)
    return refused(413, "the store takes values of " + std::to_string(kMostValue) +
                            " bytes, and of " + std::to_string(most_bytes_) + " together");
  Scope& keys = scopes_[scope];
  const auto [entry, added] = keys.try_emplace(key);
  if (added) bytes_ += scope.size() + key.size();
  bytes_ += value.size();
  bytes_ -= entry->second.size();
  entry->second = std::move(value);
  return {200, kBinary, ""};
}

void HorovodKeys::remove(const std::string& scope, const std::string& key) {
  const auto keys = scopes_.find(scope);
  if (keys == scopes_.end()) return;
  const auto erase = [&](Scope::iterator entry) {
    bytes_ -= scope.size() + entry->first.size() + entry->second.size();
    keys->second.erase(entry);
  };
  const auto members = members_.find(scope);
  if (members == members_.end()) {
    if (const auto entry = keys->second.find(key); entry != keys->second.end()) erase(entry);
  } else if (++finished_[scope] >= members->second) {
    finished_.erase(scope);
    while (!keys->second.empty()) erase(keys->second.begin());
  }
  if (keys->second.empty()) scopes_.erase(keys);
}

std::map<std::string, int> horovod_scopes(const rendezvous::RankTable& table) {
  std::map<std::string, int> scopes{{"global", table.world_size}};
  for (const rendezvous::Node& node : table.nodes) {
    if (!contract::trains(node.kind)) continue;
    scopes["local_" + frameworks::horovod_host(node)] = node.processes;
    for (int local = 0; local < node.processes; ++local) ++scopes["cross_" + std::to_string(local)];
  }
  return scopes;
}

Status HorovodStore::begin(const rendezvous::RankTable& table, const rendezvous::Node& own) {
  server_.reset();
  if (own.first_rank != 0) return {};
  // Connections that are still open keep their own store.
  const auto keys = std::make_shared<HorovodKeys>(horovod_scopes(table));
  server_.emplace(
      io_, [keys](HttpRequest request) { return keys->answer(std::move(request)); },
      summary::HttpLimits{kMostConnections, HorovodKeys::kMostValue});
  return server_->open(table.master_address, table.master_port);
}

}  // namespace paceline::launcher
