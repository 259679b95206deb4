//===- Place.h - Which tokens a block has -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sequences, chunks and tokens of a run from plum_gpu_args, as every kernel
// looks them up; and what a kernel's manifest says of it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_PLACE_H
#define PLUM_LIB_CONVERSION_GPU_PLACE_H

#include "Ptx.h"

namespace plum::gpu {

/// Element i of an array of int64 or, without `flag` in plum_gpu_args.flags,
/// int32; as i32.
Value indexAt(Ptx &p, Value array, Value i, uint32_t flag);

/// `cu_seqlens[i]` as i32 rows.
Value sequenceStart(Ptx &p, Value cu, Value i);

/// The state pool's slot of sequence `row`; negative for a row of padding.
Value slotOf(Ptx &p, Value row);

/// Rows that the growing states of a slot hold before the run.
Value pastOf(Ptx &p, Value slot);

/// own(head) of plum_gpu_tensor, of which this is `share`.
Value ownHead(Ptx &p, Value head, Value share);

/// Some tokens of one sequence.
struct TokenPlace {
  Value inputSequence; ///< First index into inputs: 0 in a packed run.
  Value firstToken;    ///< Second index of the first of them.
  Value rows;          ///< How many there are; at most 0 where there are none.
  Value sequence;
  Value begin; ///< Of the first of them, in its sequence.
};
/// Chunk number `chunk` of the run, of C tokens.
TokenPlace chunkAt(Ptx &p, Value chunk, int64_t C);
/// Token number `token` of the run.
TokenPlace tokenAt(Ptx &p, Value token);

/// The kernel that counts the chunks of packed sequences.
KernelShape emitIndex(Ptx &p, int64_t C);

/// What a manifest says of a kernel; see runtime/Manifest.h.
struct LaunchFacts {
  llvm::StringRef form, role, grid;
  int64_t chunk = 1, slices = 1;
};
void describe(Ptx &p, const LaunchFacts &facts, const KernelShape &shape);

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_PLACE_H
