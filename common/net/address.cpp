// SPDX-License-Identifier: Apache-2.0
#include "common/net/address.hpp"

#include <arpa/inet.h>

#include <array>
#include <charconv>

namespace paceline::net {

Result<Address> parse_address(const std::string& text) {
  const auto wrong = [&] {
    return fail(Code::kInvalid, Origin::kConfig,
                "\"" + text + "\" is not an address and a port; write for example 10.0.0.7:29400");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  Address address;
  address.host = text.substr(0, colon);
  const bool bracketed = address.host.starts_with('[') && address.host.ends_with(']');
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  std::array<unsigned char, 16> ignored{};
  if (::inet_pton(bracketed ? AF_INET6 : AF_INET, address.host.c_str(), ignored.data()) != 1)
    return wrong();
  unsigned port = 0;
  const auto [end, error] =
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port > 65535) return wrong();
  address.port = static_cast<std::uint16_t>(port);
  return address;
}

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace paceline::net
