// SPDX-License-Identifier: Apache-2.0
// Whether the container's C library can load a library of the runtime. The launcher is static and
// cannot try it itself, so it asks the container's dynamic loader, as ldd does.
//
// Waits for that process, for some milliseconds. Failure: an Error that says what is missing.
#pragma once

#include <map>
#include <string>

#include "common/base/error.hpp"

namespace paceline::process {

/// `environment` is that of the process that is to load it. `loader` is the dynamic loader.
Status check_loadable(const std::string& library,
                      const std::map<std::string, std::string>& environment,
                      const std::string& loader);
/// With the loader of this processor's glibc.
Status check_loadable(const std::string& library,
                      const std::map<std::string, std::string>& environment);

}  // namespace paceline::process
