// SPDX-License-Identifier: Apache-2.0
#include "common/http/server/tls.hpp"

#include <sys/stat.h>

#include <mutex>

#include <boost/asio/ssl.hpp>
#include <boost/beast/ssl.hpp>

#include "common/http/server/session.hpp"

namespace paceline::http {
namespace {

namespace ssl = net::ssl;

/// The context of the files as they are now.
class Identity {
 public:
  explicit Identity(ServerCertificate files) : files_(std::move(files)) {}

  Result<std::shared_ptr<ssl::context>> current() {
    const std::lock_guard lock(mutex_);
    std::string now = versions();
    if (context_ && now == seen_) return context_;
    auto loaded = load();
    if (!loaded) {
      if (context_) return context_;
      return loaded;
    }
    seen_ = std::move(now);
    context_ = std::move(*loaded);
    return context_;
  }

 private:
  Result<std::shared_ptr<ssl::context>> load() const {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
    const auto unusable = [](const std::string& file, const beast::error_code& error) {
      return fail(Code::kInvalid, Origin::kConfig,
                  file + " is not usable PEM: " + error.message() +
                      "; give certificate and key of one pair");
    };
    beast::error_code error;
    context->use_certificate_chain_file(files_.certificate_file, error);
    if (error) return unusable(files_.certificate_file, error);
    context->use_private_key_file(files_.key_file, ssl::context::pem, error);
    if (error) return unusable(files_.key_file, error);
    return context;
  }

  std::string versions() const {
    std::string text;
    for (const std::string* file : {&files_.certificate_file, &files_.key_file}) {
      struct stat info{};
      if (::stat(file->c_str(), &info) != 0) continue;
      text += std::to_string(info.st_ino) + ':' + std::to_string(info.st_mtim.tv_sec) + '.' +
              std::to_string(info.st_mtim.tv_nsec) + ':' + std::to_string(info.st_size) + ';';
    }
    return text;
  }

  const ServerCertificate files_;
  std::mutex mutex_;
  std::string seen_;
  std::shared_ptr<ssl::context> context_;
};

struct TlsLayer {
  using Stream = beast::ssl_stream<beast::tcp_stream>;

  void adopt(std::optional<Stream>& stream, net::ip::tcp::socket socket) {
    context = identity->current().value();  // it has been loaded before, so it has a value
    stream.emplace(std::move(socket), *context);
  }
  template <typename Await>
  static beast::error_code begin(Stream& stream, const Await& await) {
    return await(
        [&](auto done) { stream.async_handshake(ssl::stream_base::server, std::move(done)); });
  }

  std::shared_ptr<Identity> identity;
  std::shared_ptr<ssl::context> context{};
};

class TlsConnections final : public ConnectionFactory {
 public:
  explicit TlsConnections(std::shared_ptr<Identity> identity) : identity_(std::move(identity)) {}
  std::shared_ptr<ServerConnection> make(const ServerOptions& options,
                                         const ServerHandler& handler) override {
    return std::make_shared<Session<TlsLayer>>(options, handler, TlsLayer{identity_});
  }

 private:
  const std::shared_ptr<Identity> identity_;
};

}  // namespace

Result<std::shared_ptr<ConnectionFactory>> make_tls_connections(
    const ServerCertificate& certificate) {
  auto identity = std::make_shared<Identity>(certificate);
  if (const auto first = identity->current(); !first) return std::unexpected(first.error());
  return std::make_shared<TlsConnections>(std::move(identity));
}

}  // namespace paceline::http
