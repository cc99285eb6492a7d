// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/peer.hpp"

#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "common/base/printable.hpp"

namespace paceline::traces {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using std::chrono::nanoseconds;

constexpr std::chrono::seconds kConnectTime{3};
constexpr std::chrono::seconds kAnswerTime{10};
constexpr std::uint64_t kMostAnswer = 32ULL << 20;
constexpr int kClockProbes = 9;
constexpr std::size_t kMostWords = 300;  // of a refusal that is shown

/// The sentence of {"error": …}.
std::string words_of(const std::string& body) {
  const auto document = nlohmann::json::parse(body, nullptr, false);
  const bool told =
      document.is_object() && document.contains("error") && document["error"].is_string();
  return printable((told ? document["error"].get<std::string>() : body).substr(0, kMostWords));
}

nanoseconds wall_now() { return std::chrono::system_clock::now().time_since_epoch(); }

}  // namespace

class Peer::Link {
 public:
  Link() : stream_(io_) {}

  beast::error_code connect(const net::Address& address) {
    beast::error_code error;
    const asio::ip::tcp::endpoint endpoint(asio::ip::make_address(address.host, error),
                                           address.port);
    if (error) return error;
    stream_.expires_after(kConnectTime);
    return run([&](auto done) {
      stream_.async_connect(endpoint, [done](beast::error_code failed) { done(failed); });
    });
  }

  beast::error_code exchange(beast::http::request<beast::http::string_body>& request,
                             beast::http::response_parser<beast::http::string_body>& answer) {
    stream_.expires_after(kAnswerTime);
    auto error = run([&](auto done) {
      beast::http::async_write(stream_, request,
                               [done](beast::error_code failed, std::size_t) { done(failed); });
    });
    if (error) return error;
    return run([&](auto done) {
      beast::http::async_read(stream_, buffer_, answer,
                              [done](beast::error_code failed, std::size_t) { done(failed); });
    });
  }

 private:
  template <typename Begin>
  beast::error_code run(Begin begin) {
    beast::error_code result;
    begin([&result](beast::error_code error) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  asio::io_context io_{1};
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
};

Peer::Peer(net::Address address, std::string token)
    : address_(std::move(address)), token_(std::move(token)) {}
Peer::~Peer() = default;
Peer::Peer(Peer&&) noexcept = default;
Peer& Peer::operator=(Peer&&) noexcept = default;

Result<std::string> Peer::ask(bool post, const std::string& path, const std::string& body) {
  namespace http = beast::http;
  const auto unreachable = [&](beast::error_code error) {
    link_.reset();
    return fail(Code::kUnavailable, Origin::kHttp,
                "the launcher at " + net::to_string(address_) + " does not answer (" +
                    error.message() + ")");
  };
  http::request<http::string_body> request(post ? http::verb::post : http::verb::get, path, 11);
  request.set(http::field::host, address_.host);
  request.set(http::field::authorization, "Bearer " + token_);
  request.body() = body;
  request.prepare_payload();
  // The launcher closes a connection that was silent for long: try a new one then.
  for (bool fresh = link_ == nullptr;; fresh = true) {
    if (!link_) {
      link_ = std::make_unique<Link>();
      if (const auto error = link_->connect(address_)) return unreachable(error);
    }
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMostAnswer);
    if (const auto error = link_->exchange(request, parser)) {
      if (fresh) return unreachable(error);
      link_.reset();
      continue;
    }
    auto answer = parser.release();
    if (!answer.keep_alive()) link_.reset();
    if (answer.result() == http::status::ok) return std::move(answer.body());
    return fail(answer.result() == http::status::conflict ? Code::kConflict : Code::kInvalid,
                Origin::kHttp, words_of(answer.body()));
  }
}

Result<std::string> Peer::get(const std::string& path) { return ask(false, path, ""); }

Result<nlohmann::json> Peer::get_json(const std::string& path) {
  const auto body = get(path);
  if (!body) return std::unexpected(body.error());
  auto document = nlohmann::json::parse(*body, nullptr, false);
  if (document.is_object()) return document;
  return fail(Code::kInvalid, Origin::kProtocol,
              "the launcher at " + net::to_string(address_) + " answered " + path +
                  " with something that is no JSON object");
}

Status Peer::post(const std::string& path, const nlohmann::json& body) {
  const auto answer = ask(true, path, body.dump());
  if (!answer) return std::unexpected(answer.error());
  return {};
}

Result<ClockOffset> measure_clock(Peer& peer, const std::string& own_boot_id) {
  std::optional<ClockOffset> best;
  for (int probe = 0; probe < kClockProbes; ++probe) {
    const nanoseconds before = wall_now();
    const auto answer = peer.get_json("/v1/clock");
    const nanoseconds after = wall_now();
    if (!answer) return std::unexpected(answer.error());
    if (!own_boot_id.empty() && answer->value("bootId", "") == own_boot_id) return ClockOffset{};
    const nanoseconds theirs(answer->value("unixNs", std::int64_t{0}));
    const nanoseconds half = (after - before) / 2;
    if (!best || half < best->uncertainty) best = ClockOffset{theirs - (before + half), half};
  }
  return *best;
}

}  // namespace paceline::traces
