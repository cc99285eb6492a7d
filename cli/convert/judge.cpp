// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/judge.hpp"

#include <string>
#include <vector>

#include "common/command/command.hpp"
#include "common/command/mpirun_flags.hpp"
#include "operator/api/parse.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/api/validate.hpp"

namespace paceline::cli {
namespace {

/// The role whose first replica runs mpirun.
bool runs_mpirun(const api::TrainingJob& job, std::size_t index) {
  const auto& roles = job.spec.roles;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (roles[i].kind == contract::RoleKind::kLauncher) return i == index;
  }
  return contract::trains(roles[index].kind);
}

class CommandJudge {
 public:
  explicit CommandJudge(const api::TrainingJob& job) : job_(job) {
    for (const api::Role& role : job.spec.roles)
      trainers_ += contract::trains(role.kind) ? role.replicas : 0;
  }

  api::FieldErrors errors() && {
    for (std::size_t index = 0; index < job_.spec.roles.size(); ++index) check(index);
    return std::move(errors_);
  }

 private:
  void check(std::size_t index) {
    const api::Role& role = job_.spec.roles[index];
    const nlohmann::json* trainer = api::trainer_of(role);
    if (trainer == nullptr) return;
    std::vector<std::string> words = api::strings_of(*trainer, "command");
    const auto arguments = api::strings_of(*trainer, "args");
    // The operator's checks ask for a missing command.
    if (words.empty()) return;
    words.insert(words.end(), arguments.begin(), arguments.end());
    const std::string framework(api::to_string(job_.spec.framework.type));
    const bool passthrough = job_.spec.framework.launcher == api::FrameworkLauncher::kPassthrough;
    const frameworks::JobShape shape{framework, passthrough, trainers_,
                                     api::processes_of(job_.spec, role),
                                     contract::trains(role.kind)};
    const auto resolved =
        frameworks::resolve_command(words, shape, [](const std::string&) { return std::string(); });
    if (!resolved) {
      add(index, role, resolved.error().message);
    } else if (framework == "MPI" && !passthrough && runs_mpirun(job_, index)) {
      const Status ranks = frameworks::check_mpirun_ranks(words, api::world_size(job_.spec));
      if (!ranks) add(index, role, ranks.error().message);
    }
  }

  void add(std::size_t index, const api::Role& role, const std::string& message) {
    errors_.push_back({"spec.roles[" + std::to_string(index) + "].template.spec.containers[" +
                           std::to_string(api::trainer_index(role)) + "].command",
                       "", message, ""});
  }

  const api::TrainingJob& job_;
  int trainers_ = 0;
  api::FieldErrors errors_;
};

}  // namespace

api::FieldErrors judge(const Json& document) {
  const auto job = api::parse_training_job(nlohmann::json(document));
  if (!job) return job.error();
  api::FieldErrors errors = api::validate_for_cluster(*job);
  for (api::FieldError& error : CommandJudge(*job).errors()) errors.push_back(std::move(error));
  return errors;
}

}  // namespace paceline::cli
