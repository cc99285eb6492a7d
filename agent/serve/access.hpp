// SPDX-License-Identifier: Apache-2.0
// Who may read what this node's agent knows: whoever shows a token that was issued for the agents
// (TokenReview with an audience, so that a token stolen from us serves nowhere else) and may `get`
// the NodeFabric of this node (SubjectAccessReview). Who may have its links measured: whoever may
// `create` the `links` of that NodeFabric. The API server decides all; we keep no list of our own.
//
// Borrows what it is given. Thread-safe. Answers are kept for a minute, at most `max_kept` of them;
// a flood of new tokens is refused (kExhausted) before it becomes a flood of questions to the API
// server. Another Error says that the API server could not be asked: nobody is let in.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::agent {

enum class Access { kGranted, kUnknown, kDenied };
enum class Wish { kRead, kMeasure };

struct Visitor {
  Access access = Access::kUnknown;
  std::string name = {};  // where it is granted: "node NAME" of a pod's token, else the account
};

struct AccessOptions {
  std::string node_name;
  std::string audience = "paceline-agent";
  std::chrono::milliseconds keep{60000};
  std::chrono::milliseconds keep_refusals{10000};
  std::size_t max_kept = 256;
  std::size_t max_questions_per_second = 10;
};

class AccessReview {
 public:
  AccessReview(kube::Api& api, const Clock& clock, AccessOptions options);
  Result<Visitor> review(const std::string& token, Wish wish = Wish::kRead);

 private:
  struct Kept {
    Visitor visitor;
    SteadyTime until;
  };
  Result<Visitor> ask(const std::string& token, Wish wish);
  Status count_question();

  kube::Api& api_;
  const Clock& clock_;
  const AccessOptions options_;
  std::mutex mutex_;
  std::map<std::string, Kept> kept_;
  SteadyTime second_began_;
  std::size_t questions_ = 0;
};

}  // namespace paceline::agent
