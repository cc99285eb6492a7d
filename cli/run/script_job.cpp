// SPDX-License-Identifier: Apache-2.0
#include "cli/run/script_job.hpp"

#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

namespace paceline::cli {
namespace {

using nlohmann::json;

// What a launcher tells the ranks of a group. A script that is started alone has none of it:
// Transformers and Lightning would make a process group of one rank. RANK stays, since the runtime
// reads it.
constexpr std::array<std::string_view, 13> kOfGroups{"WORLD_SIZE",
                                                     "LOCAL_RANK",
                                                     "LOCAL_WORLD_SIZE",
                                                     "GROUP_RANK",
                                                     "GROUP_WORLD_SIZE",
                                                     "ROLE_NAME",
                                                     "ROLE_RANK",
                                                     "ROLE_WORLD_SIZE",
                                                     "TORCHELASTIC_RESTART_COUNT",
                                                     "TORCHELASTIC_MAX_RESTARTS",
                                                     "TORCHELASTIC_RUN_ID",
                                                     "MASTER_ADDR",
                                                     "MASTER_PORT"};

/// A name that the API server would take: "Train GPT.py" becomes "train-gpt".
std::string name_of(const std::string& program) {
  constexpr std::size_t kLongest = 40;
  std::string name;
  for (const char c : std::filesystem::path(program).stem().string()) {
    const auto letter = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(letter) != 0 && letter < 128;
    if (plain) name += static_cast<char>(std::tolower(letter));
    if (!plain && !name.empty() && name.back() != '-') name += '-';
  }
  name = name.substr(0, kLongest);
  while (name.ends_with('-')) name.pop_back();
  return name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0 ? "job" + name
                                                                                     : name;
}

/// So that the word stays as it is: $(NAME) in a command stands for a variable.
std::string escaped(const std::string& word) {
  std::string text;
  for (const char c : word) text += c == '$' ? "$$" : std::string(1, c);
  return text;
}

}  // namespace

JobFile job_of_script(const ScriptOptions& options) {
  const std::string& program = options.command.front();
  const bool script = program.ends_with(".py");
  const bool python = std::filesystem::path(program).filename().string().starts_with("python");
  json command = json::array();
  if ((script || python) && options.processes == 1) {
    command.push_back("env");
    for (const std::string_view name : kOfGroups) {
      command.push_back("-u");
      command.push_back(name);
    }
  }
  if (script) command.push_back("python3");
  for (const std::string& word : options.command) command.push_back(escaped(word));

  json acceleration = json::object();
  if (!options.numerics.empty()) acceleration["numerics"] = options.numerics;
  const json trainer{{"name", "trainer"}, {"command", std::move(command)}};
  const json role{{"name", "worker"},
                  {"replicas", 1},
                  {"template", {{"spec", {{"containers", json::array({trainer})}}}}}};
  return {"paceline run",
          {{"apiVersion", "paceline.dev/v1alpha1"},
           {"kind", "TrainingJob"},
           {"metadata", {{"name", name_of(program)}}},
           {"spec",
            {{"framework", {{"type", "PyTorch"}, {"processesPerReplica", options.processes}}},
             {"acceleration", std::move(acceleration)},
             {"failurePolicy", {{"maxRestarts", 0}}},
             {"roles", json::array({role})}}}},
          {}};
}

}  // namespace paceline::cli
