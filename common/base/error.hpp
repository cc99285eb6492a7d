// SPDX-License-Identifier: Apache-2.0
// Expected failure as a value. Every part returns `Result<T>`; exceptions of third-party libraries
// are caught where the library is called.
//
// An Error says who failed (origin), how (code), in words a user can act on (message), and whether
// the same call may succeed later (retry). Values; copied freely; thread-safe as any value is.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace paceline {

enum class Origin { kSystem, kHttp, kKube, kCuda, kNccl, kVerbs, kConfig, kProtocol };

enum class Code {
  kInvalid,        // the input is wrong: nothing but another input helps
  kNotFound,       // the object is not there
  kAlreadyExists,  // the object is there already
  kConflict,       // somebody else wrote in between: read again
  kGone,           // the version asked for is no longer kept: list again
  kForbidden,      // not allowed, by authorization, quota or policy
  kUnauthorized,   // credentials were not accepted
  kExhausted,      // too many requests, a full queue, a full disk
  kTimeout,        // no answer in time; the call may have been applied
  kUnavailable,    // the peer cannot be reached or closed the connection
  kCancelled,      // stopped by us
  kInternal,       // anything else
};

struct Error {
  Code code = Code::kInternal;
  Origin origin = Origin::kSystem;
  std::string message;
  bool retry = false;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

std::string_view to_string(Code code);
std::string_view to_string(Origin origin);

/// "Kube Conflict: message", as it is logged.
std::string to_string(const Error& error);

/// An unexpected value ready to be returned: `return fail(Code::kInvalid, Origin::kConfig, "…")`.
inline std::unexpected<Error> fail(Code code, Origin origin, std::string message,
                                   bool retry = false) {
  return std::unexpected<Error>(Error{code, origin, std::move(message), retry});
}

/// An error made of errno: "open /x: No such file or directory".
std::unexpected<Error> fail_errno(std::string_view what, int error_number);

}  // namespace paceline
