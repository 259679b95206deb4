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
#include <numeric>
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
    for (int64_t group : problem.stateGroup)
      shared |= group > 1;
    for (size_t s = 0; s < manifest.states.size(); ++s) {
      if (manifest.states[s].grows) {
        lists.emplace_back(manifest, args, problem, s, shared);
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

  /// Cuts the run into pieces for about so many threads.
  void cut(int threads) {
    int64_t group = together(), heads = problem.heads;
    int64_t groups =
        std::max<int64_t>(int64_t(order.size()) * heads / group, 1);
    int64_t parts = (threads + groups - 1) / groups;
    // A list costs much to read and little to compare with one more head.
    int64_t many = std::max<int64_t>((group + parts - 1) / parts, 8);
    for (const Sequence *sequence : order) {
      int64_t step = sequence->length < group ? many : 1;
      for (int64_t first = 0; first < heads; first += group)
        for (int64_t head = 0; head < group; head += step)
          pieces.push_back(
              {sequence, first + head, std::min(step, group - head)});
    }
  }
  int64_t count() const { return int64_t(pieces.size()); }

  /// What must be there before the first piece begins.
  void prepare() const {
    for (const Sequence *sequence : order)
      for (const GrowingList &list : lists)
        for (int64_t head = 0; shared && head < problem.heads; ++head)
          list.prepare(*sequence, head);
  }

  /// Bytes a lane needs, and the lane in them. The pieces are 64-byte aligned.
  /// No machine has memory for the largest number.
  size_t laneBytes() const {
    size_t bytes = rounded(workspaceBytes());
    for (const StatePort &state : final)
      bytes += rounded(size_t(state.elements()) * sizeof(float));
    for (const GrowingList &list : lists) {
      size_t more;
      if (__builtin_mul_overflow(size_t(list.scratchRows()),
                                 size_t(list.width()) * sizeof(float), &more) ||
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
    for (const GrowingList &list : lists) {
      lane.rowsScratch.push_back(reinterpret_cast<float *>(memory));
      memory +=
          rounded(size_t(list.scratchRows() * list.width()) * sizeof(float));
    }
    return lane;
  }

  /// A piece from its sequence's first token to its last; says how many pairs
  /// of a sequence and a head it was.
  int64_t run(Lane &lane, int64_t index) const {
    const auto &[sequence, head, count] = pieces[size_t(index)];
    for (size_t i = 0; i < args.params.size(); ++i)
      lane.params[i] = args.params[i].at(0, 0, head);
    for (size_t s = 0; s < final.size(); ++s)
      lane.states[s] = loadState(lane, s, sequence->slot, head);
    for (size_t g = 0; g < lists.size(); ++g)
      lane.growing[g] = lists[g].load(lane.rowsScratch[g], *sequence, head);
    if (count == 1)
      allTokens(lane, *sequence, head);
    else
      for (int64_t t = 0; t < sequence->length; ++t)
        call(*choice.chunk, lane, *sequence, head, count, sequence->begin + t,
             1);
    for (size_t s = 0; s < final.size(); ++s)
      if (final[s].view)
        final[s].store(sequence->slot, head, lane.states[s]);
    for (size_t g = 0; g < lists.size(); ++g)
      lists[g].store(lane.growing[g], *sequence, head);
    return count;
  }

private:
  /// Heads head .. head + count of a sequence: one with all of its tokens, or
  /// several, a token at a time.
  struct Piece {
    const Sequence *sequence;
    int64_t head, count;
  };

  static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }
  size_t workspaceBytes() const {
    size_t bytes = 0;
    for (const Kernel *kernel : {choice.step, choice.chunk})
      if (kernel)
        bytes = std::max(bytes, size_t(kernel->info->workspaceBytes));
    return bytes;
  }

  /// Neighbouring heads that one call can run as rows of a token: they share
  /// all lists, have no other states, the same params, and inputs that are
  /// their own, each a row, or shared.
  int64_t together() const {
    if (!shared || !choice.chunk || !final.empty())
      return 1;
    int64_t group = 0;
    for (int64_t heads : problem.stateGroup)
      group = std::gcd(group, heads);
    for (int64_t heads : problem.group)
      if (heads > 1 && heads % group != 0)
        return 1;
    for (const TensorView &param : args.params)
      for (int64_t head = 0; head < problem.heads; ++head)
        if (std::memcmp(param.at(0, 0, head),
                        param.at(0, 0, head / group * group),
                        size_t(param.shape[3]) * byteSize(param.dtype)) != 0)
          return 1;
    return group;
  }

  /// One head from its sequence's first token to its last.
  void allTokens(Lane &lane, const Sequence &sequence, int64_t head) const {
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

  /// Tokens begin .. begin + count, by whole chunks and then by steps when
  /// both kernels are at hand and few tokens are left over.
  void tokens(Lane &lane, const Sequence &sequence, int64_t head, int64_t begin,
              int64_t count) const {
    int64_t chunked = choice.chunk ? count : 0;
    if (choice.chunk && choice.step && !shared)
      if (int64_t rest = count % choice.chunk->info->chunk;
          rest <= autoStepTokens)
        chunked -= rest;
    if (chunked > 0)
      call(*choice.chunk, lane, sequence, head, 1, begin, chunked);
    if (count > chunked)
      call(*choice.step, lane, sequence, head, 1, begin + chunked,
           count - chunked);
  }

  /// Tokens begin .. begin + count of one head, or one token of several.
  void call(const Kernel &kernel, Lane &lane, const Sequence &sequence,
            int64_t head, int64_t heads, int64_t begin, int64_t count) const {
    auto rows = [&](const TensorView &view, int64_t group) {
      int64_t axis = heads == 1 ? 1 : 2; // Along which rows follow.
      int64_t step = axis == 2 && group > 1 ? 0 : view.stride[axis];
      return plum_rows{view.at(sequence.batch, begin, head / group),
                       step * int64_t(byteSize(view.dtype))};
    };
    for (size_t i = 0; i < args.inputs.size(); ++i)
      lane.inputs[i] = rows(args.inputs[i], problem.group[i]);
    for (size_t i = 0; i < args.outputs.size(); ++i)
      lane.outputs[i] = rows(args.outputs[i], 1);
    plum_kernel_args kernelArgs{
        count * heads,
        lane.workspace,
        lane.inputs.data(),
        lane.params.data(),
        lane.states.data(),
        lane.outputs.data(),
        lane.growing.data(),
        lists.empty() ? 0 : sequence.past + begin - sequence.begin,
        shared ? heads : 0};
    kernel.function(&kernelArgs);
  }

  const RunArgs &args;
  const Problem &problem;
  KernelChoice choice;
  std::vector<StatePort> initial, final, snapshots; ///< One per fixed state.
  std::vector<GrowingList> lists;                   ///< One per growing state.
  bool shared = false; ///< Some heads share their lists; so none appends.
  std::vector<const Sequence *> order;
  std::vector<Piece> pieces;
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
  run.cut(wanted);
  int threads = int(std::min<int64_t>(wanted, run.count()));
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
  run.prepare();
  pool.run(threads, run.count(), [&](int thread, int64_t index) {
    int64_t pairs = run.run(lanes[size_t(thread)], index);
    if (options.progress)
      options.progress->fetch_add(pairs, std::memory_order_relaxed);
  });
  return Status::ok();
}

} // namespace plum::runtime
