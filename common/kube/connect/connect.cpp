// SPDX-License-Identifier: Apache-2.0
#include "common/kube/connect/connect.hpp"

#include <utility>

#include "common/http/beast/transport.hpp"
#ifdef PACELINE_HAVE_CPPREST
#include "common/http/cpprest/transport.hpp"
#endif

namespace paceline::kube {

Result<std::shared_ptr<Api>> make_client(const Config& config, const Clock& clock,
                                         ConnectOptions options) {
  const http::BeastOptions beast{.max_connections = options.max_connections};
  // Watches hold their connections for minutes, so they have their own pool.
  std::shared_ptr<http::HttpTransport> streams = http::make_beast_transport(config.endpoint, beast);
  std::shared_ptr<http::HttpTransport> unary;
#ifdef PACELINE_HAVE_CPPREST
  if (options.prefer_cpprest && !config.endpoint.renewable)
    unary =
        http::make_cpprest_transport(config.endpoint, {.max_in_flight = options.max_connections});
#endif
  if (!unary) unary = http::make_beast_transport(config.endpoint, beast);
  options.client.prefix = config.prefix;
  return std::make_shared<Client>(std::move(unary), std::move(streams),
                                  make_token_source(config, clock), std::move(options.client));
}

Result<std::shared_ptr<Api>> connect(const std::string& kubeconfig, const Clock& clock,
                                     ConnectOptions options) {
  const auto config = load_default(kubeconfig);
  if (!config) return std::unexpected(config.error());
  return make_client(*config, clock, std::move(options));
}

}  // namespace paceline::kube
