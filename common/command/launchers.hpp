// SPDX-License-Identifier: Apache-2.0
// The launchers of frameworks besides torchrun: what they are called, which frameworks they start,
// and what each option means for a job. Constants and pure functions.
//
// Options are those of DeepSpeed 0.19, PaddlePaddle 3.3, MindSpore 2.10, Accelerate 1.15, BytePS
// 0.2 and Horovod 0.28. An unknown option is an error: if Paceline guessed whether it takes a
// value, that value could be taken for the script.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::frameworks {

/// What an option says about the job.
enum class Meaning {
  kReplaced,   // the job's own fields decide
  kNodes,      // must be the number of replicas
  kProcesses,  // must be the processes of one replica
  kWorld,      // must be the processes of all replicas
  kHosts,      // chooses hosts, which the job does
  kSettings,   // changes the training, so it cannot be dropped
  kElastic,    // lets the number of ranks change
  kMpi,        // starts the ranks by MPI
  kModule,     // the rest is a module
  kProgram,    // the rest is a program of its own, not a Python script
  kNoLocalRank
};

struct LauncherOption {
  std::string_view names;  // without leading dashes, '-' written as '_', separated by spaces
  Meaning meaning = Meaning::kReplaced;
  bool value = true;  // false: a switch
};

/// How the rest of the command is started.
enum class Rest {
  kScript,          // by the interpreter
  kScriptByEnding,  // by the interpreter if it ends in .py
  kScriptOrPython,  // as it is if it begins with python or pytest, otherwise by the interpreter
  kProgram,         // as it is
  kCommand          // as it is; the launcher itself has no options
};

struct LauncherCommand {
  std::string_view name;      // for messages
  std::string_view programs;  // names of its console scripts, separated by spaces
  std::string_view modules;   // what `python -m` starts it with
  std::string_view first;     // the word that must follow: "launch" of `accelerate launch`
  std::string_view frameworks;
  std::span<const LauncherOption> options;
  std::string_view settings_prefixes;  // options that begin so are Meaning::kSettings with a value
  Rest rest = Rest::kScript;
  bool passes_local_rank = false;  // the script gets --local_rank=N as its first argument
  std::string_view settings_by = "the script or its configuration";  // where settings go instead
};

/// Null if `program` (without its folder) or `module` starts none of them.
const LauncherCommand* launcher_of_program(std::string_view program);
const LauncherCommand* launcher_of_module(std::string_view module);

/// Whether `word` is one of the words of `list`, which spaces separate.
bool is_among(std::string_view list, std::string_view word);

struct ParsedLauncher {
  struct Option {
    std::string name;  // as written
    std::string value;
    Meaning meaning = Meaning::kReplaced;
  };
  std::vector<Option> options;
  std::vector<std::string> rest;
};

/// `arguments`: everything after the launcher's name.
Result<ParsedLauncher> parse_launcher(const LauncherCommand& launcher,
                                      std::span<const std::string> arguments);

}  // namespace paceline::frameworks
