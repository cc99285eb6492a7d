// SPDX-License-Identifier: Apache-2.0
// What the stacks of a rank tell: whether its main thread waits in a collective, and which line of
// the program it has come to. Reads the text that Python's faulthandler writes. Pure; accepts any
// bytes.
#pragma once

#include <string>
#include <string_view>

namespace paceline::diagnosis {

struct StackFacts {
  std::string collective;  // "all_reduce": the main thread waits in it; empty if it does not
  std::string where;       // "train.py:40 in load": the program's own innermost frame; may be empty
};

StackFacts read_stack(std::string_view text);

}  // namespace paceline::diagnosis
