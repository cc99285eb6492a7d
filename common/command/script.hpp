// SPDX-License-Identifier: Apache-2.0
// Which launcher of ranks a shell script starts. It reads the script's words and runs nothing.
// Pure.
#pragma once

#include <string>
#include <string_view>

namespace paceline::frameworks {

/// The first launcher that the script starts as a program or by `python -m`, as people write it
/// ("torchrun", "accelerate launch"); empty: none. A name that is only an argument or a part of a
/// path does not count (pip install deepspeed). What is behind a variable or eval is not seen.
std::string launcher_in(std::string_view script);

}  // namespace paceline::frameworks
