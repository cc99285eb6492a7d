// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/resolve.hpp"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netinet/in.h>
#include <resolv.h>

#include <array>

namespace paceline::spans {
namespace {

constexpr std::size_t kMostAnswer = 4096;

void add_addresses(res_state state, const std::string& host, ns_type type, int family,
                   std::vector<std::string>& found) {
  std::array<unsigned char, kMostAnswer> answer{};
  const int bytes = ::res_nsearch(state, host.c_str(), ns_c_in, type, answer.data(),
                                  static_cast<int>(answer.size()));
  ns_msg message{};
  if (bytes < 0 || static_cast<std::size_t>(bytes) > answer.size() ||
      ::ns_initparse(answer.data(), bytes, &message) != 0)
    return;
  for (int i = 0; i < ns_msg_count(message, ns_s_an); ++i) {
    ns_rr record{};
    if (::ns_parserr(&message, ns_s_an, i, &record) != 0 || ns_rr_type(record) != type) continue;
    if (ns_rr_rdlen(record) != (family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr))) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::inet_ntop(family, ns_rr_rdata(record), text.data(), text.size()) != nullptr)
      found.emplace_back(text.data());
  }
}

bool is_address(const std::string& host) {
  in6_addr room{};
  return ::inet_pton(AF_INET, host.c_str(), &room) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

}  // namespace

Result<std::vector<std::string>> resolve(const std::string& host) {
  if (is_address(host)) return std::vector{host};
  if (host == "localhost") return std::vector<std::string>{"127.0.0.1", "::1"};
  struct __res_state state{};
  if (::res_ninit(&state) != 0)
    return fail(Code::kUnavailable, Origin::kSystem, "/etc/resolv.conf cannot be read");
  state.retrans = 1;  // seconds
  state.retry = 2;
  std::vector<std::string> found;
  add_addresses(&state, host, ns_t_a, AF_INET, found);
  if (found.empty()) add_addresses(&state, host, ns_t_aaaa, AF_INET6, found);
  ::res_nclose(&state);
  if (found.empty())
    return fail(Code::kUnavailable, Origin::kSystem, "no server of DNS knows \"" + host + "\"");
  return found;
}

}  // namespace paceline::spans
