// SPDX-License-Identifier: Apache-2.0
#include "common/kube/api/status_error.hpp"

#include <gtest/gtest.h>

namespace paceline::kube {
namespace {

std::string status(int code, const std::string& reason, const std::string& message) {
  return R"({"kind":"Status","code":)" + std::to_string(code) + R"(,"reason":")" + reason +
         R"(","message":")" + message + "\"}";
}

TEST(StatusError, CodeFollowsStatusAndReason) {
  EXPECT_EQ(error_of(409, status(409, "AlreadyExists", ""), "x").code, Code::kAlreadyExists);
  EXPECT_EQ(error_of(409, status(409, "Conflict", ""), "x").code, Code::kConflict);
  EXPECT_EQ(error_of(403, status(403, "Forbidden", ""), "x").code, Code::kForbidden);
  EXPECT_EQ(error_of(422, status(422, "Invalid", ""), "x").code, Code::kInvalid);
  EXPECT_EQ(error_of(410, status(410, "Expired", ""), "x").code, Code::kGone);
  EXPECT_EQ(error_of(500, status(500, "Expired", ""), "x").code, Code::kGone);
  EXPECT_EQ(error_of(429, "", "x").code, Code::kExhausted);
  EXPECT_EQ(error_of(504, "", "x").code, Code::kTimeout);
  EXPECT_TRUE(error_of(503, "", "x").retry);
  EXPECT_FALSE(error_of(422, "", "x").retry);
}

TEST(StatusError, MessageIsTheServersOwnAndNamesTheCall) {
  EXPECT_EQ(error_of(403, status(403, "Forbidden", "exceeded quota: q"), "POST /pods").message,
            "POST /pods: exceeded quota: q");
  EXPECT_NE(error_of(502, "<html>bad gateway</html>", "GET /").message.find("bad gateway"),
            std::string::npos);
  EXPECT_LT(error_of(502, std::string(100000, 'x'), "GET /").message.size(), 1000U);
}

TEST(StatusError, QuotesWhatAStatusCanHold) {
  // A proxy answers with a page of its own, in its own encoding.
  EXPECT_EQ(error_of(502,
                     "passerelle d\xe9"
                     "faillante",
                     "GET /")
                .message,
            "GET /: HTTP 502: passerelle d?faillante");
  const std::string cut = error_of(502, std::string(511, 'x') + "é", "GET /").message;
  EXPECT_EQ(cut, "GET /: HTTP 502: " + std::string(511, 'x'));
}

}  // namespace
}  // namespace paceline::kube
