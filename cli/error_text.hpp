// SPDX-License-Identifier: Apache-2.0
// What a command prints of an error of the API server, with what to type where the server's words
// do not tell. Pure.
#pragma once

#include <string>

#include "common/base/error.hpp"

namespace paceline::cli {

inline std::string error_text(const Error& error) {
  if (error.code == Code::kUnauthorized && error.origin == Origin::kKube)
    return error.message +
           "; the kubeconfig's credentials are refused, perhaps as they expired: `kubectl auth "
           "whoami` says whose they are";
  if (error.code == Code::kUnavailable && error.origin == Origin::kHttp)
    return error.message + "; `kubectl cluster-info` says whether the cluster can be reached";
  return error.message;
}

}  // namespace paceline::cli
