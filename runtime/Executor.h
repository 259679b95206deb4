//===- Executor.h - Runs a bundle on tensors --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel runs one head of one sequence; the executor spreads (sequence, head)
// pairs over threads. A pair's bits depend on nothing but its own rows: not on
// the thread count, not on what else is in the batch.
//
// Form auto, per sequence: whole chunks by the chunk kernel; what is left over
// by the step kernel when it is at most autoStepTokens long, else by the chunk
// kernel. Deciding it per sequence, and the same for a last piece as for a
// whole short sequence, makes a sequence alone, in a batch, or split at chunk
// boundaries give the same bits.
//
// Heads that share growing states (Problem.h) leave those to the executor,
// which appends before any of them runs. They use the chunk kernel alone, whose
// rows have the same bits whatever stands beside them; where a sequence has
// fewer tokens than heads that share, those heads are the rows of a call, a
// token at a time, so that a list is read once for all.
//
// States: f32, [K, V] and contiguous is what kernels update in place, so such a
// final state is used as it is. Anything else goes through a scratch per
// thread, loaded before and stored after the tokens of one sequence. Growing
// states likewise, by rows: see Growing.h.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_EXECUTOR_H
#define PLUM_RUNTIME_EXECUTOR_H

#include "runtime/Bundle.h"
#include "runtime/Problem.h"
#include "runtime/ThreadPool.h"

namespace plum::runtime {

enum class Form : uint8_t { Auto, Step, Chunk };

/// Up to this many left-over tokens a step per token beats a padded chunk.
inline constexpr int64_t autoStepTokens = 8;

struct RunOptions {
  Form form = Form::Auto;
  int64_t chunk = 0; ///< Tokens per chunk; 0: the bundle's first.
  int threads = 0;   ///< 0: one per CPU this process may use.
  /// On a GPU, parts that a sequence is split into; 0: as many as pay.
  int64_t segments = 0;
  /// Counts (sequence, head) pairs that are done, for a progress display.
  std::atomic<int64_t> *progress = nullptr;
};

/// The kernels a run uses; one of them may be null.
struct KernelChoice {
  const Kernel *step = nullptr, *chunk = nullptr;
};
Result<KernelChoice> chooseKernels(const Bundle &bundle,
                                   const RunOptions &options);

/// Threads and their workspaces, kept between runs. One run at a time; the
/// bundle must outlive it.
class Executor {
public:
  explicit Executor(const Bundle &bundle) : bundle(bundle) {}

  /// Checks `args`, then runs. With an error nothing has been written.
  Status run(const RunArgs &args, const RunOptions &options = {});

  /// The pool, for others who time something on the very same threads.
  ThreadPool &threads() { return pool; }

private:
  const Bundle &bundle;
  ThreadPool pool;
  std::vector<AlignedBuffer> workspaces; ///< One per thread.
};

} // namespace plum::runtime

#endif // PLUM_RUNTIME_EXECUTOR_H
