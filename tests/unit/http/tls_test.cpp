// SPDX-License-Identifier: Apache-2.0
// TLS against OpenSSL's own server: which peers are trusted. Both transports must give the same
// answers.
#include "common/http/server/tls.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/http/beast/transport.hpp"
#include "common/http/server/server.hpp"
#include "common/net/ports.hpp"
#ifdef PACELINE_HAVE_CPPREST
#include "common/http/cpprest/transport.hpp"
#endif

extern char** environ;

namespace paceline::http {
namespace {

class Tls : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = testing::TempDir() + "tls-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern + "/";
    for (const char* ca : {"ca", "other"}) {
      run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
          "/CN=" +
          std::string(ca) + " -keyout " + folder_ + ca + ".key -out " + folder_ + ca + ".crt");
    }
    std::ofstream(folder_ + "names") << "subjectAltName=IP:127.0.0.1,DNS:api.test\n";
    for (const char* name : {"server", "client"}) {
      run("openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" +
          std::string(name) + " -keyout " + folder_ + name + ".key -out " + folder_ + name +
          ".csr");
      run("openssl x509 -req -days 2 -CAcreateserial -CA " + folder_ + "ca.crt -CAkey " + folder_ +
          "ca.key -extfile " + folder_ + "names -in " + folder_ + name + ".csr -out " + folder_ +
          name + ".crt");
    }
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  void start(bool ask_client) {
    held_.emplace("127.0.0.1");
    port_ = held_->port();
    std::vector<std::string> words{"openssl", "s_server",
                                   "-quiet",  "-www",
                                   "-accept", "127.0.0.1:" + std::to_string(port_),
                                   "-cert",   folder_ + "server.crt",
                                   "-key",    folder_ + "server.key"};
    if (ask_client)
      words.insert(words.end(),
                   {"-Verify", "1", "-verify_return_error", "-CAfile", folder_ + "ca.crt"});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : {0, 1, 2})
      posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    ASSERT_EQ(::posix_spawnp(&server_, "openssl", &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    for (int i = 0; i < 500; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port_);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const bool up = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
      ::close(fd);
      if (up) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    FAIL() << "openssl s_server did not come up";
  }
  void TearDown() override {
    if (server_ <= 0) return;
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
  }

  Endpoint endpoint(const std::string& ca) const {
    Endpoint endpoint;
    endpoint.tls = true;
    endpoint.host = "127.0.0.1";
    endpoint.port = std::to_string(port_);
    endpoint.ca_file = folder_ + ca;
    return endpoint;
  }
  static Result<Response> get(const Endpoint& endpoint) {
    std::shared_ptr<HttpTransport> transport = make_beast_transport(endpoint);
#ifdef PACELINE_HAVE_CPPREST
    if (std::string_view(GetParam()) == "cpprest") transport = make_cpprest_transport(endpoint);
#endif
    Request request;
    request.timeout = std::chrono::seconds(10);
    return transport->send(request, {});
  }
  static void run(const std::string& command) {
    ASSERT_EQ(std::system((command + " 2>/dev/null").c_str()), 0) << command;
  }

  static inline std::string folder_;
  std::optional<net::HeldPort> held_;
  std::uint16_t port_ = 0;
  pid_t server_ = -1;
};

TEST_P(Tls, TrustsTheGivenAuthority) {
  start(false);
  const auto answer = get(endpoint("ca.crt"));
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(answer->status, 200);
}

TEST_P(Tls, RefusesAnotherAuthority) {
  start(false);
  EXPECT_FALSE(get(endpoint("other.crt")));
}

TEST_P(Tls, RefusesAnotherName) {
  start(false);
  Endpoint wrong = endpoint("ca.crt");
  wrong.host = "localhost";  // the same server, but its certificate is not issued for that name
  const auto refused = get(wrong);
  ASSERT_FALSE(refused);
  if (GetParam() == std::string("beast")) {
    EXPECT_NE(refused.error().message.find("not issued for localhost"), std::string::npos)
        << to_string(refused.error());
  }
}

TEST_P(Tls, ShowsItsClientCertificate) {
  start(true);
  EXPECT_FALSE(get(endpoint("ca.crt"))) << "the server demands a certificate";
  Endpoint known = endpoint("ca.crt");
  known.cert_file = folder_ + "client.crt";
  known.key_file = folder_ + "client.key";
  const auto answer = get(known);
  ASSERT_TRUE(answer) << to_string(answer.error());
}

class TlsRenewal : public Tls {};

TEST_P(TlsRenewal, ShowsTheCertificateOfThisMoment) {
  start(true);
  Endpoint known = endpoint("ca.crt");
  known.renewable = std::make_shared<RenewableCertificate>();
  const auto transport = make_beast_transport(known);
  EXPECT_FALSE(transport->send(Request{}, {})) << "there is none yet";
  const auto pem = [](const std::string& name) {
    std::ifstream file(folder_ + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  known.renewable->renew(pem("client.crt"), pem("client.key"));
  const auto answer = transport->send(Request{}, {});
  ASSERT_TRUE(answer) << to_string(answer.error());
  known.renewable->renew(pem("other.crt"), pem("other.key"));
  EXPECT_FALSE(transport->send(Request{}, {})) << "nobody trusts the one that signed it";
}

INSTANTIATE_TEST_SUITE_P(Transport, TlsRenewal, testing::Values("beast"),
                         [](const auto& info) { return std::string(info.param); });

#ifdef PACELINE_HAVE_CPPREST
INSTANTIATE_TEST_SUITE_P(Transport, Tls, testing::Values("beast", "cpprest"),
                         [](const auto& info) { return std::string(info.param); });
#else
INSTANTIATE_TEST_SUITE_P(Transport, Tls, testing::Values("beast"),
                         [](const auto& info) { return std::string(info.param); });
#endif

class TlsServer : public Tls {
 protected:
  void SetUp() override {
    for (const char* end : {".crt", ".key"}) copy("server", end);
    auto connections = make_tls_connections({shown_ + ".crt", shown_ + ".key"});
    ASSERT_TRUE(connections) << to_string(connections.error());
    ServerOptions options;
    options.connections = *connections;
    auto started = Server::start(options, [](const Request& request, ResponseWriter& writer) {
      writer.respond({200, {}, request.target});
    });
    ASSERT_TRUE(started) << to_string(started.error());
    ours_ = std::move(*started);
    port_ = ours_->port();
  }
  void copy(const std::string& from, const char* end) const {
    std::filesystem::copy_file(folder_ + from + end, shown_ + end,
                               std::filesystem::copy_options::overwrite_existing);
  }
  const std::string shown_ = folder_ + "shown";
  std::unique_ptr<Server> ours_;
};

TEST_P(TlsServer, AnswersThoseWhoTrustIt) {
  const auto answer = get(endpoint("ca.crt"));
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(answer->body, "/");
  EXPECT_FALSE(get(endpoint("other.crt")));
  Endpoint plain = endpoint("ca.crt");
  plain.tls = false;
  EXPECT_FALSE(get(plain)) << "nothing is answered without TLS";
}

TEST_P(TlsServer, ShowsARotatedCertificateAndKeepsAGoodOne) {
  ASSERT_TRUE(get(endpoint("ca.crt")));
  copy("other", ".crt");  // half a rotation: the key is still the old one
  EXPECT_TRUE(get(endpoint("ca.crt")));
  copy("other", ".key");
  EXPECT_FALSE(get(endpoint("ca.crt"))) << "this one is signed by another authority";
  for (const char* end : {".crt", ".key"}) copy("server", end);
  EXPECT_TRUE(get(endpoint("ca.crt")));
}

TEST_P(TlsServer, UnusableFilesAreNamed) {
  const auto absent = make_tls_connections({shown_ + ".none", shown_ + ".key"});
  ASSERT_FALSE(absent);
  EXPECT_NE(absent.error().message.find(".none"), std::string::npos);
  const auto mixed = make_tls_connections({folder_ + "server.crt", folder_ + "other.key"});
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message.find("other.key"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Transport, TlsServer, testing::Values("beast"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TlsReload, RotatedAuthorityIsReadAgain) {
  // First the error names the file. After the rotation the next call works, without a new
  // transport.
  std::string pattern = testing::TempDir() + "rotate-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  Endpoint endpoint;
  endpoint.tls = true;
  endpoint.host = "127.0.0.1";
  endpoint.port = "1";
  endpoint.ca_file = pattern + "/ca.crt";
  std::ofstream(endpoint.ca_file) << "not PEM\n";
  const auto transport = make_beast_transport(endpoint);
  const auto before = transport->send(Request{}, {});
  ASSERT_FALSE(before);
  EXPECT_EQ(before.error().code, Code::kInvalid);
  EXPECT_NE(before.error().message.find(endpoint.ca_file), std::string::npos)
      << before.error().message;
  ASSERT_EQ(std::system(("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
                         "-days 2 -subj /CN=x -keyout " +
                         pattern + "/k -out " + endpoint.ca_file + " 2>/dev/null")
                            .c_str()),
            0);
  const auto after = transport->send(Request{}, {});
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().code, Code::kUnavailable)
      << "the certificates are good now; only nobody listens";
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace paceline::http
