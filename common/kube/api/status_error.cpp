// SPDX-License-Identifier: Apache-2.0
#include "common/kube/api/status_error.hpp"

#include <string>

#include "common/base/excerpt.hpp"
#include "common/kube/api/json_reader.hpp"

namespace paceline::kube {
namespace {

Code code_of(int status, std::string_view reason) {
  switch (status) {
    case 400:
    case 405:
    case 406:
    case 413:
    case 415:
    case 422: return Code::kInvalid;
    case 401: return Code::kUnauthorized;
    case 403: return Code::kForbidden;
    case 404: return Code::kNotFound;
    case 409: return reason == "AlreadyExists" ? Code::kAlreadyExists : Code::kConflict;
    case 410: return Code::kGone;
    case 429: return Code::kExhausted;
    case 408:
    case 504: return Code::kTimeout;
    case 500:
    case 502:
    case 503: return Code::kUnavailable;
    default: return Code::kInternal;
  }
}

}  // namespace

Error error_of(int http_status, std::string_view body, std::string_view what) {
  std::string_view reason;
  std::string message;
  if (const auto status = parse(body); status && text(at(*status, "kind")) == "Status") {
    reason = text(at(*status, "reason"));
    message = text(at(*status, "message"));
  }
  // Older servers answer 500 with this reason; newer ones have the code "Expired".
  const bool expired = reason == "Expired" || reason == "Gone";
  if (message.empty())
    message = "HTTP " + std::to_string(http_status) + (body.empty() ? "" : ": " + excerpt(body));
  Error error{expired ? Code::kGone : code_of(http_status, reason), Origin::kKube,
              std::string(what) + ": " + message, false};
  error.retry = error.code == Code::kExhausted || error.code == Code::kTimeout ||
                error.code == Code::kUnavailable || error.code == Code::kConflict;
  return error;
}

Error error_of_status(std::string_view status, std::string_view what) {
  const auto parsed = parse(status);
  const auto code = parsed ? number(at(*parsed, "code"), 500) : 500;
  return error_of(static_cast<int>(code), status, what);
}

}  // namespace paceline::kube
