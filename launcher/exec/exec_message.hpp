// SPDX-License-Identifier: Apache-2.0
// What the launch agent of an MPI job and a launcher say to each other (docs/designs/mpi.md), as
// values and frame payloads. The agent sends an ExecRequest, then the shell command as it is. The
// launcher answers with parts of the command's output, and at last with how the command ended.
//
// Pure. Reading accepts any bytes: an Error names what is wrong.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/net/address.hpp"

namespace paceline::exec {

struct ExecRequest {
  std::string token;
  std::string job_uid;
  int attempt = 0;
};
std::string to_json(const ExecRequest& request);
Result<ExecRequest> parse_request(std::string_view json);

enum class AnswerKind { kOutput, kError, kExit };
struct Answer {
  AnswerKind kind = AnswerKind::kOutput;
  std::string_view data;  // bytes of stdout or stderr
  int code = 0;           // of kExit, as a shell shows it
};
std::string encode_output(AnswerKind kind, std::string_view data);
std::string encode_exit(int code);
/// The answer refers to the payload.
Result<Answer> parse_answer(std::string_view payload);

/// What the agent needs to know, in a file that only the job's user can read: how to show that it
/// belongs to the job, and where the launcher of each host listens.
struct ExecHosts {
  ExecRequest request;
  std::map<std::string, net::Address> hosts;
};
std::string to_json(const ExecHosts& hosts);
Result<ExecHosts> parse_hosts(std::string_view json);

}  // namespace paceline::exec
