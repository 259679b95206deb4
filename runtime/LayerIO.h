//===- LayerIO.h - A layer's tensors in safetensors files -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tensors of a run by name:
//
//   input  x : [d]     [T, H, d], or [B, T, H, d] with a batch axis everywhere
//   param  p : [d]     [H, d]
//   state  S : [K, V]  [N, H, K, V]; optional initial state, f32 or bf16;
//                      [N, H, V, K] in layout vk
//   state  X : [*, d]  [N, H, L, d]; a growing state, optional as other states,
//                      f32 or bf16, in both layouts; it has the heads of the
//                      input that its rows are, if they are one (Problem.h)
//   seqlens            [N] int32 or int64, optional: how many of the L rows of
//                      each growing state sequence n has; else all
//   cu_seqlens         [N + 1] int32 or int64, optional: packs N sequences
//   slots              [N] int32 or int64, optional: S is a pool [P, H, K, V],
//                      sequence n works on slot slots[n], -1 is padding;
//                      growing states are [P, H, L, d], seqlens is [P]
//
// and what is written:
//
//   output o : [d]     [T, H, d] or [B, T, H, d]; rows of no sequence are 0
//   S                  final state, shaped as the initial one; the whole pool
//                      where there are slots
//   X                  [N, H, L, d], L the most rows that any sequence then
//                      has; 0 behind the end of the others
//   seqlens            [N] int64: rows of each sequence; [P] where there are
//                      slots
//   S.every            with snapshots every n tokens: [M, H, K, V], sequence by
//                      sequence the states after n, 2n, ... tokens; not of
//                      growing states, whose rows stay what they were
//   every.cu_seqlens   [N + 1] int64: sequence n has the snapshots from entry
//                      n to entry n + 1 of S.every
//
// A trailing axis is missing where the declaration is a scalar. Dtypes are the
// declared ones; under precision f32, a tensor declared bf16 or f16 may be
// either that (it is widened, which is exact) or F32.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_LAYERIO_H
#define PLUM_RUNTIME_LAYERIO_H

#include "runtime/Problem.h"
#include "runtime/Safetensors.h"
#include "runtime/ThreadPool.h"

namespace plum::runtime {

struct LayerOptions {
  StateLayout layout = StateLayout::KV; ///< Of fixed states, in and out.
  /// Of states written; by default that of the initial state, else f32.
  std::optional<DType> stateDtype;
  int64_t snapshotEvery = 0;
};

/// A run whose inputs lie in a mapped file. The file must outlive it.
struct LayerRun {
  RunArgs args;
  Problem problem;
  bool batched = false;              ///< The file has a batch axis.
  std::vector<std::string> warnings; ///< Sentences without a place.
  std::vector<int64_t> rows; ///< Of growing states, after the run: [N] or [P].
  std::vector<AlignedBuffer> buffers;
};

/// Views of everything the file holds, outputs and states allocated.
Result<LayerRun> openLayerRun(const Manifest &manifest,
                              const SafetensorsFile &file,
                              const LayerOptions &options);

/// What a run leaves behind, named for a file.
struct LayerResult {
  std::vector<TensorToWrite> tensors;
  std::vector<int64_t> snapshotOffsets; ///< Data of every.cu_seqlens,
  std::vector<int64_t> rows;            ///< and of seqlens.
};
LayerResult layerResult(const Manifest &manifest, const LayerRun &run);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_LAYERIO_H
