// SPDX-License-Identifier: Apache-2.0
#include "cli/report/write.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/report/page.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/facts.hpp"

namespace paceline::cli {

Status check_report_name(const std::string& path) {
  if (path.ends_with(".html") || path.ends_with(".json")) return {};
  return fail(Code::kInvalid, Origin::kConfig,
              "\"" + path + "\": a report's file ends in .html or .json");
}

Status write_report(const std::string& path, const nlohmann::json& document, WallTime now) {
  if (auto known = check_report_name(path); !known) return known;
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file << (path.ends_with(".json") ? dump(document) : report_page(read_facts(document), now));
    file.flush();
    if (!file) {
      const int error = errno;
      std::error_code ignored;
      std::filesystem::remove(fresh, ignored);
      return fail_errno("write " + path, error);
    }
  }
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  return error ? fail_errno("write " + path, error.value()) : Status{};
}

}  // namespace paceline::cli
