// SPDX-License-Identifier: Apache-2.0
// The limit of open files, which bounds how many launchers can be connected to rank 0's. Container
// runtimes often set a soft limit of 1,024 and a hard limit far above it.
//
// Changes the limit of this process. The ranks get the old one back, because a program that uses
// select() fails with descriptors above 1,023. Failure: an Error that names both numbers.
#pragma once

#include <sys/resource.h>

#include "common/base/error.hpp"

namespace paceline::process {

/// Lets this process hold a connection to each of `members` launchers. Returns the limit from
/// before.
Result<rlimit> allow_connections(int members);

}  // namespace paceline::process
