//===- LaunchPlan.h - What a run launches, worked out before ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the shapes and strides of a run: which kernels of the bundle, their
// grids, the sections of the workspace and every field of plum_gpu_args but the
// addresses. Nothing here touches a GPU, and nothing depends on the lengths of
// packed sequences: they lie in device memory, and a captured graph may be
// replayed with other ones.
//
// With N sequences, H heads, chunks of C tokens and a sequence split into P
// segments,
//
//   chunks          N ceil(T / C) of a batch; of R packed rows at most
//                   floor(R / C) + N, each sequence ending in a partial chunk
//   grid chunks     chunks H slices
//   grid tokens     N T H slices; of R packed rows R H slices; of `attend` one
//                   for each head_block heads, as many of those that share
//                   every growing state as its manifest allows
//   grid sequences  N H slices; of `scan`, times P where there is a summary;
//                   of `summary`, times 2 P - 3: B of all segments but the
//                   last, then M of these but the first
//   workspace       [chunk_offsets int32 [2][N + 1]] packed only
//                   [blobs         chunks H blob_bytes] of step kernels, whose
//                                  chunks are tokens, as well
//                   [segments      N H P segment_bytes] with P > 1 only
//                   each on a 256-byte boundary
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_LAUNCHPLAN_H
#define PLUM_RUNTIME_CUDA_LAUNCHPLAN_H

#include "plum/ABI/GpuABI.h"
#include "runtime/Executor.h"
#include "runtime/Problem.h"

namespace plum::runtime::cuda {

struct GpuOptions {
  /// Auto: steps when every sequence has one token (a batch with T = 1, packed
  /// rows no more than sequences), else chunks. Never by length otherwise: a
  /// sequence cut at chunk boundaries keeps its bits.
  Form form = Form::Auto;
  int64_t chunk = 0;    ///< Tokens per chunk; 0: the bundle's first.
  int64_t segments = 0; ///< P; 0: as segmentsFor says.
};

/// The kernels of one form and chunk.
struct KernelSet {
  KernelForm form;
  int64_t chunk;
  std::vector<size_t> kernels; ///< Of the manifest, in its order.

  const ManifestKernel *find(const Manifest &manifest, KernelRole role) const;
};
std::vector<KernelSet> kernelSets(const Manifest &manifest);

/// Offsets into the workspace, and its size.
struct WorkspaceSections {
  uint64_t chunkOffsets = 0, blobs = 0, segments = 0, bytes = 0;
};

struct GpuSizes {
  int64_t sequences = 0; ///< N.
  int64_t tokens = 0;    ///< T of a batch, rows of a packed run.
  int64_t heads = 1;     ///< H.
  bool packed = false;
};

/// The kernels that a run of this size uses, or an error that lists what the
/// bundle has; whether there is one does not depend on `sizes`.
Result<KernelSet> chooseKernels(const Manifest &manifest,
                                const GpuOptions &options,
                                const GpuSizes &sizes);

/// Chunks of all sequences together; see above.
int64_t chunksOf(const GpuSizes &sizes, int64_t chunk);
/// The sections for a run, or an error when the size is out of range.
Result<WorkspaceSections> workspaceFor(const Manifest &manifest,
                                       const KernelSet &set,
                                       const GpuSizes &sizes, int64_t segments);

/// P for a GPU with so many processors: the largest with slices N H (2 P - 3)
/// and slices N H P at most `processors`, one wave of `summary` (M and B of all
/// segments but the last, of the first only B) and of `scan`, and 4 chunks or
/// more in a segment. Both take 1 / P of the time that the scan takes whole, so
/// that nothing is won below P = 3; then, and where N and H alone fill the GPU,
/// P = 1.
int64_t segmentsFor(const GpuSizes &sizes, int64_t chunk, int64_t slices,
                    int processors);

struct LaunchPlan {
  struct Launch {
    size_t kernel; ///< Of the manifest.
    uint32_t grid;
    bool ifApart = false; ///< Only if final growing states are not where the
                          ///< initial ones are.
  };
  /// One of args.tensors.
  struct Slot {
    const ManifestTensor *tensor;
    const char *what; ///< "input", "initial state", ...
    uint32_t alignment;
    bool optional; ///< May be null at a launch.
    bool given;    ///< The plan knows its strides.
    bool empty;    ///< Has no elements; then null is fine.
  };

  KernelForm form = KernelForm::Step;
  int64_t chunk = 1, segments = 1;
  GpuSizes sizes;
  plum_gpu_args args = {}; ///< Every address 0.
  std::vector<Slot> slots; ///< In the order of args.tensors.
  WorkspaceSections workspace;
  std::vector<Launch> launches;
  bool pool = false; ///< Slots are given.
  bool past = false; ///< Rows of growing states are.
};

/// Checks all of `args` that can be checked without reading device memory; its
/// data may be null (then the launch checks addresses).
Result<LaunchPlan> planLaunch(const Manifest &manifest, const RunArgs &args,
                              const GpuOptions &options, int processors);

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_LAUNCHPLAN_H
