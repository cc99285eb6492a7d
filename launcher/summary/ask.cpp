// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/ask.hpp"

#include <chrono>
#include <vector>

#include "launcher/summary/http_client.hpp"

namespace paceline::summary {
namespace {

constexpr std::chrono::seconds kAskTime{5};

/// Where to try to connect: a launcher that listens on any address may have one family only.
std::vector<net::Address> addresses_of(const net::Address& address) {
  if (address.host == "::" || address.host == "0.0.0.0")
    return {{"127.0.0.1", address.port}, {"::1", address.port}};
  return {address};
}

std::unexpected<Error> no_answer(const std::string& why) {
  return fail(Code::kUnavailable, Origin::kHttp, "the launcher does not answer: " + why);
}

}  // namespace

Result<std::string> ask_launcher(const net::Address& address, const std::string& token) {
  const ClientRequest request{
      .path = "/v1/summary",
      .headers = {{"Host", "launcher"}, {"Authorization", "Bearer " + token}}};
  auto answer = exchange(addresses_of(address), request, kAskTime);
  if (!answer) return no_answer(answer.error().message);
  if (answer->status != 200)
    return no_answer("status " + std::to_string(answer->status) + ": " + answer->body);
  return std::move(answer->body);
}

}  // namespace paceline::summary
