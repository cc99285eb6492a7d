// SPDX-License-Identifier: Apache-2.0
// One function for each framework: it sets the variables that the framework, or its kept launcher
// in passthrough mode, reads. compose_environment calls it after the part that all frameworks
// share (RANK, WORLD_SIZE, MASTER_ADDR, …). Pure. docs/reference/frameworks.md lists the variables.
#pragma once

#include "launcher/frameworks/process.hpp"
#include "launcher/frameworks/variables.hpp"

namespace paceline::frameworks {

void set_byteps(const Process& process, Variables& variables);
void set_deepspeed(const Process& process, Variables& variables);
/// The ranks meet at a store of rank 0's launcher (launcher/horovod_store.hpp).
void set_horovod(const Process& process, Variables& variables);
/// What Horovod calls the pod. Processes with the same name are on one machine to it.
std::string horovod_host(const rendezvous::Node& node);
void set_jax(const Process& process, Variables& variables);
void set_mindspore(const Process& process, Variables& variables);
/// A second role of workers in a job with parameter servers whose name begins with "heter" holds
/// Paddle's heterogeneous trainers.
void set_paddle(const Process& process, Variables& variables);
void set_pytorch(const Process& process, Variables& variables);
void set_tensorflow(const Process& process, Variables& variables);
void set_xgboost(const Process& process, Variables& variables);

}  // namespace paceline::frameworks
