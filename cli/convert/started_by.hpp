// SPDX-License-Identifier: Apache-2.0
// What a container's command starts: a framework's own launcher, in a shell or not, and how many
// processes it asks for. It reads words, and runs nothing. Pure; never fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/convert/notes.hpp"
#include "common/command/words.hpp"

namespace paceline::cli {

using frameworks::base_name;

struct StartedBy {
  std::string launcher;   // "torchrun", as written; empty: no launcher that is known
  std::string framework;  // of that launcher: "PyTorch"
  bool shell = false;     // the command is a shell with a script
  std::optional<std::int64_t> processes;  // its --nproc_per_node and the like
  bool counts_devices = false;            // that flag says gpu, auto, cpu or xpu
};

/// The command of a container, then its arguments.
std::vector<std::string> words_of(const Json& container);

/// `words`: command and arguments.
StartedBy started_by(const std::vector<std::string>& words);
/// The same for a container.
StartedBy started_by(const Json& container);

/// Whether the words start sshd and nothing that trains.
bool starts_sshd(const std::vector<std::string>& words);

}  // namespace paceline::cli
