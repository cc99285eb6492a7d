// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/open_files.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

namespace paceline::process {
namespace {

// The launcher's own files, the pipes of its ranks, and connections of the HTTP endpoint.
constexpr rlim_t kOwnFiles = 512;

}  // namespace

Result<rlimit> allow_connections(int members) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return fail_errno("getrlimit", errno);
  const rlimit before = limit;
  const auto least = static_cast<rlim_t>(members) + kOwnFiles;
  // A launcher that lost its connection makes a new one before the old one is closed here.
  const rlim_t wanted = 2 * static_cast<rlim_t>(members) + kOwnFiles;
  if (limit.rlim_cur >= wanted) return before;
  if (limit.rlim_max < least) {
    return fail(Code::kInvalid, Origin::kConfig,
                "the job has " + std::to_string(members) +
                    " pods, and rank 0's launcher may open " + std::to_string(limit.rlim_max) +
                    " files; raise the hard limit of open files (ulimit "
                    "-Hn) of containers to " +
                    std::to_string(wanted));
  }
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(wanted, limit.rlim_max));
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return fail_errno("setrlimit", errno);
  return before;
}

}  // namespace paceline::process
