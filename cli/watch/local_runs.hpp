// SPDX-License-Identifier: Apache-2.0
// The runs of `paceline run` on this machine. A live run leaves a note in its state directory:
// where its launchers answer, and the token that they ask for, for this user alone. A run that has
// ended leaves its document in the user's cache, the last one of each name.
//
// Plain functions. Folders of other users and notes of dead processes are passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"

namespace paceline::cli {

struct LocalNote {
  int pid = 0;                       // of `paceline run`
  std::vector<std::uint16_t> ports;  // of the launchers, on 127.0.0.1, by node rank
  std::string token;
  std::string launcher;     // its program
  nlohmann::json document;  // run_document()
  std::string path{};       // of a note that was found
};

/// Writes the note of this process's run, readable by its user alone.
Status write_note(const std::string& state_dir, const LocalNote& note);

/// $TMPDIR, or /tmp: the folder of the state directories.
std::string state_base();

/// The runs of this user that live, by the notes below `base`, oldest first.
std::vector<LocalNote> live_runs(const std::string& base);

/// The run of that name that lives; the only one for "". Failure: there is none, or there are
/// several; the message names them.
Result<LocalNote> find_local_run(const std::string& base, const std::string& name);

/// The note's document, with the launcher's summary if it answers.
nlohmann::json ask_run(const LocalNote& note, const std::stop_token& stop);

/// $XDG_CACHE_HOME/paceline/runs, or the same below ~/.cache; "" if neither is known.
std::string kept_folder();

/// Keeps the document of a run that has ended, and removes the oldest above 100.
Status keep_run(const std::string& folder, const nlohmann::json& document);

/// The last document of that name; kNotFound if none is kept.
Result<nlohmann::json> kept_run(const std::string& folder, const std::string& name);

/// A document from a state directory. Failure: the folder or the file is another user's, or others
/// can have written it.
Result<nlohmann::json> read_own_document(const std::string& state_dir, const std::string& name);

/// A document from a file.
Result<nlohmann::json> read_document(const std::string& path);

}  // namespace paceline::cli
