// SPDX-License-Identifier: Apache-2.0
#include "common/command/script.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "common/command/launchers.hpp"
#include "common/command/mpirun_flags.hpp"
#include "common/command/words.hpp"

namespace paceline::frameworks {
namespace {

constexpr std::array<std::string_view, 3> kStarters{"torchrun", "horovodrun",
                                                    "torch-distributed-run"};
constexpr std::array<std::string_view, 2> kModules{"torch.distributed.run",
                                                   "torch.distributed.launch"};
// What may stand before a command: words of the shell, and programs that start another one.
constexpr std::array<std::string_view, 18> kBefore{
    "if",  "then", "else", "elif",  "while", "until", "do",      "!",       "{",
    "env", "exec", "sudo", "nohup", "time",  "nice",  "timeout", "numactl", "stdbuf"};

bool listed(std::string_view word, const auto& list) {
  return std::ranges::find(list, word) != list.end();
}

/// The commands of a script, each as its words without quotes.
std::vector<std::vector<std::string>> commands_of(std::string_view script) {
  std::vector<std::vector<std::string>> commands(1);
  std::string word;
  bool started = false;
  char quote = 0;
  const auto end_word = [&] {
    if (started) commands.back().push_back(word);
    word.clear();
    started = false;
  };
  for (std::size_t at = 0; at < script.size(); ++at) {
    const char c = script[at];
    if (c == '\\' && quote != '\'' && at + 1 < script.size()) {
      if (script[++at] == '\n') continue;
      word += script[at];
      started = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      started = true;
    } else if (c == '#' && !started) {
      at = std::min(script.find('\n', at), script.size()) - 1;
    } else if (std::string_view(";&|()\n`").find(c) != std::string_view::npos) {
      end_word();
      if (!commands.back().empty()) commands.emplace_back();
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      end_word();
    } else {
      word += c;
      started = true;
    }
  }
  end_word();
  return commands;
}

/// Whether the word sets a variable for the command behind it.
bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
         });
}

std::string launcher_of(const std::vector<std::string>& words) {
  std::size_t at = 0;
  bool wrapped = false;  // options and numbers of a program that starts another one may follow
  for (; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (listed(base_name(word), kBefore)) {
      wrapped = true;
    } else if (!is_assignment(word) &&
               !(wrapped && (word.empty() || word.starts_with('-') ||
                             std::isdigit(static_cast<unsigned char>(word.front())) != 0))) {
      break;
    }
  }
  if (at == words.size()) return "";
  std::string program = base_name(words[at]);
  if (listed(program, kStarters) || is_mpirun(program)) return program;
  if (const LauncherCommand* const launcher = launcher_of_program(program)) {
    if (launcher->first.empty()) return program;
    const bool follows = at + 1 < words.size() && words[at + 1] == launcher->first;
    return follows ? std::string(launcher->name) : "";
  }
  if (!program.starts_with("python")) return "";
  for (++at; at + 1 < words.size() && words[at].starts_with('-'); ++at) {
    if (words[at] == "-m") {
      const bool known = listed(words[at + 1], kModules) || launcher_of_module(words[at + 1]);
      return known ? words[at + 1] : "";
    }
    if (words[at] == "-W" || words[at] == "-X") ++at;
  }
  return "";
}

}  // namespace

std::string launcher_in(std::string_view script) {
  for (const std::vector<std::string>& command : commands_of(script)) {
    if (std::string launcher = launcher_of(command); !launcher.empty()) return launcher;
  }
  return "";
}

}  // namespace paceline::frameworks
