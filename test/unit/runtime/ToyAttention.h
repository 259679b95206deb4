//===- ToyAttention.h - A layer whose states grow ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layer toy_attention, K = 4 and V = 3: softmax attention over keys and values
// that grow by a row a token, and between them a state z that does not. Layer
// toy_lists has no such z. The rows are inputs, so heads can share them.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_RUNTIME_TOYATTENTION_H
#define PLUM_TEST_UNIT_RUNTIME_TOYATTENTION_H

#include "ToyLayer.h"

namespace plum::runtime::test {

/// Kernels step and chunk 4.
Manifest attentionManifest();
Manifest listsManifest();
void writeAttentionBundle(const std::string &directory,
                          const Manifest &manifest = attentionManifest());

/// What one head of one sequence carries along.
struct AttentionHead {
  std::vector<double> keys, values; ///< [rows, K], [rows, V].
  std::vector<double> z = std::vector<double>(K);
};

/// Dense tensors of a run [B, T, H, ...] with reproducible small values.
struct AttentionTensors {
  AttentionTensors(int64_t batch, int64_t tokens, int64_t heads);

  int64_t batch, tokens, heads;
  std::vector<float> scale, q, k;
  std::vector<uint16_t> v;
  std::vector<float> o, n; ///< Start as 777.

  /// Views of these, no states.
  RunArgs args();
  /// The recurrence in double over rows begin .. end of one batch and head.
  void truth(int64_t b, int64_t begin, int64_t end, int64_t head,
             AttentionHead &state, std::vector<double> &o,
             std::vector<double> &n) const;
};

/// States of `count` sequences, or slots, with room for `room` rows each.
struct AttentionStates {
  AttentionStates(int64_t count, int64_t heads, int64_t room);

  int64_t count, heads, room;
  std::vector<float> keys, z, values; ///< Start as 777.

  /// In the manifest's order: keys, z, values.
  std::vector<TensorView> views();
  /// Fills the first rows of one sequence, and its z.
  void fill(int64_t n, int64_t rows);
  /// What fill has put there, or a run.
  AttentionHead head(int64_t n, int64_t head, int64_t rows) const;
};

/// The inputs and params of `tensors` without a batch axis.
ToyFile attentionFile(const AttentionTensors &tensors);

} // namespace plum::runtime::test

#endif // PLUM_TEST_UNIT_RUNTIME_TOYATTENTION_H
