// SPDX-License-Identifier: Apache-2.0
#include "common/base/error.hpp"

#include <cerrno>
#include <system_error>

namespace paceline {
namespace {

Code code_of_errno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ESRCH: return Code::kNotFound;
    case EEXIST: return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS: return Code::kForbidden;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN: return Code::kExhausted;
    case ETIMEDOUT: return Code::kTimeout;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH: return Code::kUnavailable;
    case EINVAL: return Code::kInvalid;
    default: return Code::kInternal;
  }
}

}  // namespace

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kInvalid: return "Invalid";
    case Code::kNotFound: return "NotFound";
    case Code::kAlreadyExists: return "AlreadyExists";
    case Code::kConflict: return "Conflict";
    case Code::kGone: return "Gone";
    case Code::kForbidden: return "Forbidden";
    case Code::kUnauthorized: return "Unauthorized";
    case Code::kExhausted: return "Exhausted";
    case Code::kTimeout: return "Timeout";
    case Code::kUnavailable: return "Unavailable";
    case Code::kCancelled: return "Cancelled";
    case Code::kInternal: return "Internal";
  }
  return "Unknown";
}

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::kSystem: return "System";
    case Origin::kHttp: return "Http";
    case Origin::kKube: return "Kube";
    case Origin::kCuda: return "Cuda";
    case Origin::kNccl: return "Nccl";
    case Origin::kVerbs: return "Verbs";
    case Origin::kConfig: return "Config";
    case Origin::kProtocol: return "Protocol";
  }
  return "Unknown";
}

std::string to_string(const Error& error) {
  std::string text(to_string(error.origin));
  text += ' ';
  text += to_string(error.code);
  text += ": ";
  text += error.message;
  return text;
}

std::unexpected<Error> fail_errno(std::string_view what, int error_number) {
  const Code code = code_of_errno(error_number);
  const bool retry =
      code == Code::kExhausted || code == Code::kTimeout || code == Code::kUnavailable;
  return fail(code, Origin::kSystem,
              std::string(what) + ": " + std::generic_category().message(error_number), retry);
}

}  // namespace paceline
