// SPDX-License-Identifier: Apache-2.0
// Reads the text of a shell script, line by line, without running it. Pure; never fails.
#pragma once

#include <string>
#include <vector>

namespace paceline::cli {

struct ScriptLine {
  int number = 1;    // of its first line in the file, from 1
  std::string text;  // continuation lines joined, no surrounding blanks
};

/// The lines that are not empty, comments with "#SBATCH" included.
std::vector<ScriptLine> script_lines(const std::string& text);

/// The words of one command, quotes removed. A word that a shell would expand stays as it is.
std::vector<std::string> shell_words(const std::string& line);

/// Whether only a shell can run the line: variables, pipes, several commands.
bool needs_shell(const std::string& line);

}  // namespace paceline::cli
