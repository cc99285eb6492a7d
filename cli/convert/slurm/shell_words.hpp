// SPDX-License-Identifier: Apache-2.0
// Reads the text of a shell script without running it: its command lines, the commands of a line
// and the words of a command. Pure; never fails. A quote that is never closed lasts to the end.
#pragma once

#include <string>
#include <vector>

namespace paceline::cli {

struct ScriptLine {
  int number = 1;    // of its first line in the file, from 1
  std::string text;  // without comments; continued lines and open quotes joined
  std::string body;  // of its here-documents, with their last lines; empty: none
};

/// The lines that are not empty, "#SBATCH" lines included, other comments left out.
std::vector<ScriptLine> script_lines(const std::string& text);

struct ShellWord {
  std::string text;       // quotes removed; what a shell would expand stays as it is
  std::size_t begin = 0;  // in the line, quotes included
  std::size_t end = 0;
};

/// The words of one command, with their places in `line`.
std::vector<ShellWord> placed_words(const std::string& line);

/// The words alone.
std::vector<std::string> shell_words(const std::string& line);

/// The commands of a line that ';' or '&' part. Commands that && || or | join stay together.
std::vector<std::string> commands_of(const std::string& line);

/// Where commands begin that follow "&&".
std::vector<std::size_t> starts_after_and(const std::string& line);

/// Whether only a shell can run the line: variables, pipes, several commands, file patterns.
bool needs_shell(const std::string& line);

/// Whether the line is one pipe at least: a | b.
bool has_pipe(const std::string& line);

/// Whether the line is several commands: a && b, a || b, a | b.
bool has_several_commands(const std::string& line);

/// The names of variables that the text uses as $NAME or ${NAME…}, quoted or not.
std::vector<std::string> variables_in(const std::string& text);

}  // namespace paceline::cli
