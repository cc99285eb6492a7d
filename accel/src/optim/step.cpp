// SPDX-License-Identifier: Apache-2.0
#include "step.hpp"

#include <array>
#include <cmath>
#include <vector>

#include "base/parallel.hpp"
#include "chunks.hpp"

namespace paceline::optim {
namespace {

using std::int64_t;

static_assert(kAdam == PACELINE_OPTIM_ADAM && kSgd == PACELINE_OPTIM_SGD &&
              kLamb == PACELINE_OPTIM_LAMB && kLars == PACELINE_OPTIM_LARS);
static_assert(kF32 == PACELINE_OPTIM_F32 && kBf16 == PACELINE_OPTIM_BF16 &&
              kF16 == PACELINE_OPTIM_F16);
static_assert(kDecoupled == PACELINE_OPTIM_DECOUPLED && kAmsGrad == PACELINE_OPTIM_AMSGRAD &&
              kMaximize == PACELINE_OPTIM_MAXIMIZE && kNesterov == PACELINE_OPTIM_NESTEROV &&
              kAdapt == PACELINE_OPTIM_ADAPT);

bool known(std::uint8_t dtype) {
  return dtype >= PACELINE_OPTIM_F32 && dtype <= PACELINE_OPTIM_F16;
}
bool has_moments(const Group& group) {
  return group.kind == PACELINE_OPTIM_ADAM || group.kind == PACELINE_OPTIM_LAMB;
}
bool by_layer(const Group& group) {
  return group.kind == PACELINE_OPTIM_LAMB || group.kind == PACELINE_OPTIM_LARS;
}

int check_gradient(const Tensor& tensor, bool with_gradients = true) {
  if (tensor.count < 0 || !known(tensor.grad_dtype)) return PACELINE_EINVAL;
  return with_gradients && tensor.count > 0 && tensor.grad == nullptr ? PACELINE_EINVAL
                                                                      : PACELINE_OK;
}

// Returns elements [at, at + count) of a tensor as fp32: the memory of an fp32 tensor, else a copy
// in `space`.
const float* read_tile(const Kernels& kernels, const void* data, std::uint8_t dtype, int64_t at,
                       int64_t count, float* space) {
  switch (dtype) {
    case PACELINE_OPTIM_F32: return static_cast<const float*>(data) + at;
    case PACELINE_OPTIM_BF16:
      kernels.halves.from_bf16(static_cast<const std::uint16_t*>(data) + at, space, count);
      break;
    default:
      kernels.halves.from_f16(static_cast<const std::uint16_t*>(data) + at, space, count);
      break;
  }
  return space;
}

// The parameter of a tile in fp32, for reading and writing. done() rounds it into a 16-bit
// parameter.
class ParamTile {
 public:
  ParamTile(const Kernels& kernels, const Tensor& tensor, int64_t at, int64_t count)
      : kernels_(kernels), tensor_(tensor), at_(at), count_(count) {
    if (tensor.master != nullptr) {
      values_ = tensor.master + at;
    } else if (tensor.param_dtype == PACELINE_OPTIM_F32) {
      values_ = static_cast<float*>(tensor.param) + at;
    } else {
      read_tile(kernels, tensor.param, tensor.param_dtype, at, count, space_.data());
      values_ = space_.data();
    }
  }

  [[nodiscard]] float* values() { return values_; }

  void done() const {
    if (tensor_.param_dtype == PACELINE_OPTIM_F32) return;
    auto* out = static_cast<std::uint16_t*>(tensor_.param) + at_;
    (tensor_.param_dtype == PACELINE_OPTIM_BF16 ? kernels_.halves.to_bf16 : kernels_.halves.to_f16)(
        values_, out, count_);
  }

 private:
  const Kernels& kernels_;
  const Tensor& tensor_;
  int64_t at_;
  int64_t count_;
  float* values_ = nullptr;
  std::array<float, kTile> space_;  // not initialised: filled when it is used
};

// A state array of a tile in fp32, for reading and writing. done() rounds it if the state has the
// parameter's 16 bits.
class StateTile {
 public:
  StateTile(const Kernels& kernels, const Tensor& tensor, float* state, int64_t at, int64_t count)
      : kernels_(kernels), dtype_(tensor.param_dtype), count_(count) {
    if (state == nullptr) return;
    if (dtype_ == PACELINE_OPTIM_F32 || (tensor.flags & PACELINE_OPTIM_STATE_AS_PARAM) == 0) {
      values_ = state + at;
      return;
    }
    halves_ = reinterpret_cast<std::uint16_t*>(state) + at;
    read_tile(kernels, halves_, dtype_, 0, count, space_.data());
    values_ = space_.data();
  }

  // Null if there is no state.
  [[nodiscard]] float* values() { return values_; }

  void done() const {
    if (halves_ == nullptr) return;
    (dtype_ == PACELINE_OPTIM_BF16 ? kernels_.halves.to_bf16 : kernels_.halves.to_f16)(
        values_, halves_, count_);
  }

 private:
  const Kernels& kernels_;
  std::uint8_t dtype_;
  int64_t count_;
  float* values_ = nullptr;
  std::uint16_t* halves_ = nullptr;
  std::array<float, kTile> space_;  // not initialised: filled when it is used
};

using Lanes = std::array<double, kLanes>;

double sum(const Lanes& lanes) {
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

// Sums pick(0), pick(1) and so on in the order of formulas.hpp.
template <typename F>
double column_sum(int64_t count, F&& pick) {
  std::array<double, kColumns> columns{};
  for (int64_t i = 0; i < count; ++i) columns[static_cast<std::size_t>(i % kColumns)] += pick(i);
  for (std::size_t half = kColumns / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) columns[i] += columns[i + half];
  return columns[0];
}

// Sums of squares of the parameter, and of the gradient (LARS) or the update (LAMB).
struct Squares {
  double param = 0;
  double other = 0;
};

class Step {
 public:
  Step(const Kernels& kernels, std::span<const Group> groups, std::span<const Tensor> tensors)
      : kernels_(kernels),
        groups_(groups),
        tensors_(tensors),
        chunks_(tensors),
        adam_(tensors.size()),
        sgd_(tensors.size()) {
    bool layers = false;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Group& group = groups_[tensors[i].group];
      if (has_moments(group))
        adam_[i] = adam_constants(group, group.lr, group.grad_multiplier,
                                  static_cast<double>(*tensors[i].step) + 1);
      else
        sgd_[i] = sgd_constants(group, group.lr, group.grad_multiplier,
                                (tensors[i].flags & PACELINE_OPTIM_FIRST) != 0);
      layers = layers || by_layer(group);
    }
    if (layers) squares_.resize(static_cast<std::size_t>(chunks_.size()));
  }

  void run(int threads) {
    const int useful = chunks_.useful_threads(threads);
    base::parallel_for(chunks_.size(), useful, [this](int64_t number) { first_pass(number); });
    if (!squares_.empty()) {
      for (std::size_t i = 0; i < tensors_.size(); ++i) adapt(i);
      base::parallel_for(chunks_.size(), useful, [this](int64_t number) { second_pass(number); });
    }
    for (const Tensor& tensor : tensors_)
      if (has_moments(groups_[tensor.group])) *tensor.step += 1;
  }

 private:
  template <typename F>
  void each_tile(const Chunk& chunk, F&& work) {
    for (int64_t at = chunk.begin; at < chunk.end; at += kTile)
      work(at, std::min<int64_t>(kTile, chunk.end - at));
  }

  void first_pass(int64_t number) {
    const Chunk chunk = chunks_.at(number);
    const Tensor& tensor = tensors_[chunk.tensor];
    const Group& group = groups_[tensor.group];
    std::array<float, kTile> space;
    Lanes param_lanes{};
    Lanes other_lanes{};
    each_tile(chunk, [&](int64_t at, int64_t count) {
      ParamTile param(kernels_, tensor, at, count);
      const float* grad =
          read_tile(kernels_, tensor.grad, tensor.grad_dtype, at, count, space.data());
      switch (group.kind) {
        case PACELINE_OPTIM_ADAM: {
          adam(tensor, at, count, param.values(), grad, group, adam_[chunk.tensor]);
          param.done();
          break;
        }
        case PACELINE_OPTIM_SGD: {
          StateTile held(kernels_, tensor, group.momentum != 0 ? tensor.state1 : nullptr, at,
                         count);
          kernels_.sgd(param.values(), grad, held.values(), count, sgd_[chunk.tensor]);
          held.done();
          param.done();
          break;
        }
        case PACELINE_OPTIM_LAMB:
          kernels_.lamb_moments(param.values(), grad, tensor.state1 + at, tensor.state2 + at, count,
                                adam_[chunk.tensor], param_lanes.data(), other_lanes.data());
          break;
        default:
          kernels_.squares(param.values(), 1.0F, count, param_lanes.data());
          kernels_.squares(grad, multiplier(group, group.grad_multiplier), count,
                           other_lanes.data());
          break;
      }
    });
    if (by_layer(group))
      squares_[static_cast<std::size_t>(number)] = {sum(param_lanes), sum(other_lanes)};
  }

  void adam(const Tensor& tensor, int64_t at, int64_t count, float* param, const float* grad,
            const Group& group, const AdamConstants& constants) {
    const bool with_maximum = (group.flags & PACELINE_OPTIM_AMSGRAD) != 0;
    StateTile moment(kernels_, tensor, tensor.state1, at, count);
    StateTile variance(kernels_, tensor, tensor.state2, at, count);
    StateTile maximum(kernels_, tensor, with_maximum ? tensor.state3 : nullptr, at, count);
    kernels_.adam(param, grad, moment.values(), variance.values(), maximum.values(), count,
                  constants);
    moment.done();
    variance.done();
    maximum.done();
  }

  // Computes the factor of a layer from the sums of its chunks.
  void adapt(std::size_t index) {
    const Group& group = groups_[tensors_[index].group];
    if (!by_layer(group)) return;
    const int64_t first = chunks_.first_of(index);
    const int64_t count = chunks_.first_of(index + 1) - first;
    const auto at = [&](int64_t i) -> const Squares& {
      return squares_[static_cast<std::size_t>(first + i)];
    };
    const double param = column_sum(count, [&](int64_t i) { return at(i).param; });
    const double other = column_sum(count, [&](int64_t i) { return at(i).other; });
    if (group.kind == PACELINE_OPTIM_LAMB)
      adam_[index].rate = lamb_rate(group, group.lr, param, other);
    else
      sgd_[index].trust = lars_trust(group, param, other);
  }

  void second_pass(int64_t number) {
    const Chunk chunk = chunks_.at(number);
    const Tensor& tensor = tensors_[chunk.tensor];
    const Group& group = groups_[tensor.group];
    if (!by_layer(group)) return;
    std::array<float, kTile> space;
    each_tile(chunk, [&](int64_t at, int64_t count) {
      ParamTile param(kernels_, tensor, at, count);
      if (group.kind == PACELINE_OPTIM_LAMB) {
        kernels_.lamb_apply(param.values(), tensor.state1 + at, tensor.state2 + at, count,
                            adam_[chunk.tensor]);
      } else {
        const float* grad =
            read_tile(kernels_, tensor.grad, tensor.grad_dtype, at, count, space.data());
        kernels_.sgd(param.values(), grad, group.momentum != 0 ? tensor.state1 + at : nullptr,
                     count, sgd_[chunk.tensor]);
      }
      param.done();
    });
  }

  const Kernels& kernels_;
  std::span<const Group> groups_;
  std::span<const Tensor> tensors_;
  Chunks chunks_;
  std::vector<AdamConstants> adam_;
  std::vector<SgdConstants> sgd_;
  std::vector<Squares> squares_;  // one for each chunk; empty if no group needs them
};

}  // namespace

int check(std::span<const Group> groups, std::span<const Tensor> tensors, bool with_gradients) {
  for (const Group& group : groups)
    if (group.size != sizeof(Group) || group.kind < PACELINE_OPTIM_ADAM ||
        group.kind > PACELINE_OPTIM_LARS)
      return PACELINE_EINVAL;
  for (const Tensor& tensor : tensors) {
    if (check_gradient(tensor, with_gradients) != PACELINE_OK) return PACELINE_EINVAL;
    if (!known(tensor.param_dtype) || tensor.group >= groups.size()) return PACELINE_EINVAL;
    const Group& group = groups[tensor.group];
    if (has_moments(group) && tensor.step == nullptr) return PACELINE_EINVAL;
    if (tensor.master != nullptr && tensor.param_dtype == PACELINE_OPTIM_F32)
      return PACELINE_EINVAL;
    if ((tensor.flags & PACELINE_OPTIM_STATE_AS_PARAM) != 0 &&
        (tensor.master != nullptr || by_layer(group)))
      return PACELINE_EINVAL;
    if (tensor.count == 0) continue;
    bool complete = tensor.param != nullptr;
    if (has_moments(group)) {
      complete = complete && tensor.state1 != nullptr && tensor.state2 != nullptr;
      if (group.kind == PACELINE_OPTIM_ADAM && (group.flags & PACELINE_OPTIM_AMSGRAD) != 0)
        complete = complete && tensor.state3 != nullptr;
    } else if (group.momentum != 0) {
      complete = complete && tensor.state1 != nullptr;
    }
    if (!complete) return PACELINE_EINVAL;
  }
  return PACELINE_OK;
}

int step(const Kernels& kernels, std::span<const Group> groups, std::span<const Tensor> tensors,
         int threads) {
  if (threads < 1) return PACELINE_EINVAL;
  if (const int wrong = check(groups, tensors, true); wrong != PACELINE_OK) return wrong;
  Step(kernels, groups, tensors).run(threads);
  return PACELINE_OK;
}

int gradient_norm(const Kernels& kernels, std::span<const Tensor> tensors, int threads,
                  double* norm) {
  if (threads < 1 || norm == nullptr) return PACELINE_EINVAL;
  for (const Tensor& tensor : tensors)
    if (check_gradient(tensor) != PACELINE_OK) return PACELINE_EINVAL;
  const Chunks chunks(tensors);
  std::vector<double> sums(static_cast<std::size_t>(chunks.size()));
  base::parallel_for(chunks.size(), chunks.useful_threads(threads), [&](int64_t number) {
    const Chunk chunk = chunks.at(number);
    const Tensor& tensor = tensors[chunk.tensor];
    std::array<float, kTile> space;
    Lanes lanes{};
    for (int64_t at = chunk.begin; at < chunk.end; at += kTile) {
      const int64_t count = std::min<int64_t>(kTile, chunk.end - at);
      kernels.squares(read_tile(kernels, tensor.grad, tensor.grad_dtype, at, count, space.data()),
                      1.0F, count, lanes.data());
    }
    sums[static_cast<std::size_t>(number)] = sum(lanes);
  });
  *norm = std::sqrt(
      column_sum(chunks.size(), [&](int64_t i) { return sums[static_cast<std::size_t>(i)]; }));
  return PACELINE_OK;
}

}  // namespace paceline::optim
