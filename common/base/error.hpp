// SPDX-License-Identifier: Apache-2.0
// Expected failures are values: every part returns `Result<T>`. Exceptions of third-party libraries
// are caught where the library is called.
//
// An Error has an origin (which part failed), a code (how), a message that tells the user what to
// do, and `retry` (whether the same call may succeed later). Errors are plain values.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace paceline {

enum class Origin { kSystem, kHttp, kKube, kCuda, kNccl, kVerbs, kConfig, kProtocol };

enum class Code {
  kInvalid,        // the input is wrong; only another input helps
  kNotFound,       // the object does not exist
  kAlreadyExists,  // the object exists already
  kConflict,       // another writer changed the object; read it again
  kGone,           // the server no longer keeps this version; list again
  kForbidden,      // not allowed, by authorization, quota or policy
  kUnauthorized,   // credentials were not accepted
  kExhausted,      // too many requests, a full queue, a full disk
  kTimeout,        // no answer in time; the call may have been applied
  kUnavailable,    // the peer cannot be reached or closed the connection
  kCancelled,      // the caller asked to stop
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

/// An unexpected value to return: `return fail(Code::kInvalid, Origin::kConfig, "…")`.
inline std::unexpected<Error> fail(Code code, Origin origin, std::string message,
                                   bool retry = false) {
  return std::unexpected<Error>(Error{code, origin, std::move(message), retry});
}

/// An Error for an errno value: "open /x: No such file or directory".
std::unexpected<Error> fail_errno(std::string_view what, int error_number);

}  // namespace paceline
