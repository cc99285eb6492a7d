// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/command.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <ostream>

#include "cli/convert/convert.hpp"
#include "cli/yaml/document.hpp"

namespace paceline::cli {

int convert_command(const ConvertOptions& options, std::ostream& out, std::ostream& err) {
  constexpr int kExitIncomplete = 1;
  constexpr int kExitInput = 2;
  const auto text = read_yaml_file(options.file);
  if (!text) {
    err << "paceline convert: " << text.error().message << "\n";
    return kExitInput;
  }
  const auto conversion = convert(options.file, *text);
  if (!conversion) {
    err << conversion.error().message << "\n";
    return kExitInput;
  }
  for (const std::string& note : conversion->notes) err << note << "\n";
  if (options.output.empty()) {
    out << conversion->text;
  } else {
    errno = 0;
    std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
    file << conversion->text;
    file.close();
    if (!file) {
      err << "paceline convert: cannot write " << options.output << ": " << std::strerror(errno)
          << "; name a file in a writable folder\n";
      return kExitInput;
    }
  }
  return conversion->incomplete == 0 ? 0 : kExitIncomplete;
}

}  // namespace paceline::cli
