// SPDX-License-Identifier: Apache-2.0
#include "common/http/beast/tls.hpp"

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl.hpp>

namespace paceline::http {
namespace ssl = boost::asio::ssl;
namespace {

Result<std::string> pem_of(const std::string& data, const std::string& file, const char* what) {
  if (!data.empty() || file.empty()) return data;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return fail_errno(std::string("read ") + what + " " + file, errno);
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

std::unexpected<Error> unusable(const char* what, const std::string& file,
                                const boost::system::error_code& error) {
  return fail(Code::kInvalid, Origin::kHttp,
              std::string(what) + " " + (file.empty() ? "given as data" : file) +
                  " is not usable PEM: " + error.message());
}

}  // namespace

Status configure_tls(ssl::context& context, const Endpoint& endpoint) {
  boost::system::error_code error;
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  context.set_verify_mode(ssl::verify_peer, error);
  const auto ca = pem_of(endpoint.ca_data, endpoint.ca_file, "certificate authority");
  if (!ca) return std::unexpected(ca.error());
  if (ca->empty()) {
    context.set_default_verify_paths(error);
  } else {
    context.add_certificate_authority(boost::asio::buffer(*ca), error);
  }
  if (error) return unusable("certificate authority", endpoint.ca_file, error);
  auto certificate = pem_of(endpoint.cert_data, endpoint.cert_file, "client certificate");
  if (!certificate) return std::unexpected(certificate.error());
  auto key = pem_of(endpoint.key_data, endpoint.key_file, "client key");
  if (!key) return std::unexpected(key.error());
  if (endpoint.renewable) {
    if (RenewableCertificate::Pem renewed = endpoint.renewable->current(); renewed.generation > 0) {
      certificate = std::move(renewed.certificate);
      key = std::move(renewed.key);
    }
  }
  if (certificate->empty() != key->empty()) {
    return fail(Code::kInvalid, Origin::kConfig,
                "client certificate and client key go together; one of them is missing");
  }
  if (certificate->empty()) return {};
  context.use_certificate_chain(boost::asio::buffer(*certificate), error);
  if (error) return unusable("client certificate", endpoint.cert_file, error);
  context.use_private_key(boost::asio::buffer(*key), ssl::context::pem, error);
  if (error) return unusable("client key", endpoint.key_file, error);
  return {};
}

std::string TlsIdentity::fingerprint() const {
  std::string text;
  for (const std::string* file : {&endpoint_.ca_file, &endpoint_.cert_file, &endpoint_.key_file}) {
    struct stat info{};
    if (!file->empty() && ::stat(file->c_str(), &info) == 0) {
      text += std::to_string(info.st_ino) + ':' + std::to_string(info.st_mtim.tv_sec) + '.' +
              std::to_string(info.st_mtim.tv_nsec) + ':' + std::to_string(info.st_size);
    }
    text += ';';
  }
  if (endpoint_.renewable) text += std::to_string(endpoint_.renewable->current().generation);
  return text;
}

Result<TlsIdentity::Current> TlsIdentity::current() {
  const std::lock_guard lock(mutex_);
  std::string now = fingerprint();
  if (current_.context && now == seen_) return current_;
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  if (const auto status = configure_tls(*context, endpoint_); !status) {
    // The files may be in the middle of a rotation: keep the working context, and read them again
    // at the next connection.
    if (current_.context) return current_;
    return std::unexpected(status.error());
  }
  seen_ = std::move(now);
  current_ = {std::move(context), current_.generation + 1};
  return current_;
}

}  // namespace paceline::http
