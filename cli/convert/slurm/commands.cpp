// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/commands.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

constexpr std::array<std::string_view, 5> kOpen{"for", "while", "until", "if", "case"};
constexpr std::array<std::string_view, 3> kClose{"done", "fi", "esac"};
/// Words in front of a command.
constexpr std::array<std::string_view, 13> kBefore{"then", "do",    "else",   "elif",  "if",
                                                   "{",    "!",     "while",  "until", "time",
                                                   "exec", "nohup", "command"};

constexpr std::size_t kMostJoined = 100;  // each is read anew
constexpr std::size_t kShownBlock = 80;

bool is_in(std::string_view word, const auto& list) {
  return std::ranges::find(list, word) != list.end();
}

class CommandReader {
 public:
  std::vector<ScriptCommand> read(const std::string& text) && {
    for (const ScriptLine& line : script_lines(text)) {
      if (line.text.starts_with("#SBATCH")) {
        ScriptCommand option;
        option.line = line.number;
        option.text = line.text;
        option.is_option = true;
        commands_.push_back(std::move(option));
        continue;
      }
      for (const std::string& command : commands_of(line.text)) {
        add(line, command);
        follow_blocks(command);
      }
      if (!line.body.empty()) commands_.back().body = line.body;
    }
    return std::move(commands_);
  }

 private:
  static void judge(ScriptCommand& command) {
    command.launches = command.may_train = false;
    const std::vector<std::string> words = shell_words(command.text);
    const std::size_t at = program_in(words);
    if (at == words.size()) return;
    const std::string name = base_name(words[at]);
    const std::vector<std::string> program(words.begin() + static_cast<std::ptrdiff_t>(at),
                                           words.end());
    command.launches = name == "srun" || !started_by(program).launcher.empty();
    command.may_train = command.launches || name.starts_with("python");
  }

  /// Commands before an "&&" that a command which may train follows are commands of their own.
  void add(const ScriptLine& line, const std::string& text) {
    ScriptCommand command;
    command.line = line.number;
    command.block = blocks_.empty() ? "" : blocks_.back();
    std::size_t begin = 0;
    std::vector<std::size_t> starts = starts_after_and(text);
    if (starts.size() > kMostJoined) starts.clear();
    for (const std::size_t start : starts) {
      command.text = text.substr(start);
      judge(command);
      if (!command.may_train) continue;
      ScriptCommand before = command;
      before.text = text.substr(begin, start - 2 - begin);
      judge(before);
      commands_.push_back(std::move(before));
      begin = start;
    }
    command.text = text.substr(begin);
    judge(command);
    commands_.push_back(std::move(command));
  }

  void follow_blocks(const std::string& text) {
    const std::vector<std::string> words = shell_words(text);
    if (words.empty()) return;
    const bool function = words.front() == "function" || words.front().ends_with("()");
    if (is_in(words.front(), kOpen) || words.back() == "{" || function) {
      const bool opened_below = !blocks_.empty() && words.front() == "{";
      if (!opened_below) blocks_.push_back(text.substr(0, kShownBlock));
    } else if ((is_in(words.front(), kClose) || words.front() == "}") && !blocks_.empty()) {
      blocks_.pop_back();
    }
  }

  std::vector<std::string> blocks_;  // that are open, the innermost last
  std::vector<ScriptCommand> commands_;
};

}  // namespace

std::vector<ScriptCommand> script_commands(const std::string& text) {
  return CommandReader().read(text);
}

std::optional<Choice> choose_program(const std::vector<ScriptCommand>& commands) {
  const auto rank = [](const ScriptCommand& command) {
    return std::pair{command.launches, command.block.empty()};
  };
  std::optional<Choice> choice;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (!commands[i].may_train) continue;
    if (!choice || rank(commands[i]) >= rank(commands[choice->command])) choice = Choice{i, 0};
  }
  if (!choice) return choice;
  const bool launches = commands[choice->command].launches;
  choice->others =
      static_cast<std::size_t>(std::ranges::count_if(
          commands,
          [&](const auto& command) { return command.may_train && command.launches == launches; })) -
      1;
  return choice;
}

bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
}

std::size_t program_in(const std::vector<std::string>& words) {
  std::size_t at = 0;
  while (at < words.size() && (is_in(words[at], kBefore) || is_assignment(words[at]))) ++at;
  return at;
}

}  // namespace paceline::cli
