//===- AttendLayer.h - A layer whose states grow ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the GPU kernels of softmax attention take from a layer: rows that are
// appended to lists, queries that are compared with them, outputs that are made
// of the answer; and how blocks and warps share that (AttendShape).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_ATTENDLAYER_H
#define PLUM_LIB_CONVERSION_GPU_ATTENDLAYER_H

#include "Ptx.h"

#include "dialects/Assoc/Assoc.h"

namespace plum::gpu {

struct AttendLayer {
  /// Checks that the layer is of this kind, or says at its place what is not.
  static mlir::FailureOr<AttendLayer> read(assoc::LayerOp op);
  /// The layer has a state that grows.
  static bool grows(assoc::LayerOp op);

  struct List {
    mlir::BlockArgument state;
    Value row; ///< That a token appends.
    int64_t width;
  };
  mutable assoc::LayerOp op;
  llvm::SmallVector<List> lists; ///< In the order of the states.
  mutable assoc::AttendOp attend;
  llvm::SmallVector<unsigned> keys; ///< A list for each query.
  unsigned values;
  /// Queries without what all of them are multiplied by: the scores are, in
  /// fp32, and queries that come in are multiplied as they are.
  llvm::SmallVector<Value> queries;
  Value factor; ///< A number for each token and head, or null.
  double constant = 1;
  /// What queries and lists are made of that is not bf16, or null. Such a layer
  /// has step kernels in plain fp32, whose queries are the spec's, factor and
  /// all.
  mlir::BlockArgument beyondBF16;

  bool exact() const { return bool(beyondBF16); }
  int64_t keyDim(unsigned query) const { return lists[keys[query]].width; }
  int64_t valueDim() const { return lists[values].width; }
  /// Columns of a row in shared memory, as products take them: those behind
  /// the row are zero in lists.
  static int64_t padded(int64_t width) { return llvm::alignTo(width, 16); }
  /// Lists that attend reads, each once: those of keys, then that of values.
  llvm::SmallVector<unsigned> read() const;
  bool valuesAreKeys() const { return llvm::is_contained(keys, values); }

  //===--- plum_gpu_args --------------------------------------------------===//
  int64_t tensorOf(mlir::BlockArgument argument) const;
  int64_t initial(unsigned list) const { return firstState + list; }
  int64_t final(unsigned list) const {
    return firstState + int64_t(lists.size()) + list;
  }
  int64_t output(unsigned i) const {
    return firstState + 2 * int64_t(lists.size()) + i;
  }
  int64_t firstState = 0;
};

/// Blocks of `attend`. One has 16 * rowWarps rows: tokens of a head or, of step
/// kernels, heads of a token. A tile is of `keys` keys and their values; of the
/// warps with the same rows each makes the scores of a share of the keys, and
/// each has a share of the columns of values.
struct AttendShape {
  int64_t chunk = 1; ///< Tokens; 1 for step kernels.
  int64_t rowWarps = 1, columnWarps = 1;
  int64_t keys = 64, stages = 2;
  int64_t splits = 1; ///< Of the keys, among blocks, at most.
  /// A split has so many tiles, or more: what it leaves for merge is read and
  /// written as well. With heads() four splits of a short list have fewer.
  int64_t leastTiles = 1;
  bool hold = false; ///< Queries stay in registers.
  /// Products by wgmma: a warpgroup has 64 rows, and one behind all copies.
  /// With columnWarps of 2, two have the same rows, which are heads of a token:
  /// AttendHeads.cpp.
  bool wide = false;
  bool twice = false; ///< Two such blocks fit on a multiprocessor.
  // Shared memory.
  llvm::SmallVector<int64_t> queryAt; ///< A tile for each query.
  llvm::SmallVector<int64_t> tileAt;  ///< In a stage: of each of read().
  int64_t stagesAt = 0, stageBytes = 0;
  int64_t factorsAt = 0, weightsAt = 0, exchangeAt = 0, barriersAt = 0;
  int64_t bytes = 0;

  int64_t rows() const { return 16 * rowWarps; }
  int64_t warps() const { return rowWarps * columnWarps; }
  /// Those with rows; `wide`: kProducers more are launched.
  int64_t threads() const { return 32 * warps(); }
  static constexpr int64_t kProducers = 128;
  /// Of a thread, of all that a multiprocessor has: at the launch, and when
  /// producers have given theirs away.
  int64_t launchRegisters() const { return twice ? 128 : 168; }
  int64_t teamRegisters() const { return twice ? 208 : 224; }
  int64_t producerRegisters() const { return twice ? 48 : 56; }
  bool step() const { return chunk == 1; }
  bool heads() const { return wide && step(); }
  /// Bytes of what the blocks of a token and head leave for `merge`: for each
  /// split the sums [V], the largest score and the sum of weights.
  static int64_t partBytes(const AttendLayer &layer) {
    return (layer.valueDim() + 2) * 4;
  }

  /// Bytes between rows of answers, so that lanes of a store meet few others.
  static int64_t answerPitch(const AttendLayer &layer) {
    return (layer.padded(layer.valueDim()) + 4) * 4;
  }

  /// Fails where it fits nowhere, and says so at the layer.
  static mlir::FailureOr<AttendShape> choose(const AttendLayer &layer,
                                             Chip chip, int64_t chunk);
  /// Of exact layers: AttendExact.cpp.
  static mlir::FailureOr<AttendShape> chooseExact(const AttendLayer &layer);
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_ATTENDLAYER_H
