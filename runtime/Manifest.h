//===- Manifest.h - What a bundle says about itself -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// manifest.json of a bundle, as one plain struct with one reader and one
// writer: the compiler fills and writes it, the runtime reads it, and neither
// can drift from the other. It names the layer's tensors in the order in which
// kernels take them (see ABI/KernelABI.h) and the kernels of the object file.
//
//   { "abi": 3, "plum": "0.1.0", "llvm": "22.1.8", "layer": "kda",
//     "target": "cpu", "cpu": "x86-64-v4", "features": ["avx512f"],
//     "precision": "default", "dims": {"K": 128, "V": 128},
//     "params": [], "inputs": [{"name": "q", "shape": [128],
//                               "dtype": "bf16", "declared": "bf16"}],
//     "states": [...], "outputs": [...], "log_decays": ["g"],
//     "object": "kernel.so", "source": "spec.plum",
//     "kernels": [{"form": "step", "symbol": "plum_kda_step",
//                  "workspace_bytes": 0},
//                 {"form": "chunk", "chunk": 64, "symbol": "plum_kda_chunk64",
//                  "workspace_bytes": 65536, "flops_per_chunk": 8388608,
//                  "matmuls": [{"what": "K~ S", "m": 64, "n": 128, "k": 128,
//                               "count": 1}]}] }
//
// A state with "grows": true is a list of rows of its shape, [d], one more for
// each token; all such states of a layer hold the same number of rows. "rows":
// "k" says that its rows are those of input k as they stand. Where that holds
// for all of them, each has as many heads as its input, and heads that share
// the input share the list.
//
// A bundle for a GPU has "target": "sm_90a" (or another sm_NN), "object":
// "kernels.ptx" and the ABI version of ABI/GpuABI.h. Its kernels have besides
//
//                 {"form": "chunk", "chunk": 64, "symbol": "plum_kda_scan",
//                  "role": "scan", "grid": "sequences", "slices": 2,
//                  "threads": 384, "shared_bytes": 231424,
//                  "blob_bytes": 66560, "segment_bytes": 0, ...}
//
// and those of one form and chunk, in order, are what one run launches: roles
// "index" (packed runs only), "prepare", "summary" and "combine" (sequences
// split into segments only), "scan"; or "step" alone. Where states grow, roles
// "index", "carry" (only where the final states are not the initial ones),
// "append" and "attend", and of the step form "merge" after them. The grid is
// one-dimensional: "one" block, or slices blocks for each head of the "chunks",
// of the "sequences" or of the "tokens" of a run; of the tokens' "attend" for
// each plum_gpu_args.head_block of the heads, of which there are at most as
// many as that kernel's "head_block" says, or 16.
//
// A bundle whose schedule was looked up for a shape says so:
//
//     "tuning": {"from": "database", "key": "layer kda ...", "shape":
//     "B=1,...",
//                "schedule": "chunk 16", "ms": 21.5, "date": "2026-11-29"}
//
// Every field above is required but "features", "log_decays", "matmuls",
// "flops_per_chunk", "tuning", "grows", "rows", "head_block" and a step
// kernel's "chunk". Unknown fields are ignored: they may record anything (a
// tuning run) that a reader need not know; what a reader must know bumps "abi".
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MANIFEST_H
#define PLUM_RUNTIME_MANIFEST_H

#include "plum/Support/DType.h"
#include "plum/Support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plum::runtime {

/// One declared tensor, per token and head.
struct ManifestTensor {
  std::string name;
  std::vector<int64_t> shape;  ///< [], [d] or [K, V]; of a row, where it grows.
  DType dtype = DType::F32;    ///< What the kernel reads or writes.
  DType declared = DType::F32; ///< What the spec says; differs only under
                               ///< precision f32 (16 bit read as f32).
  bool grows = false;          ///< A state that gains a row with each token.
  std::string rows = {};       ///< The input that these are; empty: computed.

  /// Product of the shape; 1 for a scalar. Of one row, where it grows.
  int64_t elements() const;
  bool operator==(const ManifestTensor &) const = default;
};

/// `count` products [m, k] @ [k, n] in one chunk of one head, for the bench.
struct ManifestMatmul {
  std::string what;
  int64_t m = 0, n = 0, k = 0, count = 1;
  bool operator==(const ManifestMatmul &) const = default;
};

enum class KernelForm : uint8_t { Step, Chunk };
std::string_view name(KernelForm form);

/// What a GPU kernel does in the run it is a part of.
enum class KernelRole : uint8_t {
  Index,   ///< Counts the chunks of packed sequences.
  Prepare, ///< All that needs no state, for every chunk at once.
  Scan,    ///< The chunks of a sequence, one after the other.
  Summary, ///< What a segment does to any state that enters it.
  Combine, ///< The states that enter the segments.
  Step,    ///< Token by token.
  Carry,   ///< Rows so far of growing states, to where the final ones are.
  Append,  ///< The rows of the run's tokens.
  Attend,  ///< What tokens read of all rows.
  Merge    ///< The same, of parts of the rows that blocks had.
};
std::string_view name(KernelRole role);

/// What the blocks of a GPU kernel stand for.
enum class KernelGrid : uint8_t { One, Chunks, Sequences, Tokens };
std::string_view name(KernelGrid grid);

/// One function of the object file, of type plum_kernel on a CPU, taking a
/// plum_gpu_args on a GPU.
struct ManifestKernel {
  KernelForm form = KernelForm::Step;
  int64_t chunk = 1; ///< Tokens per chunk; 1 for step.
  std::string symbol;
  int64_t workspaceBytes = 0;
  int64_t flopsPerChunk = 0; ///< One chunk of one head; 0 when not known.
  std::vector<ManifestMatmul> matmuls;
  // GPU only.
  KernelRole role = KernelRole::Step;
  KernelGrid grid = KernelGrid::Sequences;
  int64_t slices = 1;       ///< Blocks for one head of a chunk or sequence.
  int64_t threads = 0;      ///< Of a block.
  int64_t sharedBytes = 0;  ///< Dynamic shared memory of a block.
  int64_t blobBytes = 0;    ///< From prepare to scan, one chunk of one head.
  int64_t segmentBytes = 0; ///< Scratch for one segment of one head.
  int64_t headBlock = 16;   ///< Of steps' attend: most heads of a block.
  bool operator==(const ManifestKernel &) const = default;
};

/// What chose the schedule of a bundle's kernels.
struct ManifestTuning {
  std::string from;                 ///< "database" or "model", the cost model.
  std::string key, shape, schedule; ///< For people, see TuningRecord.h.
  double ms = 0;                    ///< Measured; 0 from the model.
  std::string date;                 ///< Of the measurement.
  bool operator==(const ManifestTuning &) const = default;
};

struct Manifest {
  int64_t abi = 0; ///< PLUM_KERNEL_ABI or, for a GPU, PLUM_GPU_ABI of the
                   ///< compiler that wrote it.
  std::string plum, llvm;
  std::string layer;
  std::string target; ///< "cpu", or the GPU architecture: "sm_90a".
  std::string cpu;    ///< The CPU compiled for; of a GPU bundle, anything.
  std::vector<std::string> features; ///< CPU features the object needs, as
                                     ///< LLVM spells them: "avx512f".
  std::string precision = "default"; ///< "default", "robust" or "f32".
  std::vector<std::pair<std::string, int64_t>> dims; ///< Read: by name.
  std::vector<ManifestTensor> params, inputs, states, outputs;
  /// Inputs and params that are a log decay as they stand: the data must be
  /// <= 0.
  std::vector<std::string> logDecays;
  std::string object = "kernel.so", source = "spec.plum"; ///< Plain names.
  /// The first chunk kernel is the one that form auto uses.
  std::vector<ManifestKernel> kernels;
  std::optional<ManifestTuning> tuning;

  bool onGpu() const { return target != "cpu"; }
  /// The first state that grows, or null.
  const ManifestTensor *growingState() const;
  /// Index of the input whose rows, and heads, growing state `state` has; none
  /// where the rows of any are computed: then each head has states of its own.
  std::optional<size_t> rowsInput(size_t state) const;
  bool operator==(const Manifest &) const = default;
};

/// Reads and checks every field. `where` names the text in errors.
Result<Manifest> parseManifest(std::string_view text, const std::string &where);
/// `directory`/manifest.json.
Result<Manifest> readManifest(const std::string &directory);
/// The JSON text; parseManifest of it gives `manifest` back.
std::string writeManifest(const Manifest &manifest);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_MANIFEST_H
