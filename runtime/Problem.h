//===- Problem.h - The tensors of one run, and their check ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a caller hands over to run a layer: views of its tensors in the order
// of the manifest, how tokens are cut into sequences, and where states live.
// checkProblem turns that into sequences and heads, or says what is wrong.
//
// Two ways to give sequences: a batch, B sequences of T tokens each; or packed,
// B = 1 and cu_seqlens [N+1], sequence n being rows cu[n] to cu[n+1]. Rows
// from cu[N] on belong to no sequence: they are neither read nor written.
//
// Every offset is computed in int64: T * stride passes 2^31 in real use.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_PROBLEM_H
#define PLUM_RUNTIME_PROBLEM_H

#include "plum/ABI/KernelABI.h"
#include "runtime/Manifest.h"

namespace plum::runtime {

/// Four axes, strides in elements. What the axes mean:
///   input, output   [B, T, H, d]   d = product of the declared shape
///   param           [1, 1, H, d]
///   state           [N, H, K, V] in layout kv, [N, H, V, K] in vk; a vector
///                   state [N, H, 1, K], a scalar one [N, H, 1, 1]; a
///                   growing state [N, H, capacity, d] in both layouts
/// Inputs may have fewer heads, a divisor of H, which several heads share. The
/// same then holds of growing states whose rows are such an input (rowsInput in
/// Manifest.h): they have the heads of the input.
/// Axis d must be contiguous in inputs, params and outputs; everything else
/// may be strided (column slices of a fused buffer, a padded state pool).
struct TensorView {
  void *data = nullptr; ///< Only read for inputs, params, initial states.
  DType dtype = DType::F32;
  int64_t shape[4] = {1, 0, 1, 1};
  int64_t stride[4] = {0, 0, 0, 1};

  int64_t offset(int64_t a, int64_t b, int64_t c, int64_t d = 0) const {
    return a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3];
  }
  /// Address of an element.
  char *at(int64_t a, int64_t b, int64_t c, int64_t d = 0) const {
    return static_cast<char *>(data) +
           offset(a, b, c, d) * int64_t(byteSize(dtype));
  }
  int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  /// A dense row-major view.
  static TensorView dense(void *data, DType dtype, int64_t a, int64_t b,
                          int64_t c, int64_t d);
};

/// A dense vector of int32 or int64.
struct IndexView {
  const void *data = nullptr; ///< Null: not given.
  DType dtype = DType::I32;
  int64_t count = 0;

  explicit operator bool() const { return data != nullptr; }
  int64_t operator[](int64_t i) const {
    return dtype == DType::I64 ? static_cast<const int64_t *>(data)[i]
                               : static_cast<const int32_t *>(data)[i];
  }
};

enum class StateLayout : uint8_t { KV, VK };

/// Where a growing state of each sequence is, on a GPU: row i of head h of
/// sequence n at `base + firsts[n] + h * headStride + i * rowStride`, in bytes.
/// Either `firsts` are addresses and `base` an offset, or the other way.
struct RowTable {
  const int64_t *firsts = nullptr; ///< [N], in device memory.
  int64_t base = 0;
  DType dtype = DType::F32; ///< Or BF16.
  int64_t rowStride = 0, headStride = 0;
};

struct RunArgs {
  std::vector<TensorView> inputs, params, outputs; ///< Manifest's order.
  /// Empty: zeros. f32 or bf16.
  std::vector<TensorView> initialStates;
  /// Empty: not wanted. May be the very views of initialStates (in place), but
  /// must not overlap them otherwise. f32 or bf16.
  std::vector<TensorView> finalStates;
  StateLayout layout = StateLayout::KV; ///< Of every fixed state's views.

  IndexView cuSeqlens; ///< [N+1]: starts at 0, non-decreasing, last <= T.
  /// [N]: the states are pools [P, H, K, V], and sequence n reads initialStates
  /// and writes finalStates at slot slots[n]. -1 is a padding row: the sequence
  /// is skipped, its outputs untouched. No slot may appear twice.
  IndexView slots;

  /// [N], of a pool [P]: rows that the growing states of each sequence, or
  /// slot, hold before the run. Where it is not given: all rows of the initial
  /// views, else 0. Final views have room for past + length rows, which is what
  /// they hold after the run; those behind stay as they are. Where a final view
  /// is the initial one, nothing is copied.
  IndexView past;
  /// In place of views of growing states, which then are not looked at and may
  /// be missing if there are no fixed states: for each growing state, for each
  /// sequence, where the rows of head 0 are, f32, and the bytes from head to
  /// head. They are appended to in place; `past` is [N] even if there are
  /// slots, and 0 where it is not given. The caller has seen to the room.
  std::vector<std::vector<plum_rows>> growingRows;
  std::vector<int64_t> growingHeadStride;
  /// The same for a run on a GPU, one for each growing state. The tables are
  /// read by kernels alone: a recorded launch follows lists that have moved.
  std::vector<RowTable> rowTables;
  /// On a GPU: the rows of this run's tokens are in the growing states already.
  /// They are those of inputs as they stand, which may be null.
  bool appended = false;

  /// With snapshotEvery = n > 0, the states after n, 2n, ... tokens of each
  /// sequence go to snapshots [M, H, K, V]: M is the sum of len / n over all
  /// sequences, in order of sequences. f32 or bf16. Kernels are called in
  /// pieces of n tokens, so the bits are those of a caller that splits there.
  /// A growing state has none, as it holds what it was at any time: its entry
  /// in `snapshots` is not looked at.
  int64_t snapshotEvery = 0;
  std::vector<TensorView> snapshots;
};

struct Sequence {
  int64_t batch, begin, length; ///< Rows begin .. begin + length of batch.
  int64_t slot;                 ///< First index into state views; -1: skip.
  int64_t snapshot;             ///< Index of its first snapshot.
  int64_t index = 0;            ///< Its place among all sequences.
  int64_t past = 0;             ///< Rows in growing states before the run.

  int64_t rows() const { return past + length; } ///< And after it.
};

/// A checked run.
struct Problem {
  int64_t batch = 1, tokens = 0; ///< B, T.
  int64_t heads = 1;             ///< H of states, params and outputs.
  int64_t sequenceCount = 0;     ///< N.
  int64_t pool = 0;              ///< P, where there are slots.
  int64_t snapshotCount = 0;     ///< M.
  std::vector<Sequence> sequences;
  /// Head h of the layer reads head h / group of input i.
  std::vector<int64_t> group;
  /// And head h / stateGroup of state i: 1, but of growing states that heads
  /// share.
  std::vector<int64_t> stateGroup;

  int64_t stateHeads(size_t state) const { return heads / stateGroup[state]; }

  /// Tokens in all sequences that are not padding.
  int64_t activeTokens() const;
};

/// The last two axes of a state's views; [1, d] of a growing one, a row.
std::pair<int64_t, int64_t> stateExtents(const ManifestTensor &state,
                                         StateLayout layout);

/// Only sizes and sequences: B, T, H, cu_seqlens, slots; for callers that have
/// yet to allocate outputs and states.
Result<Problem> planProblem(const Manifest &manifest, const RunArgs &args);
/// planProblem and a check of every view; after it a run cannot go wrong.
Result<Problem> checkProblem(const Manifest &manifest, const RunArgs &args);
/// The same for tensors in a GPU's memory, which nothing here reads: of
/// cu_seqlens and slots only dtype and count matter, data may be null anywhere
/// (but says in those two whether they are given), and `sequences` stays empty.
/// Snapshots of a batch's padding row count as well, and those of packed
/// sequences need room for T / snapshotEvery. Growing states need final views,
/// whose rows are contiguous; that these have room is for the caller to see to.
Result<Problem> checkDeviceProblem(const Manifest &manifest,
                                   const RunArgs &args);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_PROBLEM_H
