// SPDX-License-Identifier: Apache-2.0
// The functions of copier.h. Each checks its arguments and makes one call; no exception leaves it.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>

#include "loader/exchange/copier.hpp"
#include "paceline/copier.h"

struct paceline_copier {
  paceline::loader::Copier it;
  pid_t owner = ::getpid();
};

namespace {

bool in_its_process(const paceline_copier* copier) {
  return copier != nullptr && copier->owner == ::getpid();
}

}  // namespace

extern "C" {

int paceline_copier_create(struct paceline_copier** copier) {
  if (copier == nullptr) return PACELINE_EINVAL;
  try {
    *copier = new paceline_copier;
    return PACELINE_OK;
  } catch (const std::system_error& error) {
    errno = error.code().value();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return PACELINE_ESYSTEM;
}

void paceline_copier_destroy(struct paceline_copier* copier) {
  if (in_its_process(copier)) delete copier;
}

int paceline_copier_begin(struct paceline_copier* copier, void* target, const void* source,
                          uint64_t size, uint64_t* copy) {
  if (!in_its_process(copier) || target == nullptr || source == nullptr || copy == nullptr)
    return PACELINE_EINVAL;
  try {
    *copy = copier->it.begin(target, source, size);
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return PACELINE_ESYSTEM;
  }
}

int paceline_copier_wait(struct paceline_copier* copier, uint64_t copy, int32_t timeout_ms) {
  if (!in_its_process(copier)) return PACELINE_EINVAL;
  return copier->it.wait(copy, std::chrono::milliseconds(timeout_ms)) ? PACELINE_OK
                                                                      : PACELINE_COPIER_NOT_YET;
}

}  // extern "C"
