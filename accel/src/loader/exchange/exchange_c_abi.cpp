// SPDX-License-Identifier: Apache-2.0
// The functions of loader.h. Each checks its arguments and makes one call; no exception leaves it.
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "loader/exchange/exchange.hpp"
#include "loader/source/digest.hpp"

namespace loader = paceline::loader;

struct paceline_loader {
  loader::Exchange exchange;
};

namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

int code_of(paceline::base::Wake wake) {
  if (wake == paceline::base::Wake::kRung) return PACELINE_OK;
  return wake == paceline::base::Wake::kTimeout ? PACELINE_LOADER_NOTHING
                                                : PACELINE_LOADER_INTERRUPTED;
}

bool has(const paceline_loader* instance, std::uint32_t worker) {
  return instance != nullptr && worker < instance->exchange.region().workers();
}

template <typename Open>
int made(paceline_loader** instance, const Open& open) {
  if (instance == nullptr) return PACELINE_EINVAL;
  try {
    int error = 0;
    std::unique_ptr<loader::Region> region = open(error);
    if (region == nullptr) {
      errno = error;
      return error == EINVAL ? PACELINE_EINVAL : PACELINE_ESYSTEM;
    }
    *instance = new paceline_loader{loader::Exchange(std::move(region))};
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return PACELINE_ESYSTEM;
  }
}

}  // namespace

extern "C" {

int paceline_loader_create(uint32_t workers, uint32_t slots, uint64_t slot_bytes,
                           struct paceline_loader** instance) {
  paceline::base::Fd file;
  return made(instance, [&](int& error) {
    return loader::Region::open(workers, slots, slot_bytes, file, error);
  });
}

int paceline_loader_create_with_file(uint32_t workers, uint32_t slots, uint64_t slot_bytes,
                                     int32_t* file, struct paceline_loader** instance) {
  if (file == nullptr) return PACELINE_EINVAL;
  paceline::base::Fd kept;
  const int code = made(instance, [&](int& error) {
    return loader::Region::open(workers, slots, slot_bytes, kept, error);
  });
  if (code == PACELINE_OK) *file = kept.release();
  return code;
}

int paceline_loader_attach(int32_t file, uint32_t workers, uint32_t slots, uint64_t slot_bytes,
                           struct paceline_loader** instance) {
  return made(instance, [&](int& error) {
    return loader::Region::attach(file, workers, slots, slot_bytes, error);
  });
}

void paceline_loader_destroy(struct paceline_loader* instance) { delete instance; }

void* paceline_loader_slot(const struct paceline_loader* instance, uint32_t worker, uint32_t slot) {
  if (!has(instance, worker) || slot >= instance->exchange.region().slots()) return nullptr;
  return instance->exchange.region().slot(worker, slot);
}

uint32_t* paceline_loader_word(const struct paceline_loader* instance) {
  return instance == nullptr ? nullptr : instance->exchange.region().word();
}

uint32_t paceline_loader_claim(struct paceline_loader* instance, uint32_t worker, uint64_t avoid) {
  return has(instance, worker) ? instance->exchange.claim(worker, avoid)
                               : PACELINE_LOADER_MAX_SLOTS;
}

int paceline_loader_release(struct paceline_loader* instance, uint32_t worker, uint32_t slot) {
  if (!has(instance, worker) || slot >= instance->exchange.region().slots()) return PACELINE_EINVAL;
  instance->exchange.release(worker, slot);
  return PACELINE_OK;
}

int paceline_loader_tell(struct paceline_loader* instance, uint32_t worker, const void* data,
                         uint64_t size) {
  if (!has(instance, worker) || data == nullptr) return PACELINE_EINVAL;
  try {
    instance->exchange.tell(worker, data, size);
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_loader_hear(struct paceline_loader* instance, uint32_t worker, int32_t timeout_ms,
                         const void** data, uint64_t* size) {
  if (!has(instance, worker) || data == nullptr || size == nullptr) return PACELINE_EINVAL;
  try {
    std::string* message = nullptr;
    const paceline::base::Wake wake =
        instance->exchange.hear(worker, timeout_ms * kMillisecond, message);
    if (wake == paceline::base::Wake::kRung) {
      *data = message->data();
      *size = message->size();
    }
    return code_of(wake);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_loader_answer(struct paceline_loader* instance, uint32_t worker, const void* data,
                           uint64_t size, int32_t timeout_ms, uint64_t* sent) {
  if (!has(instance, worker) || data == nullptr || sent == nullptr ||
      *sent > size + loader::kLengthBytes)
    return PACELINE_EINVAL;
  return code_of(instance->exchange.answer(worker, data, size, timeout_ms * kMillisecond, *sent));
}

int paceline_loader_collect(struct paceline_loader* instance, int32_t timeout_ms, uint32_t* worker,
                            const void** data, uint64_t* size) {
  if (instance == nullptr || worker == nullptr || data == nullptr || size == nullptr)
    return PACELINE_EINVAL;
  try {
    std::string* message = nullptr;
    const paceline::base::Wake wake =
        instance->exchange.collect(timeout_ms * kMillisecond, *worker, message);
    if (wake == paceline::base::Wake::kRung) {
      *data = message->data();
      *size = message->size();
    }
    return code_of(wake);
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

uint64_t paceline_loader_digest(const void* data, uint64_t size, uint64_t seed) {
  return data == nullptr && size > 0 ? 0 : loader::digest(data, size, seed);
}

}  // extern "C"
