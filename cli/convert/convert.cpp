// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/convert.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "cli/convert/environment.hpp"
#include "cli/convert/job.hpp"
#include "cli/convert/judge.hpp"
#include "cli/convert/kinds/job_set.hpp"
#include "cli/convert/kinds/kubeflow_job.hpp"
#include "cli/convert/kinds/mpi_job.hpp"
#include "cli/convert/kinds/train_job.hpp"
#include "cli/convert/kinds/volcano_job.hpp"
#include "cli/convert/slurm/sbatch.hpp"
#include "cli/convert/yaml_writer.hpp"
#include "cli/yaml/document.hpp"
#include "operator/api/field_error.hpp"

namespace paceline::cli {
namespace {

/// A document of the file and its own text.
struct Part {
  std::string text;
  int line = 1;
  std::optional<YamlDocument> document;  // none: only comments
};

/// The text between lines that begin with "---". In YAML such a line always ends a document.
std::vector<Part> split_documents(const std::string& text) {
  std::vector<Part> parts(1);
  int line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view row(text.data() + begin, end - begin);
    const bool marker =
        row.starts_with("---") &&
        (row.size() == 3 || row[3] == '\n' || row[3] == '\r' || row[3] == ' ' || row[3] == '\t');
    if (marker) parts.push_back({"", line, std::nullopt});
    // A line with the marker alone is written again between documents.
    if (!marker || row.find_first_not_of("-\r\n\t ") != std::string_view::npos)
      parts.back().text += row;
    else
      parts.back().text += "\n";
    begin = end;
  }
  return parts;
}

struct Kind {
  std::string group;  // of apiVersion, without the version
  std::string kind;
};

Kind kind_of(const Json& document) {
  const std::string version = text_of(member(&document, "apiVersion"));
  const std::size_t slash = version.find('/');
  return {slash == std::string::npos ? "" : version.substr(0, slash),
          text_of(member(&document, "kind"))};
}

/// The items of a List, as kubectl prints several objects; their fields keep their lines.
std::vector<Part> list_items(const Part& list) {
  std::vector<Part> items;
  const Json* values = member(&list.document->value, "items");
  for (std::size_t i = 0; values != nullptr && values->is_array() && i < values->size(); ++i) {
    YamlDocument item{list.document->line, (*values)[i], {}};
    const std::string prefix = "items[" + std::to_string(i) + "].";
    for (auto at = list.document->lines.lower_bound(prefix);
         at != list.document->lines.end() && at->first.starts_with(prefix); ++at)
      item.lines.emplace(at->first.substr(prefix.size()), at->second);
    const int line = line_of(item.lines, "kind");
    if (line != 0) item.line = line;
    std::string text = to_yaml(item.value);
    items.push_back({std::move(text), item.line, std::move(item)});
  }
  return items;
}

/// Puts the items of each List in its place.
std::vector<Part> without_lists(std::vector<Part> parts) {
  std::vector<Part> flat;
  for (Part& part : parts) {
    const bool list = part.document && text_of(member(&part.document->value, "kind")) == "List";
    std::vector<Part> items = list ? list_items(part) : std::vector<Part>{};
    if (items.empty()) items.push_back(std::move(part));
    for (Part& item : items) flat.push_back(std::move(item));
  }
  return flat;
}

bool is_runtime(const Json& document) {
  const auto [group, kind] = kind_of(document);
  return group == "trainer.kubeflow.org" &&
         (kind == "TrainingRuntime" || kind == "ClusterTrainingRuntime");
}

/// The job; nullopt if the document is of another kind.
std::optional<Result<NewJob>> convert_document(const Json& document,
                                               const std::vector<const Json*>& runtimes,
                                               Notes& notes) {
  const auto [group, kind] = kind_of(document);
  if (group == "kubeflow.org") {
    if (const KubeflowKind* known = kubeflow_kind(kind))
      return convert_kubeflow_job(*known, document, notes);
    if (kind == "MPIJob") return convert_mpi_job(document, notes);
  }
  if (group == "trainer.kubeflow.org" && kind == "TrainJob")
    return convert_train_job(document, runtimes, notes);
  if (group == "jobset.x-k8s.io" && kind == "JobSet") return convert_job_set(document, notes);
  if (group == "batch.volcano.sh" && kind == "Job") return convert_volcano_job(document, notes);
  return std::nullopt;
}

class ResultWriter {
 public:
  explicit ResultWriter(std::string name) : name_(std::move(name)) {}

  void add_job(const NewJob& job, const Part& part, Notes& notes) {
    const Json document = to_document(job);
    const api::FieldErrors errors = judge(document);
    std::string from = "an sbatch script";
    if (part.document)
      from = text_of(member(&part.document->value, "kind")) + " (" +
             text_of(member(&part.document->value, "apiVersion")) + ")";
    begin();
    result_.text += "# Converted from " + one_line(from) + " by paceline convert.\n";
    std::vector<std::pair<int, const Note*>> by_line;
    for (Note& note : notes.all()) {
      if (note.line == 0) note.line = line_in(part, note.path);
      by_line.emplace_back(note.line, &note);
    }
    // Notes on one line keep their order, which is that of their addresses.
    std::ranges::sort(by_line);
    for (const auto& [line, note] : by_line) add_note(line, note->text());
    for (const api::FieldError& error : errors)
      add_note(0, "to do: TrainingJob " + one_line(api::to_string(error)));
    result_.text += to_yaml(document);
    ++result_.jobs;
    if (!errors.empty() || std::ranges::any_of(notes.all(), &Note::to_do)) ++result_.incomplete;
  }

  /// A runtime is part of the jobs that name it.
  void add_runtime(const Part& part) {
    result_.notes.push_back(name_ + ":" + std::to_string(part.document->line) + ": " +
                            one_line(text_of(member(&part.document->value, "kind")) +
                                     " became part of the jobs that name it"));
  }

  void add_unchanged(const Part& part) {
    const auto [group, kind] = kind_of(part.document->value);
    begin();
    add_note(part.document->line, one_line((kind.empty() ? "a document without kind" : kind) +
                                           " is no job that is known: it stays unchanged"));
    const std::size_t first = part.text.find_first_not_of('\n');
    result_.text += part.text.substr(std::min(first, part.text.size()));
    if (!result_.text.ends_with('\n')) result_.text += '\n';
  }

  Conversion result() && { return std::move(result_); }

 private:
  static int line_in(const Part& part, const std::string& path) {
    if (!part.document) return part.line;
    const int line = line_of(part.document->lines, path);
    return line == 0 ? part.document->line : line;
  }

  void begin() {
    if (!result_.text.empty()) result_.text += "---\n";
  }

  /// `line`: 0 if the note is about the result.
  void add_note(int line, const std::string& text) {
    result_.notes.push_back(name_ + (line == 0 ? "" : ":" + std::to_string(line)) + ": " + text);
    result_.text += "# " + (line == 0 ? "" : "line " + std::to_string(line) + ": ") + text + "\n";
  }

  std::string name_;
  Conversion result_;
};

}  // namespace

Result<Conversion> convert(const std::string& name, const std::string& text) {
  const auto wrong = [&](int line, const std::string& what) {
    return fail(Code::kInvalid, Origin::kConfig, name + ":" + std::to_string(line) + ": " + what);
  };
  if (text.size() > kMostYamlBytes)
    return wrong(1, "the file is larger than 1 MiB; give jobs alone");
  if (is_sbatch(text)) {
    Notes notes;
    const auto job = convert_sbatch(text, notes);
    if (!job) return wrong(1, one_line(job.error().message));
    ResultWriter writer(name);
    writer.add_job(*job, Part{}, notes);
    return std::move(writer).result();
  }
  std::vector<Part> parts = split_documents(text);
  YamlReader reader(name);
  for (Part& part : parts) {
    auto documents = reader.read(part.text, part.line);
    if (!documents) return std::unexpected(documents.error());
    if (!documents->empty()) part.document = std::move(documents->front());
  }
  parts = without_lists(std::move(parts));
  std::vector<const Json*> runtimes;
  for (const Part& part : parts) {
    if (part.document && is_runtime(part.document->value))
      runtimes.push_back(&part.document->value);
  }
  ResultWriter writer(name);
  for (const Part& part : parts) {
    if (!part.document) continue;
    Notes notes;
    auto job = convert_document(part.document->value, runtimes, notes);
    if (job && !*job) return wrong(part.document->line, one_line(job->error().message));
    if (job) {
      leave_out_variables(**job, notes);
      note_kueue(**job, notes);
      writer.add_job(**job, part, notes);
    } else if (is_runtime(part.document->value)) {
      writer.add_runtime(part);
    } else {
      writer.add_unchanged(part);
    }
  }
  Conversion result = std::move(writer).result();
  if (result.jobs == 0)
    return wrong(1,
                 "the file holds no job that is known; `paceline convert --help` names the kinds");
  return result;
}

}  // namespace paceline::cli
