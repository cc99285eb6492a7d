// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace paceline::cli {
namespace {

/// What a character is to the shell.
enum class Kind {
  kPlain,     // outside quotes and brackets
  kMark,      // a quote, or a backslash that escapes: no part of the word
  kExpanded,  // in double quotes or brackets: $ keeps its meaning
  kLiteral    // in single quotes, or escaped
};

/// Follows quotes and brackets, one character after the other.
class Quoting {
 public:
  Kind step(std::string_view text, std::size_t at) {
    const char c = text[at];
    const char before = at == 0 ? '\0' : text[at - 1];
    const bool outside = open_.empty();
    const Kind here = outside ? Kind::kPlain : Kind::kExpanded;
    if (escaped_) {
      escaped_ = false;
      return Kind::kLiteral;
    }
    if (top() == '\'') {
      if (c != '\'') return Kind::kLiteral;
      open_.pop_back();
      return mark();
    }
    if (c == '\\') {
      const char next = at + 1 < text.size() ? text[at + 1] : '\0';
      escaped_ = top() != '"' || std::string_view("$`\"\\").contains(next);
      return escaped_ && (outside || open_ == "\"") ? Kind::kMark : here;
    }
    if (c == '"') {
      const bool closes = top() == '"';
      if (closes) open_.pop_back();
      const Kind kind = mark();
      if (!closes) open_ += '"';
      return kind;
    }
    if (c == '\'' && top() != '"') {
      const Kind kind = mark();
      open_ += '\'';
      return kind;
    }
    if (c == '(' && (before == '$' || top() != '"')) {
      open_ += '(';
    } else if (c == '{' && before == '$') {
      open_ += '{';
    } else if ((c == ')' && top() == '(') || (c == '}' && top() == '{') ||
               (c == '`' && top() == '`')) {
      open_.pop_back();
    } else if (c == '`') {
      open_ += '`';
    }
    return here;
  }

  bool is_open() const { return !open_.empty() || escaped_; }
  /// Whether a comment or a here-document may begin here.
  bool is_code() const { return !escaped_ && (open_.empty() || top() == '('); }
  /// Whether a backslash at the end of a line joins it to the next one.
  bool can_join() const { return !escaped_ && top() != '\''; }

 private:
  char top() const { return open_.empty() ? '\0' : open_.back(); }
  /// Quotes within brackets stay, as the inner command needs them.
  Kind mark() const { return open_.empty() ? Kind::kMark : Kind::kExpanded; }

  std::string open_;  // quotes and brackets, the innermost last
  bool escaped_ = false;
};

std::vector<Kind> kinds_of(std::string_view text) {
  std::vector<Kind> kinds;
  kinds.reserve(text.size());
  Quoting quoting;
  for (std::size_t at = 0; at < text.size(); ++at) kinds.push_back(quoting.step(text, at));
  return kinds;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// "<<" that begins a here-document, at `at`: the line that ends it. Empty: none. Arithmetic such
/// as $((1 << 2)) has a digit behind it.
std::string here_document(std::string_view text, std::size_t at, bool& tabs) {
  if (!text.substr(at).starts_with("<<") || text.substr(at).starts_with("<<<")) return "";
  if (at > 0 && text[at - 1] == '<') return "";
  at += 2;
  tabs = at < text.size() && text[at] == '-';
  if (tabs) ++at;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  std::string last;
  if (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) return "";
  for (; at < text.size() && (is_name(text[at]) || std::string_view("'\"\\").contains(text[at]));
       ++at) {
    if (is_name(text[at])) last += text[at];
  }
  return last;
}

class LineReader {
 public:
  explicit LineReader(std::string text) : text_(std::move(text)) {}

  std::vector<ScriptLine> read() && {
    while (at_ < text_.size()) step();
    end_line();
    return std::move(lines_);
  }

 private:
  void step() {
    const char c = text_[at_];
    const std::string_view rest = std::string_view(text_).substr(at_);
    if (rest.starts_with("\\\n") && quoting_.can_join()) {
      join();
      return;
    }
    const bool word_begins =
        current_.empty() || std::string_view(" \t\n;&|(").contains(current_.back());
    if (c == '#' && word_begins && quoting_.is_code()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      if (blank_ && rest.starts_with("#SBATCH"))
        lines_.push_back({number_, trimmed(rest.substr(0, end - at_)), ""});
      at_ = end;
      return;
    }
    if (c == '<' && quoting_.is_code()) {
      HereDocument document;
      document.last = here_document(text_, at_, document.tabs);
      if (!document.last.empty()) awaited_.push_back(std::move(document));
    }
    if (c == '\n' && !quoting_.is_open()) {
      ++at_;
      end_line();
      ++number_;
      return;
    }
    if (blank_) begin_ = number_;
    blank_ = blank_ && is_blank(c);
    quoting_.step(text_, at_);
    current_ += c;
    ++at_;
    if (c != '\n') return;
    ++number_;
    current_ += bodies();
  }

  /// A backslash at the end of a line: the next line continues it.
  void join() {
    at_ += 2;
    ++number_;
    if (quoting_.is_open()) return;
    const bool blank = current_.empty() || is_blank(current_.back()) ||
                       (at_ < text_.size() && is_blank(text_[at_]));
    while (!current_.empty() && is_blank(current_.back())) current_.pop_back();
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (blank && !current_.empty()) current_ += ' ';
  }

  void end_line() {
    std::string line = trimmed(current_);
    current_.clear();
    blank_ = true;
    quoting_ = {};
    std::string body = bodies();
    if (!line.empty()) lines_.push_back({begin_, std::move(line), std::move(body)});
  }

  /// The here-documents that begin at `at_`.
  std::string bodies() {
    const std::size_t begin = at_;
    for (const HereDocument& document : awaited_) {
      for (bool ended = false; !ended && at_ < text_.size(); ++number_) {
        const std::size_t end = std::min(text_.find('\n', at_), text_.size());
        std::string line = text_.substr(at_, end - at_);
        if (document.tabs) line.erase(0, std::min(line.find_first_not_of('\t'), line.size()));
        ended = line == document.last;
        at_ = std::min(end + 1, text_.size());
      }
    }
    awaited_.clear();
    return text_.substr(begin, at_ - begin);
  }

  struct HereDocument {
    std::string last;
    bool tabs = false;  // <<-
  };

  std::string text_;
  std::size_t at_ = 0;
  int number_ = 1;
  int begin_ = 1;  // the line where `current_` begins
  std::string current_;
  bool blank_ = true;  // `current_` holds nothing but blanks
  Quoting quoting_;
  std::vector<HereDocument> awaited_;
  std::vector<ScriptLine> lines_;
};

/// '&' of a redirection: 2>&1, &>file.
bool is_redirection(const std::string& line, std::size_t at) {
  const bool behind = at > 0 && (line[at - 1] == '>' || line[at - 1] == '<');
  return behind || (at + 1 < line.size() && line[at + 1] == '>');
}

/// Calls `visit` with the place and length of each operator between commands: ; & && | || |&
void visit_operators(const std::string& line, const auto& visit) {
  const std::vector<Kind> kinds = kinds_of(line);
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (kinds[at] != Kind::kPlain || !std::string_view(";&|").contains(c)) continue;
    if (c == '&' && is_redirection(line, at)) continue;
    if (c == '|' && at > 0 && line[at - 1] == '>') continue;  // >| file
    std::size_t length = 1;
    while (at + length < line.size() && (line[at + length] == c || line[at + length] == '&') &&
           length < 2)
      ++length;
    visit(at, length);
    at += length - 1;
  }
}

}  // namespace

std::vector<ScriptLine> script_lines(const std::string& text) {
  std::string unix_text;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\r' || (at + 1 < text.size() && text[at + 1] != '\n')) unix_text += text[at];
  }
  return LineReader(std::move(unix_text)).read();
}

std::vector<ShellWord> placed_words(const std::string& line) {
  const std::vector<Kind> kinds = kinds_of(line);
  std::vector<ShellWord> words;
  bool started = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (kinds[at] == Kind::kPlain && is_blank(line[at])) {
      started = false;
      continue;
    }
    if (!started) {
      if (kinds[at] == Kind::kPlain && line[at] == '#') break;
      words.push_back({"", at, at});
      started = true;
    }
    if (kinds[at] != Kind::kMark) words.back().text += line[at];
    words.back().end = at + 1;
  }
  return words;
}

std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  for (ShellWord& word : placed_words(line)) words.push_back(std::move(word.text));
  return words;
}

std::vector<std::string> commands_of(const std::string& line) {
  std::vector<std::string> commands;
  std::size_t begin = 0;
  const auto add = [&](std::size_t end) {
    std::string command = trimmed(std::string_view(line).substr(begin, end - begin));
    if (!command.empty()) commands.push_back(std::move(command));
  };
  visit_operators(line, [&](std::size_t at, std::size_t length) {
    const bool joins = line[at] == '|' || (line[at] == '&' && length == 2);
    if (joins) return;
    add(at);
    begin = at + length;
  });
  add(line.size());
  return commands;
}

std::vector<std::size_t> starts_after_and(const std::string& line) {
  std::vector<std::size_t> starts;
  visit_operators(line, [&](std::size_t at, std::size_t length) {
    if (line[at] == '&' && length == 2) starts.push_back(at + length);
  });
  return starts;
}

bool needs_shell(const std::string& line) {
  const std::vector<Kind> kinds = kinds_of(line);
  for (std::size_t at = 0; at < line.size(); ++at) {
    const std::string_view special = kinds[at] == Kind::kPlain      ? "$`|;&<>*?~()[{\n"
                                     : kinds[at] == Kind::kExpanded ? "$`"
                                                                    : "";
    if (special.contains(line[at])) return true;
  }
  return false;
}

bool has_pipe(const std::string& line) {
  bool found = false;
  visit_operators(line, [&](std::size_t at, std::size_t length) {
    found = found || (line[at] == '|' && (length == 1 || line[at + 1] == '&'));
  });
  return found;
}

bool has_several_commands(const std::string& line) {
  bool found = false;
  visit_operators(line, [&](std::size_t, std::size_t) { found = true; });
  return found;
}

std::vector<std::string> variables_in(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find('$'); at != std::string::npos; at = text.find('$', at + 1)) {
    std::size_t begin = at + 1;
    if (begin < text.size() && text[begin] == '{') ++begin;
    std::size_t end = begin;
    while (end < text.size() && is_name(text[end])) ++end;
    if (end > begin) names.push_back(text.substr(begin, end - begin));
  }
  return names;
}

}  // namespace paceline::cli
