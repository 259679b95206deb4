//===- Executor.cpp - Runs a bundle on tensors ----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Executor.h"

#include "runtime/Growing.h"
#include "runtime/StatePort.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

namespace plum::runtime {

Result<KernelChoice> chooseKernels(const Bundle &bundle,
                                   const RunOptions &options) {
  if (bundle.manifest().onGpu())
    return Error{bundle.directory(),
                 "has no cpu kernel, it was compiled for " +
                     bundle.manifest().target,
                 {}};
  KernelChoice choice;
  if (options.form != Form::Chunk)
    choice.step = bundle.step();
  if (options.form != Form::Step)
    choice.chunk = bundle.chunk(options.chunk);
  bool namedChunk = options.form != Form::Step && options.chunk != 0;
  if (namedChunk ? choice.chunk : (choice.chunk ? choice.chunk : choice.step))
    return choice;
  Error error{bundle.directory(), "", {}};
  error.message = options.form == Form::Step ? "has no step kernel"
                  : namedChunk ? "has no kernel for chunks of " +
                                     std::to_string(options.chunk) + " tokens"
                               : "has no chunk kernel";
  for (const Kernel &kernel : bundle.kernels())
    error.notes.push_back("it has form " +
                          std::string(name(kernel.info->form)) +
                          (kernel.info->form == KernelForm::Chunk
                               ? ", chunk " + std::to_string(kernel.info->chunk)
                               : ""));
  return error;
}

namespace {

/// What one thread needs, allocated before the first kernel call.
struct Lane {
  std::vector<plum_rows> inputs, outputs;
  std::vector<const void *> params;
  std::vector<float *> states;  ///< Of the pair in work.
  std::vector<float *> scratch; ///< For states that cannot be updated in place.
  std::vector<plum_rows> growing;   ///< Of the pair in work.
  std::vector<float *> rowsScratch; ///< For rows that cannot be, dense.
  void *workspace = nullptr;
};

class Run {
public:
  Run(const Manifest &manifest, const RunArgs &args, const Problem &problem,
      KernelChoice choice)
      : args(args), problem(problem), choice(choice) {
    const std::vector<TensorView> none;
    for (size_t s = 0; s < manifest.states.size(); ++s) {
      if (manifest.states[s].grows) {
        lists.emplace_back(manifest, args, problem, s);
        continue;
      }
      auto port = [&](const std::vector<TensorView> &views) {
        return StatePort::of(manifest.states[s], args.layout, views, s);
      };
      initial.push_back(port(args.initialStates));
      final.push_back(port(args.finalStates));
      snapshots.push_back(port(args.snapshotEvery > 0 ? args.snapshots : none));
    }
    for (const Sequence &sequence : problem.sequences)
      if (sequence.slot >= 0)
        order.push_back(&sequence);
    // Long ones first, so that none is left for the end.
    std::sort(order.begin(), order.end(),
              [](const Sequence *a, const Sequence *b) {
                return std::tuple(-a->length, -a->past, a) <
                       std::tuple(-b->length, -b->past, b);
              });
  }

  int64_t pairs() const { return int64_t(order.size()) * problem.heads; }

  /// Bytes a lane needs, and the lane in them. The pieces are 64-byte aligned.
  /// No machine has memory for the largest number.
  size_t laneBytes() const {
    size_t bytes = rounded(workspaceBytes());
    for (const StatePort &state : final)
      bytes += rounded(size_t(state.elements()) * sizeof(float));
    for (const List &list : lists) {
      size_t more;
      if (__builtin_mul_overflow(size_t(list.scratchRows),
                                 size_t(list.final.d) * sizeof(float), &more) ||
          __builtin_add_overflow(bytes, more, &bytes) ||
          __builtin_add_overflow(bytes, size_t(64), &bytes))
        return std::numeric_limits<size_t>::max();
    }
    return bytes;
  }
  Lane makeLane(char *memory) const {
    Lane lane;
    lane.inputs.resize(args.inputs.size());
    lane.outputs.resize(args.outputs.size());
    lane.params.resize(args.params.size());
    lane.states.resize(final.size());
    lane.workspace = memory;
    memory += rounded(workspaceBytes());
    for (const StatePort &state : final) {
      lane.scratch.push_back(reinterpret_cast<float *>(memory));
      memory += rounded(size_t(state.elements()) * sizeof(float));
    }
    lane.growing.resize(lists.size());
    for (const List &list : lists) {
      lane.rowsScratch.push_back(reinterpret_cast<float *>(memory));
      memory +=
          rounded(size_t(list.scratchRows * list.final.d) * sizeof(float));
    }
    return lane;
  }

  /// One (sequence, head) pair from its first token to its last.
  void pair(Lane &lane, int64_t index) const {
    const Sequence &sequence = *order[size_t(index / problem.heads)];
    int64_t head = index % problem.heads;
    for (size_t i = 0; i < args.params.size(); ++i)
      lane.params[i] = args.params[i].at(0, 0, head);
    for (size_t s = 0; s < final.size(); ++s)
      lane.states[s] = loadState(lane, s, sequence.slot, head);
    for (size_t g = 0; g < lists.size(); ++g)
      lane.growing[g] = loadRows(lane, g, sequence, head);
    int64_t every = args.snapshotEvery, done = 0;
    while (done < sequence.length) {
      int64_t left = sequence.length - done;
      int64_t piece = every > 0 ? std::min(every, left) : left;
      tokens(lane, sequence, head, sequence.begin + done, piece);
      done += piece;
      if (every > 0 && done % every == 0)
        for (size_t s = 0; s < snapshots.size(); ++s)
          if (snapshots[s].view)
            snapshots[s].store(sequence.snapshot + done / every - 1, head,
                               lane.states[s]);
    }
    for (size_t s = 0; s < final.size(); ++s)
      if (final[s].view)
        final[s].store(sequence.slot, head, lane.states[s]);
    for (size_t g = 0; g < lists.size(); ++g)
      storeRows(lists[g], lane.growing[g], sequence, head);
  }

private:
  /// A growing state.
  struct List {
    GrowingPort initial, final;
    bool same;               ///< Rows so far are where they shall be.
    int64_t scratchRows = 0; ///< That a lane must hold.

    List(const Manifest &manifest, const RunArgs &args, const Problem &problem,
         size_t state)
        : initial(GrowingPort::of(manifest, args, args.initialStates, state)),
          final(GrowingPort::of(manifest, args, args.finalStates, state)),
          same(initial.sameAs(final)) {
      if (final.inPlace())
        return;
      for (const Sequence &sequence : problem.sequences)
        if (sequence.slot >= 0)
          scratchRows = std::max(scratchRows, sequence.rows());
    }
  };

  static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }
  size_t workspaceBytes() const {
    size_t bytes = 0;
    for (const Kernel *kernel : {choice.step, choice.chunk})
      if (kernel)
        bytes = std::max(bytes, size_t(kernel->info->workspaceBytes));
    return bytes;
  }

  /// The state before the first token, where the kernel shall update it.
  float *loadState(Lane &lane, size_t s, int64_t slot, int64_t head) const {
    float *place = final[s].view ? final[s].inPlace(slot, head) : nullptr;
    if (!place)
      place = lane.scratch[s];
    size_t bytes = size_t(final[s].elements()) * sizeof(float);
    if (!initial[s].view)
      std::memset(place, 0, bytes);
    else if (const float *from = initial[s].inPlace(slot, head)) {
      if (from != place)
        std::memcpy(place, from, bytes);
    } else
      initial[s].load(slot, head, place);
    return place;
  }

  /// The rows of a growing state, those so far filled, for the kernel to add
  /// to: where the caller wants them if possible.
  plum_rows loadRows(Lane &lane, size_t g, const Sequence &sequence,
                     int64_t head) const {
    const List &list = lists[g];
    bool direct = list.final.inPlace();
    plum_rows rows = direct ? list.final.rows(sequence, head)
                            : plum_rows{lane.rowsScratch[g],
                                        list.final.d * int64_t(sizeof(float))};
    if (!(direct && list.same))
      for (int64_t row = 0; row < sequence.past; ++row)
        list.initial.load(sequence, head, row, GrowingPort::rowAt(rows, row));
    return rows;
  }
  /// Those that are not where the caller wants them.
  static void storeRows(const List &list, const plum_rows &rows,
                        const Sequence &sequence, int64_t head) {
    if (list.final.inPlace() || !list.final.given())
      return;
    for (int64_t row = list.same ? sequence.past : 0; row < sequence.rows();
         ++row)
      list.final.store(sequence, head, row, GrowingPort::rowAt(rows, row));
  }

  /// Tokens begin .. begin + count, by whole chunks and then by steps when
  /// both kernels are at hand and few tokens are left over.
  void tokens(Lane &lane, const Sequence &sequence, int64_t head, int64_t begin,
              int64_t count) const {
    int64_t chunked = choice.chunk ? count : 0;
    if (choice.chunk && choice.step)
      if (int64_t rest = count % choice.chunk->info->chunk;
          rest <= autoStepTokens)
        chunked -= rest;
    if (chunked > 0)
      call(*choice.chunk, lane, sequence, head, begin, chunked);
    if (count > chunked)
      call(*choice.step, lane, sequence, head, begin + chunked,
           count - chunked);
  }

  void call(const Kernel &kernel, Lane &lane, const Sequence &sequence,
            int64_t head, int64_t begin, int64_t count) const {
    auto rows = [&](const TensorView &view, int64_t h) {
      return plum_rows{view.at(sequence.batch, begin, h),
                       view.stride[1] * int64_t(byteSize(view.dtype))};
    };
    for (size_t i = 0; i < args.inputs.size(); ++i)
      lane.inputs[i] = rows(args.inputs[i], head / problem.group[i]);
    for (size_t i = 0; i < args.outputs.size(); ++i)
      lane.outputs[i] = rows(args.outputs[i], head);
    bool grow = !lists.empty();
    plum_kernel_args kernelArgs{count,
                                lane.workspace,
                                lane.inputs.data(),
                                lane.params.data(),
                                lane.states.data(),
                                lane.outputs.data(),
                                lane.growing.data(),
                                grow ? sequence.past + begin - sequence.begin
                                     : 0};
    kernel.function(&kernelArgs);
  }

  const RunArgs &args;
  const Problem &problem;
  KernelChoice choice;
  std::vector<StatePort> initial, final, snapshots; ///< One per fixed state.
  std::vector<List> lists;                          ///< One per growing state.
  std::vector<const Sequence *> order;
};

} // namespace

Status Executor::run(const RunArgs &args, const RunOptions &options) {
  Result<KernelChoice> choice = chooseKernels(bundle, options);
  if (!choice)
    return choice.error();
  Result<Problem> problem = checkProblem(bundle.manifest(), args);
  if (!problem)
    return problem.error();
  Run run(bundle.manifest(), args, *problem, *choice);
  int wanted = options.threads > 0 ? options.threads : ThreadPool::available();
  int threads = int(std::min<int64_t>(wanted, run.pairs()));
  if (threads == 0)
    return Status::ok();

  std::vector<Lane> lanes;
  if (workspaces.size() < size_t(threads))
    workspaces.resize(size_t(threads));
  for (int thread = 0; thread < threads; ++thread) {
    AlignedBuffer &memory = workspaces[size_t(thread)];
    if (!memory.reserve(run.laneBytes()))
      return Error{"",
                   "no memory for a workspace of " +
                       std::to_string(run.laneBytes()) + " bytes",
                   {}};
    lanes.push_back(run.makeLane(memory.data()));
  }
  pool.run(threads, run.pairs(), [&](int thread, int64_t index) {
    run.pair(lanes[size_t(thread)], index);
    if (options.progress)
      options.progress->fetch_add(1, std::memory_order_relaxed);
  });
  return Status::ok();
}

} // namespace plum::runtime
