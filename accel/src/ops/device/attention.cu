// SPDX-License-Identifier: Apache-2.0
// Attention within windows (Liu et al., Swin Transformer, arXiv 2103.14030) on a GPU, forward and
// backward, for heads of 32 numbers in 16 bits and windows of at most 64 tokens. This file has
// device code only, for nvcc and NVRTC.
//
// A block takes one head of one window at a time, and each of its four warps 16 queries. All scores
// of a query lie in registers, so they are never written to memory, and the backward computes them
// again from q and k. The bias and the mask of a block's windows lie in registers too. Sums are in
// fp32; products take 16-bit probabilities, as FlashAttention does (Dao et al., arXiv 2205.14135).
//
// The gradient of the bias table is summed in a fixed order: each block over its windows, then
// paceline_attention_bias over the blocks, then paceline_attention_table over the pairs of tokens.
#include "tiles.hpp"

namespace paceline::ops::device {
namespace {

constexpr float kLog2E = 1.4426950408889634F;
constexpr Bits32 kMinusInfinity = 0xff800000U;
constexpr Bits32 kNan = 0x7fc00000U;
constexpr float kMostFloat = 3.402823466e+38F;

// -- the scores

// The entry of the table for a pair of tokens. PyTorch counts negative ones from the table's end.
PACELINE_INLINE Int64 entry_of(const Attention& call, int pair) {
  const Int64 entry = call.index[pair];
  return entry < 0 ? entry + call.entries : entry;
}

// NaN for an entry outside the table: an error that can be seen, without a wait for the GPU.
PACELINE_INLINE float bias_of(const Attention& call, int pair, int head) {
  const auto entry = static_cast<unsigned long long>(entry_of(call, pair));
  return entry < call.entries ? call.table[entry * call.heads + head] : base::as_float(kNan);
}

// Bias and mask times log2(e), and -infinity for keys behind the last token.
PACELINE_INLINE void load_bias(Scores& bias, const Attention& call, int head, Int64 of_mask) {
  const int tokens = static_cast<int>(call.tokens);
  each_score([&](int tile, int i, int query, int key) {
    float value = key < tokens ? 0 : base::as_float(kMinusInfinity);
    if (query < tokens && key < tokens) {
      const int pair = query * tokens + key;
      value = bias_of(call, pair, head);
      if (call.mask != nullptr) value += call.mask[of_mask * tokens * tokens + pair];
    }
    // A mask of the least number would become minus infinity, and a row of nothing else NaN.
    bias.value[tile][i] = value >= -kMostFloat ? fmaxf(value * kLog2E, -kMostFloat) : value;
  });
}

PACELINE_INLINE float most_of_row(float value) {
  value = fmaxf(value, of_neighbour(value, 1));
  return fmaxf(value, of_neighbour(value, 2));
}
PACELINE_INLINE float sum_of_row(float value) {
  value += of_neighbour(value, 1);
  return value + of_neighbour(value, 2);
}

// One number for each of a thread's two rows.
struct Rows {
  float first, second;
};

// Products become exponentials of scores less the greatest of the row. Returns their sums.
PACELINE_INLINE Rows exponentials(Scores& scores, const Scores& bias, float scale) {
  const float factor = scale * kLog2E;
  float most[2] = {base::as_float(kMinusInfinity), base::as_float(kMinusInfinity)};
  each_score([&](int tile, int i, int, int) {
    float& score = scores.value[tile][i];
    score = score * factor + bias.value[tile][i];
    most[i / 2] = fmaxf(most[i / 2], score);
  });
  most[0] = most_of_row(most[0]);
  most[1] = most_of_row(most[1]);
  float sum[2] = {0, 0};
  each_score([&](int tile, int i, int, int) {
    float& score = scores.value[tile][i];
    score = power_of_two(score - most[i / 2]);
    sum[i / 2] += score;
  });
  return {sum_of_row(sum[0]), sum_of_row(sum[1])};
}

// Windows of a block, in the order in which those with one mask follow each other.
struct Share {
  int head;
  Int64 begin, end;
};

PACELINE_INLINE Share share_of_block(const Attention& call) {
  const Int64 slot = blockIdx.x / call.heads;
  return {static_cast<int>(blockIdx.x % call.heads), call.windows * slot / call.slots,
          call.windows * (slot + 1) / call.slots};
}

// Calls visit(window) for each of them, and has the bias in place.
template <typename Visit>
PACELINE_INLINE void each_window(const Attention& call, const Share& share, Scores& bias,
                                 const Visit& visit) {
  const Int64 images = call.windows / call.masks;
  Int64 loaded = -1;
  for (Int64 at = share.begin; at < share.end; ++at) {
    const Int64 of_mask = at / images;
    if (of_mask != loaded) load_bias(bias, call, share.head, of_mask);
    loaded = of_mask;
    visit(at % images * call.masks + of_mask);
  }
}

template <Bits32 kType>
PACELINE_INLINE void forward(const Attention& call, Panel& queries, Panel& keys, Panel& values) {
  const Share share = share_of_block(call);
  const int tokens = static_cast<int>(call.tokens);
  const Int64 width = static_cast<Int64>(call.heads) * kHeadDim;
  Scores bias;
  each_window(call, share, bias, [&](Int64 window) {
    const Int64 head = window * call.window_stride + share.head * kHeadDim;
    const Piece q = read(call.q + head, call.token_stride, tokens);
    const Piece k = read(call.k + head, call.token_stride, tokens);
    const Piece v = read(call.v + head, call.token_stride, tokens);
    __syncthreads();  // nobody reads the window before any more
    put(queries, q);
    put(keys, k);
    put(values, v);
    __syncthreads();
    Scores scores;
    products<kType>(scores, queries, keys);
    const Rows sum = exponentials(scores, bias, call.scale);
    float rows[kParts][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Bits32 a[4];
      pack_rows<kType>(a, scores, step);
      add_product<kType>(rows, a, values, step);
    }
    write<kType>(call.out + window * tokens * width + share.head * kHeadDim, width, tokens, rows,
                 1 / sum.first, 1 / sum.second);
  });
}

// What the threads of a block share in the backward.
struct Shared {
  Panel queries, keys, values, out_grad;
  Square probabilities, scores_grad;
};

template <Bits32 kType>
PACELINE_INLINE void put_transposed(Square& square, const Scores& scores) {
  each_score([&](int tile, int i, int query, int key) {
    if (i % 2 != 0) return;
    const Bits32 both = pack<kType>(scores.value[tile][i], scores.value[tile][i + 1]);
    square.value[key * kSquarePitch + query] = static_cast<Bits16>(both & 0xffffU);
    square.value[(key + 1) * kSquarePitch + query] = static_cast<Bits16>(both >> 16);
  });
}

// The gradient of this warp's keys or values: a sum over queries.
template <Bits32 kType>
PACELINE_INLINE void write_sum_over_queries(Bits16* head, const Attention& call,
                                            const Square& square, const Panel& panel,
                                            float factor) {
  float rows[kParts][4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    Bits32 a[4];
    load_rows<kSquarePitch>(a, square.value, step * 16);
    add_product<kType>(rows, a, panel, step);
  }
  write<kType>(head, call.token_stride, static_cast<int>(call.tokens), rows, factor, factor);
}

template <Bits32 kType>
PACELINE_INLINE void backward(const Attention& call, Shared& shared) {
  const Share share = share_of_block(call);
  const int tokens = static_cast<int>(call.tokens);
  const Int64 width = static_cast<Int64>(call.heads) * kHeadDim;
  Scores bias;
  Scores bias_grad = {};
  each_window(call, share, bias, [&](Int64 window) {
    const Int64 head = window * call.window_stride + share.head * kHeadDim;
    const Piece q = read(call.q + head, call.token_stride, tokens);
    const Piece k = read(call.k + head, call.token_stride, tokens);
    const Piece v = read(call.v + head, call.token_stride, tokens);
    const Piece out_grad =
        read(call.out_grad + window * tokens * width + share.head * kHeadDim, width, tokens);
    __syncthreads();  // nobody reads the window before any more
    put(shared.queries, q);
    put(shared.keys, k);
    put(shared.values, v);
    put(shared.out_grad, out_grad);
    __syncthreads();
    Scores scores;
    products<kType>(scores, shared.queries, shared.keys);
    const Rows sum = exponentials(scores, bias, call.scale);
    const float share_of_row[2] = {1 / sum.first, 1 / sum.second};
    Scores grad;
    products<kType>(grad, shared.out_grad, shared.values);
    float dot[2] = {0, 0};
    each_score([&](int tile, int i, int, int) {
      scores.value[tile][i] *= share_of_row[i / 2];
      dot[i / 2] += scores.value[tile][i] * grad.value[tile][i];
    });
    dot[0] = sum_of_row(dot[0]);
    dot[1] = sum_of_row(dot[1]);
    each_score([&](int tile, int i, int, int) {
      grad.value[tile][i] = scores.value[tile][i] * (grad.value[tile][i] - dot[i / 2]);
      bias_grad.value[tile][i] += grad.value[tile][i];
    });
    put_transposed<kType>(shared.probabilities, scores);
    put_transposed<kType>(shared.scores_grad, grad);
    float rows[kParts][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Bits32 a[4];
      pack_rows<kType>(a, grad, step);
      add_product<kType>(rows, a, shared.keys, step);
    }
    write<kType>(call.q_grad + head, call.token_stride, tokens, rows, call.scale, call.scale);
    __syncthreads();
    write_sum_over_queries<kType>(call.v_grad + head, call, shared.probabilities, shared.out_grad,
                                  1);
    write_sum_over_queries<kType>(call.k_grad + head, call, shared.scores_grad, shared.queries,
                                  call.scale);
  });
  float* const sums = call.sums + static_cast<Int64>(blockIdx.x) * tokens * tokens;
  each_score([&](int tile, int i, int query, int key) {
    if (query < tokens && key < tokens) sums[query * tokens + key] = bias_grad.value[tile][i];
  });
}

}  // namespace

// Four blocks fit on a multiprocessor of sm_90 so.
extern "C" __global__ void __launch_bounds__(kAttentionThreads, 4)
    paceline_attention_forward(const __grid_constant__ Attention call) {
  __shared__ Panel queries;
  __shared__ Panel keys;
  __shared__ Panel values;
  if (call.type == kBf16)
    forward<kBf16>(call, queries, keys, values);
  else
    forward<kF16>(call, queries, keys, values);
}

extern "C" __global__ void __launch_bounds__(kAttentionThreads)
    paceline_attention_backward(const __grid_constant__ Attention call) {
  __shared__ Shared shared;
  if (call.type == kBf16)
    backward<kBf16>(call, shared);
  else
    backward<kF16>(call, shared);
}

// Adds the sums of all slots into those of the first. A block takes 32 numbers, and each warp a
// quarter of the slots.
extern "C" __global__ void __launch_bounds__(kAttentionThreads)
    paceline_attention_bias(const __grid_constant__ Attention call) {
  constexpr int kQuarters = kAttentionThreads / 32;
  __shared__ float space[kAttentionThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const Int64 count = static_cast<Int64>(call.heads) * call.tokens * call.tokens;
  const Int64 at = static_cast<Int64>(blockIdx.x) * 32 + thread % 32;
  float sum = 0;
  if (at < count) {
#pragma unroll 8
    for (Int64 slot = thread / 32; slot < call.slots; slot += kQuarters)
      sum += call.sums[slot * count + at];
  }
  space[thread] = sum;
  __syncthreads();
  if (thread >= 32 || at >= count) return;
  for (int quarter = 1; quarter < kQuarters; ++quarter) sum += space[thread + quarter * 32];
  call.sums[at] = sum;
}

// Sums the pairs of tokens that have one entry of the table. A warp takes one entry of one head.
extern "C" __global__ void __launch_bounds__(kAttentionThreads)
    paceline_attention_table(const __grid_constant__ Attention call) {
  const int thread = static_cast<int>(threadIdx.x);
  const Int64 at = static_cast<Int64>(blockIdx.x) * (kAttentionThreads / 32) + thread / 32;
  const int pairs = static_cast<int>(call.tokens * call.tokens);
  const bool is_one = at < static_cast<Int64>(call.entries) * call.heads;
  const Int64 entry = at / call.heads;
  const Int64 head = at % call.heads;
  float sum = 0;
  if (is_one) {
#pragma unroll 4
    for (int pair = thread % 32; pair < pairs; pair += 32)
      if (entry_of(call, pair) == entry) sum += call.sums[head * pairs + pair];
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) sum += of_neighbour(sum, mask);
  if (is_one && thread % 32 == 0) call.table_grad[at] = sum;
}

}  // namespace paceline::ops::device
