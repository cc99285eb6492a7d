// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/shell_words.hpp"

#include <string_view>

namespace paceline::cli {
namespace {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
}

}  // namespace

std::vector<ScriptLine> script_lines(const std::string& text) {
  std::vector<ScriptLine> lines;
  bool continues = false;
  int number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    const bool more = line.ends_with('\\');
    if (more) line = trimmed(std::string_view(line).substr(0, line.size() - 1));
    const bool comment = line.starts_with('#') && !line.starts_with("#SBATCH");
    if (continues) {
      lines.back().text += " " + line;
    } else if (!line.empty() && !comment) {
      lines.push_back({number, line});
    }
    continues = more && !lines.empty() && (continues || !comment);
  }
  return lines;
}

std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool started = false;
  char quote = 0;
  int nested = 0;  // open brackets of $(…), whose blanks end no word
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '(' && (nested > 0 || (i > 0 && line[i - 1] == '$'))) ++nested;
    if (c == ')' && nested > 0) --nested;
    if (quote == 0 && nested == 0 && (c == ' ' || c == '\t')) {
      if (started) words.push_back(word);
      word.clear();
      started = false;
      continue;
    }
    if (quote == 0 && c == '#' && !started) break;
    started = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      word += line[++i];
    } else {
      word += c;
    }
  }
  if (started) words.push_back(word);
  return words;
}

bool needs_shell(const std::string& line) {
  bool single = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\'') single = !single;
    if (!single && std::string_view("$`|;&<>*?~()").find(c) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace paceline::cli
