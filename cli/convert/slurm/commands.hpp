// SPDX-License-Identifier: Apache-2.0
// The commands of a batch script, and which of them trains. Pure; never fails.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/convert/slurm/shell_words.hpp"

namespace paceline::cli {

struct ScriptCommand {
  int line = 1;
  std::string text;        // the command and what && || and | join to it
  std::string body;        // its here-documents
  std::string block;       // the loop or condition around it; empty: none
  bool is_option = false;  // a line "#SBATCH …"
  bool launches = false;   // starts srun or a framework's own launcher
  bool may_train = false;  // launches, or starts python
};

std::vector<ScriptCommand> script_commands(const std::string& text);

struct Choice {
  std::size_t command = 0;
  std::size_t others = 0;  // commands that are as likely
};
/// The command that trains: the last launcher outside of loops and conditions; then the last
/// launcher; then the last python. None if the script starts nothing of the kind.
std::optional<Choice> choose_program(const std::vector<ScriptCommand>& commands);

/// Whether the word sets a variable: "NAME=value".
bool is_assignment(const std::string& word);

/// The place of the program in the command's words, behind words such as `time` and NAME=value.
std::size_t program_in(const std::vector<std::string>& words);

}  // namespace paceline::cli
