// SPDX-License-Identifier: Apache-2.0
// HorovodStore: the key-value store by which the ranks of a Horovod job find each other, as
// horovodrun would serve it: HTTP with PUT, GET and DELETE of /SCOPE/KEY. The launcher of rank 0
// serves it at the master port, which the rank table names. Each attempt has an empty one, so that
// a rank never reads addresses of an earlier attempt.
//
// Horovod sends no secret, so any pod that reaches the port can read and write. The bounds below
// keep the launcher's memory small.
//
// Ownership: borrows io_context. One thread. Failure: `begin` says that the port cannot be bound; a
// request that breaks a bound gets 413.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "launcher/rendezvous/rank_table.hpp"
#include "launcher/summary/http_server.hpp"

namespace paceline::launcher {

/// The store without its server. Pure.
class HorovodKeys {
 public:
  static constexpr std::size_t kMostValue = std::size_t{16} << 20;
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;

  /// `members`: how many ranks use each of Horovod's own scopes. A rank ends its use of such a
  /// scope with DELETE, while others may still read; the scope is emptied after the last one.
  /// `most_bytes`: of all scopes, keys and values together.
  explicit HorovodKeys(std::map<std::string, int> members, std::size_t most_bytes = kMostBytes)
      : members_(std::move(members)), most_bytes_(most_bytes) {}

  summary::HttpAnswer answer(summary::HttpRequest request);

 private:
  using Scope = std::map<std::string, std::string>;

  summary::HttpAnswer put(const std::string& scope, const std::string& key, std::string value);
  void remove(const std::string& scope, const std::string& key);

  const std::map<std::string, int> members_;
  const std::size_t most_bytes_;
  std::map<std::string, int> finished_;
  std::map<std::string, Scope> scopes_;
  std::size_t bytes_ = 0;
};

/// The scopes that every Horovod job has, and how many ranks use each.
std::map<std::string, int> horovod_scopes(const rendezvous::RankTable& table);

class HorovodStore {
 public:
  explicit HorovodStore(boost::asio::io_context& io) : io_(io) {}

  /// Serves an empty store if `own` holds rank 0.
  Status begin(const rendezvous::RankTable& table, const rendezvous::Node& own);
  void close() { server_.reset(); }

 private:
  boost::asio::io_context& io_;
  std::optional<summary::HttpServer> server_;
};

}  // namespace paceline::launcher
