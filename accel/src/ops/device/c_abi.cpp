// SPDX-License-Identifier: Apache-2.0
// The functions of ops_device.h. Each checks its arguments and makes one call; no exception leaves
// it. Arrays are on the device, so what they hold is not checked here.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <string>

#include "../../cuda/reason.hpp"
#include "../checks.hpp"
#include "device_ops.hpp"
#include "launches.hpp"

namespace device = paceline::ops::device;

namespace {

constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

bool is_panel(const void* address) {
  return address != nullptr && reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

bool are_panels(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(), is_panel);
}

bool is_good(const paceline_attention& all) {
  if (all.size != sizeof all || all.type > PACELINE_ATTENTION_BF16) return false;
  if (all.windows < 1 || all.masks < 1 || all.windows % all.masks != 0 ||
      all.windows > kMostBlocks || (all.mask == nullptr && all.masks != 1))
    return false;
  if (all.tokens < 1 || all.tokens > PACELINE_ATTENTION_MOST_TOKENS || all.heads < 1 ||
      all.heads > 0xffff || all.entries < 1 || all.entries > kMostBlocks / all.heads ||
      all.slots < 1 || all.slots > all.windows || all.slots > kMostBlocks / all.heads)
    return false;
  return all.window_stride % 8 == 0 && all.token_stride % 8 == 0 &&
         are_panels({all.q, all.k, all.v}) && all.table != nullptr && all.index != nullptr;
}

}  // namespace

extern "C" {

int paceline_ops_device_open(int32_t number, const char* folder, char* why, uint64_t why_bytes) {
  if (folder == nullptr) return PACELINE_EINVAL;
  try {
    const std::string problem = device::open(number, folder);
    return paceline::cuda::tell(problem, why, why_bytes) ? PACELINE_OK : PACELINE_EDEVICE;
  } catch (const std::exception&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_fcos3d_targets_device(const struct paceline_fcos3d* targets, int32_t number,
                                   void* stream) {
  if (targets == nullptr || !paceline::ops::is_good(*targets) ||
      targets->levels > device::kLevelsPerLaunch)
    return PACELINE_EINVAL;
  std::int64_t rows = 0;
  for (std::uint32_t i = 0; i < targets->levels; ++i) rows += targets->level[i].count;
  if (rows > kMostBlocks) return PACELINE_EINVAL;
  return device::fcos3d_targets(*targets, number, stream);
}

int paceline_simota_assign_device(const struct paceline_simota* assignment, void* room,
                                  int32_t number, void* stream) {
  if (assignment == nullptr || !paceline::ops::is_good(*assignment)) return PACELINE_EINVAL;
  const bool any = assignment->images > 0 && assignment->priors > 0;
  // Blocks of a launch, and numbers of rows.
  if (any && (room == nullptr || assignment->priors > kMostBlocks / 32)) return PACELINE_EINVAL;
  return device::simota_assign(*assignment, room, number, stream);
}

int paceline_attention_forward(const struct paceline_attention* attention, int32_t number,
                               void* stream) {
  if (attention == nullptr || !is_good(*attention) || !is_panel(attention->out))
    return PACELINE_EINVAL;
  return device::attention_forward(*attention, number, stream);
}

int paceline_attention_backward(const struct paceline_attention* attention, int32_t number,
                                void* stream) {
  if (attention == nullptr || !is_good(*attention) ||
      !are_panels({attention->out_grad, attention->q_grad, attention->k_grad, attention->v_grad}) ||
      attention->table_grad == nullptr || attention->sums == nullptr)
    return PACELINE_EINVAL;
  return device::attention_backward(*attention, number, stream);
}

}  // extern "C"
