// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "common/http/transport.hpp"

namespace paceline::http {
namespace {

TEST(ServerUrl, TakesSchemeHostPortAndPrefixApart) {
  const auto url = parse_server_url("https://10.0.0.1:6443/clusters/a/");
  ASSERT_TRUE(url);
  EXPECT_TRUE(url->endpoint.tls);
  EXPECT_EQ(url->endpoint.host, "10.0.0.1");
  EXPECT_EQ(url->endpoint.port, "6443");
  EXPECT_EQ(url->prefix, "/clusters/a");
  EXPECT_EQ(parse_server_url("https://[::1]:6443")->endpoint.host, "::1");
  EXPECT_EQ(parse_server_url("http://a")->endpoint.port, "80");
}

TEST(ServerUrl, RefusesWhatItCannotHonourAndSaysWhatToWrite) {
  for (const char* text : {"", "10.0.0.1:6443", "ftp://a", "https://", "https://user:pw@a",
                           "https://a:http", "https://[::1", "https://a:1234567"}) {
    const auto url = parse_server_url(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().code, Code::kInvalid);
    EXPECT_NE(url.error().message.find("https://10.0.0.1:6443"), std::string::npos);
  }
}

TEST(Escape, LeavesOnlyUnreservedCharacters) {
  EXPECT_EQ(escape("a-b_c.d~e/f g=h\xc3\xa9"), "a-b_c.d~e%2Ff%20g%3Dh%C3%A9");
}

TEST(ResponseHeader, IsFoundInAnyCase) {
  const Response response{429, {{"retry-after", "7"}}, {}};
  EXPECT_EQ(response.header("Retry-After"), "7");
  EXPECT_EQ(response.header("Absent"), "");
}

}  // namespace
}  // namespace paceline::http
