//===- ReferenceRun.h - The truth about a run -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A bundle carries the spec it was compiled from. This runs that spec, token by
// token in float64, on the very tensors that a kernel gets: the same rounded
// inputs, the same sequences, heads and slots. `runHeads` does the same for any
// other float64 form of the layer.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_REFERENCERUN_H
#define PLUM_RUNTIME_REFERENCERUN_H

#include "runtime/Bundle.h"
#include "runtime/Problem.h"
#include "runtime/ThreadPool.h"

#include <atomic>
#include <functional>
#include <memory>
#include <span>

namespace plum::frontend {
struct Layer;
}
namespace plum::reference {
struct Head;
}

namespace plum::runtime {

/// For each sequence that is not padding, in order: unrounded results.
struct ReferenceSequence {
  Sequence sequence;
  std::vector<std::vector<double>> outputs; ///< Each [length, H, d].
  std::vector<std::vector<double>> states;  ///< Each [H, K, V], at the end; of
                                            ///< a growing state [H, rows, d],
                                            ///< of the heads that it has.
};

/// Runs every head of every sequence of `args` (inputs, params, initial states,
/// cu_seqlens, slots) by `runHead`, which may be called from several threads.
std::vector<ReferenceSequence>
runHeads(const Manifest &manifest, const RunArgs &args, const Problem &problem,
         ThreadPool &pool,
         const std::function<void(reference::Head &)> &runHead,
         std::atomic<int64_t> *progress = nullptr);

class Reference {
public:
  /// Parses the bundle's spec with its dims and compares the signature with
  /// the manifest's.
  static Result<Reference> load(const Bundle &bundle);
  Reference(Reference &&) noexcept;
  ~Reference();

  /// The recurrence over all heads, see runHeads.
  std::vector<ReferenceSequence>
  run(const RunArgs &args, const Problem &problem, ThreadPool &pool,
      std::atomic<int64_t> *progress = nullptr) const;

private:
  Reference();
  struct Spec;
  std::unique_ptr<Spec> spec;
  const Manifest *manifest = nullptr;
};

/// The rows of `sequence` in a view [B, T, H, d], as doubles [length, H, d].
std::vector<double> sequenceRows(const TensorView &view,
                                 const Sequence &sequence);
/// State `state` of a sequence after the run, as ReferenceSequence has it.
std::vector<double> finalState(const Manifest &manifest, const RunArgs &args,
                               const Problem &problem, const Sequence &sequence,
                               size_t state);
/// Stores the states of a result where `args` wants the final ones.
void storeFinalStates(const Manifest &manifest, const RunArgs &args,
                      const Problem &problem, const ReferenceSequence &result);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_REFERENCERUN_H
