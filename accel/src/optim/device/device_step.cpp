// SPDX-License-Identifier: Apache-2.0
#include "device_step.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../../cuda/kernel_set.hpp"

namespace paceline::optim::device {
namespace {

enum Function : std::size_t { kNorm, kLayers, kUpdate };

constexpr std::uint64_t kAlignment = 256;

cuda::KernelSet& kernel_set() {
  static cuda::KernelSet set(
      "optim", {"paceline_optim_norm", "paceline_optim_layers", "paceline_optim_update"});
  return set;
}

std::uint64_t aligned_up(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Int64 chunks_of(const Tensor& tensor) {
  return tensor.count / kChunk + (tensor.count % kChunk != 0 ? 1 : 0);
}

std::uint8_t state_dtype(const Tensor& tensor) {
  if ((tensor.flags & PACELINE_OPTIM_STATE_AS_PARAM) != 0) return tensor.param_dtype;
  return PACELINE_OPTIM_F32;
}

// Returns whether every array of the tensor, except the gradient, can be read four elements at a
// time.
bool aligned(const Tensor& tensor) {
  const auto at = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  const std::uintptr_t floats =
      at(tensor.state1) | at(tensor.state2) | at(tensor.state3) | at(tensor.master);
  return floats % (state_dtype(tensor) == PACELINE_OPTIM_F32 ? 16 : 8) == 0 &&
         at(tensor.param) % (tensor.param_dtype == PACELINE_OPTIM_F32 ? 16 : 8) == 0;
}

DeviceGroup device_group(const Group& group, const float* device_lr) {
  return {group.kind,
          group.flags,
          group.lr,
          group.beta1,
          group.beta2,
          group.eps,
          group.weight_decay,
          group.momentum,
          group.dampening,
          group.trust_coefficient,
          group.grad_multiplier,
          device_lr};
}

// A range of tensors for one launch: as many as the parameters of a launch hold, all with groups of
// one window.
struct Stretch {
  std::size_t first_tensor = 0;
  std::size_t tensor_count = 0;
  std::size_t first_group = 0;
  Int64 first_chunk = 0;
  Int64 chunk_count = 0;
  bool has_layers = false;
};

std::vector<Stretch> stretches_of(std::span<const Group> groups, std::span<const Tensor> tensors) {
  std::vector<Stretch> all;
  Int64 chunk = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t window = tensors[i].group / kGroupsPerLaunch * kGroupsPerLaunch;
    // A grid has at most 2^31 - 1 blocks.
    const auto fits = [&](const Stretch& one) {
      return one.tensor_count < kTensorsPerLaunch && one.first_group == window &&
             one.chunk_count + chunks_of(tensors[i]) <= 0x7fffffff;
    };
    if (all.empty() || !fits(all.back())) all.push_back({i, 0, window, chunk, 0, false});
    Stretch& last = all.back();
    ++last.tensor_count;
    last.chunk_count += chunks_of(tensors[i]);
    chunk += chunks_of(tensors[i]);
    const std::uint32_t kind = groups[tensors[i].group].kind;
    last.has_layers = last.has_layers || kind == PACELINE_OPTIM_LAMB || kind == PACELINE_OPTIM_LARS;
  }
  return all;
}

int check_call(const paceline_optim_device_call& call) {
  if (call.size != sizeof call || !cuda::KernelSet::is_device(call.device)) return PACELINE_EINVAL;
  if ((call.group_count > 0 && call.groups == nullptr) ||
      (call.tensor_count > 0 && call.tensors == nullptr))
    return PACELINE_EINVAL;
  if (call.tensor_count > 0 && (call.grads == nullptr || call.table == nullptr))
    return PACELINE_EINVAL;
  if (reinterpret_cast<std::uintptr_t>(call.table) % kAlignment != 0) return PACELINE_EINVAL;
  return call.max_grad_norm >= 0 ? PACELINE_OK : PACELINE_EINVAL;
}

class Step {
 public:
  Step(const paceline_optim_device_call& call, const cuda::Kernels& kernels,
       std::span<const Group> groups, std::span<const Tensor> tensors, const Layout& layout)
      : call_(call),
        kernels_(kernels),
        groups_(groups),
        tensors_(tensors),
        stretches_(stretches_of(groups, tensors)) {
    auto* table = static_cast<std::byte*>(call.table);
    launch_.control = reinterpret_cast<DeviceControl*>(table);
    launch_.states = reinterpret_cast<DeviceState*>(table + layout.states);
    launch_.tensors = reinterpret_cast<const DeviceTensor*>(table + layout.tensors);
    launch_.chunks = reinterpret_cast<const DeviceChunk*>(table + layout.chunks);
    launch_.sums = reinterpret_cast<double*>(table + layout.sums);
    launch_.grad_scale = call.grad_scale;
    launch_.found_inf = call.found_inf;
    launch_.found_inf_out = call.found_inf_out;
    launch_.norm_out = call.norm_out;
    launch_.max_norm = call.max_grad_norm;
    launch_.all_chunks = layout.chunk_count;
    launch_.flags = (call.flags & PACELINE_OPTIM_SKIP_NOT_FINITE) != 0 ? kSkipNotFinite : 0;
    const bool asked =
        call.norm_out != nullptr || call.found_inf_out != nullptr || launch_.flags != 0;
    launch_.has_norm = call.max_grad_norm > 0 || asked ? 1 : 0;
  }

  int run() {
    bool norm_done = launch_.has_norm == 0;
    for (const Stretch& stretch : stretches_) {
      // If the table has no elements, the first launch reports that the norm is 0.
      if (norm_done || (stretch.chunk_count == 0 && launch_.all_chunks > 0)) continue;
      if (const int wrong = launch(kNorm, stretch); wrong != PACELINE_OK) return wrong;
      norm_done = launch_.all_chunks == 0;
    }
    for (const Stretch& stretch : stretches_) {
      if (!stretch.has_layers || stretch.chunk_count == 0) continue;
      if (const int wrong = launch(kLayers, stretch); wrong != PACELINE_OK) return wrong;
    }
    for (const Stretch& stretch : stretches_)
      if (const int wrong = launch(kUpdate, stretch); wrong != PACELINE_OK) return wrong;
    return PACELINE_OK;
  }

 private:
  int launch(Function function, const Stretch& stretch) {
    launch_.first_chunk = stretch.first_chunk;
    launch_.chunk_count = static_cast<Bits32>(stretch.chunk_count);
    launch_.first_tensor = static_cast<Bits32>(stretch.first_tensor);
    launch_.tensor_count = static_cast<Bits32>(stretch.tensor_count);
    launch_.first_group = static_cast<Bits32>(stretch.first_group);
    const std::size_t groups =
        std::min<std::size_t>(kGroupsPerLaunch, groups_.size() - stretch.first_group);
    for (std::size_t i = 0; i < groups; ++i) {
      const std::size_t group = stretch.first_group + i;
      launch_.groups[i] =
          device_group(groups_[group], call_.group_lr != nullptr ? call_.group_lr[group] : nullptr);
    }
    std::copy_n(call_.grads + stretch.first_tensor, stretch.tensor_count, launch_.grads);
    const auto blocks = static_cast<unsigned>(std::max<Int64>(1, stretch.chunk_count));
    if (kernels_.launch(function, blocks, kThreads, call_.stream, &launch_) != cuda::kSuccess)
      return begun_ ? PACELINE_EPARTIAL : PACELINE_EDEVICE;
    begun_ = begun_ || function != kNorm;
    return PACELINE_OK;
  }

  const paceline_optim_device_call& call_;
  const cuda::Kernels& kernels_;
  std::span<const Group> groups_;
  std::span<const Tensor> tensors_;
  std::vector<Stretch> stretches_;
  Launch launch_{};
  bool begun_ = false;  // a launch that writes to the tensors was made
};

}  // namespace

Layout::Layout(std::span<const Tensor> tensors_of_table) {
  for (const Tensor& tensor : tensors_of_table) chunk_count += chunks_of(tensor);
  const auto chunk_number = static_cast<std::uint64_t>(chunk_count);
  states = aligned_up(sizeof(DeviceControl));
  tensors = aligned_up(states + tensors_of_table.size() * sizeof(DeviceState));
  chunks = aligned_up(tensors + tensors_of_table.size() * sizeof(DeviceTensor));
  sums = aligned_up(chunks + chunk_number * sizeof(DeviceChunk));
  end = sums + chunk_number * 2 * sizeof(double);
}

std::string open(int device, const std::string& folder) {
  return kernel_set().open(device, folder);
}

int make_image(std::span<const Group> groups, std::span<const Tensor> tensors, const Layout& layout,
               void* image) {
  if (const int wrong = check(groups, tensors, false); wrong != PACELINE_OK) return wrong;
  if (tensors.size() > 0xffffffffU) return PACELINE_EINVAL;
  if (image == nullptr) return PACELINE_OK;
  auto* bytes = static_cast<std::byte*>(image);
  std::memset(bytes, 0, static_cast<std::size_t>(layout.sums));
  auto* states = reinterpret_cast<DeviceState*>(bytes + layout.states);
  auto* rows = reinterpret_cast<DeviceTensor*>(bytes + layout.tensors);
  auto* chunk = reinterpret_cast<DeviceChunk*>(bytes + layout.chunks);
  Int64 number = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    states[i].started = (tensor.flags & PACELINE_OPTIM_FIRST) != 0 ? 0 : 1;
    rows[i] = {tensor.param,       tensor.state1,
               tensor.state2,      tensor.state3,
               tensor.master,      tensor.step,
               tensor.count,       number,
               tensor.group,       tensor.param_dtype,
               tensor.grad_dtype,  static_cast<unsigned char>(aligned(tensor) ? 1 : 0),
               state_dtype(tensor)};
    number += chunks_of(tensor);
    for (std::int64_t begin = 0; begin < tensor.count; begin += kChunk)
      *chunk++ = {begin, static_cast<Bits32>(i),
                  static_cast<Bits32>(std::min<std::int64_t>(kChunk, tensor.count - begin))};
  }
  return PACELINE_OK;
}

int step(const paceline_optim_device_call& call) {
  if (const int wrong = check_call(call); wrong != PACELINE_OK) return wrong;
  const cuda::Kernels* const kernels = kernel_set().on(call.device);
  if (kernels == nullptr) return PACELINE_EDEVICE;
  const std::span<const Group> groups{call.groups, call.group_count};
  const std::span<const Tensor> tensors{call.tensors, static_cast<std::size_t>(call.tensor_count)};
  if (const int wrong = check(groups, tensors, false); wrong != PACELINE_OK) return wrong;
  const Layout layout(tensors);
  if (call.table_bytes < layout.end) return PACELINE_EINVAL;
  return Step(call, *kernels, groups, tensors, layout).run();
}

}  // namespace paceline::optim::device
