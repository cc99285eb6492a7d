// SPDX-License-Identifier: Apache-2.0
// FieldError: what is wrong with one field of a job, where, and what to write instead. The path is
// what a person would search for ("spec.roles[0].replicas"), and a job file's reader can turn it
// into a line. Values.
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::api {

struct FieldError {
  std::string path;
  std::string value;     // as written, cut to 80 bytes; empty if the field is missing
  std::string problem;   // "is not a role name"
  std::string remedy;    // "use lower-case letters, digits and '-', at most 20"
  bool unknown = false;  // this release does not know the field
};

using FieldErrors = std::vector<FieldError>;

/// "spec.roles[0].replicas: 0 is too small; write a number from 1 to 10000"
std::string to_string(const FieldError& error);

/// Combines all of them into one Error (Invalid, Config), separated by newlines. At most 20 are
/// spelled out.
Error to_error(const FieldErrors& errors);

}  // namespace paceline::api
