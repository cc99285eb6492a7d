// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/started_by.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "cli/convert/fields.hpp"

namespace paceline::cli {
namespace {

struct Launcher {
  std::string_view program;
  std::string_view framework;
};
constexpr std::array kLaunchers{
    Launcher{"torchrun", "PyTorch"},
    Launcher{"torch.distributed.run", "PyTorch"},
    Launcher{"torch.distributed.launch", "PyTorch"},
    Launcher{"accelerate", "PyTorch"},
    Launcher{"tune", "PyTorch"},
    Launcher{"deepspeed", "DeepSpeed"},
    Launcher{"horovodrun", "Horovod"},
    Launcher{"mpirun", "MPI"},
    Launcher{"mpiexec", "MPI"},
    Launcher{"mpiexec.hydra", "MPI"},
    Launcher{"paddle.distributed.launch", "PaddlePaddle"},
    Launcher{"fleetrun", "PaddlePaddle"},
    Launcher{"msrun", "MindSpore"},
    Launcher{"bpslaunch", "BytePS"},
};

constexpr std::array<std::string_view, 5> kProcessFlags{
    "--nproc_per_node", "--nproc-per-node", "--num_processes", "--num_gpus", "--local_worker_num"};

/// Values of these flags that mean one process for each device.
constexpr std::array<std::string_view, 4> kDevices{"auto", "gpu", "cpu", "xpu"};

constexpr std::array<std::string_view, 5> kShells{"sh", "bash", "dash", "ash", "zsh"};

std::optional<std::int64_t> positive_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

/// Words of a script, without quotes and the signs that join commands.
std::vector<std::string> split_script(const std::string& script) {
  std::vector<std::string> words(1);
  for (const char c : script) {
    if (std::string_view(" \t\n\\;&|()\"'`").find(c) != std::string_view::npos) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::vector<std::string> flat(const std::vector<std::string>& words, bool& shell) {
  shell = !words.empty() && std::ranges::find(kShells, base_name(words[0])) != kShells.end() &&
          std::ranges::any_of(words, [](const std::string& word) {
            return word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
          });
  std::vector<std::string> all;
  for (const std::string& word : words) {
    if (shell) {
      for (std::string& part : split_script(word)) all.push_back(std::move(part));
    } else {
      all.push_back(word);
    }
  }
  return all;
}

}  // namespace

StartedBy started_by(const std::vector<std::string>& words) {
  StartedBy found;
  const std::vector<std::string> all = flat(words, found.shell);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string name = base_name(all[i]);
    if (found.launcher.empty()) {
      // A launcher is the program or a module; deeper in the command, its name may be an argument.
      const bool program = i == 0 || found.shell || all[i - 1] == "-m";
      const auto* const launcher = std::ranges::find(kLaunchers, name, &Launcher::program);
      if (program && launcher != kLaunchers.end()) {
        found.launcher = name;
        found.framework = launcher->framework;
      }
    }
    for (const std::string_view flag : kProcessFlags) {
      if (found.launcher.empty() || found.processes || !all[i].starts_with(flag)) continue;
      std::string_view value;
      if (all[i].size() == flag.size() && i + 1 < all.size()) {
        value = all[i + 1];
      } else if (all[i].size() > flag.size() && all[i][flag.size()] == '=') {
        value = std::string_view(all[i]).substr(flag.size() + 1);
      }
      found.processes = positive_number(value);
      found.counts_devices =
          found.counts_devices || std::ranges::find(kDevices, value) != kDevices.end();
    }
  }
  return found;
}

std::vector<std::string> words_of(const Json& container) {
  std::vector<std::string> words = texts_of(member(&container, "command"));
  for (std::string& word : texts_of(member(&container, "args"))) words.push_back(std::move(word));
  return words;
}

StartedBy started_by(const Json& container) { return started_by(words_of(container)); }

bool starts_sshd(const std::vector<std::string>& words) {
  bool shell = false;
  const std::vector<std::string> all = flat(words, shell);
  if (!started_by(words).launcher.empty()) return false;
  return std::ranges::any_of(all, [&](const std::string& word) {
    return base_name(word) == "sshd" && (shell || &word == all.data());
  });
}

}  // namespace paceline::cli
