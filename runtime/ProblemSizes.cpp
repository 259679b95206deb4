//===- ProblemSizes.cpp - Sizes and sequences of a run --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/ProblemSizes.h"

#include "runtime/Growing.h"

#include <algorithm>

namespace plum::runtime {

int64_t Problem::activeTokens() const {
  int64_t sum = 0;
  for (const Sequence &sequence : sequences)
    sum += sequence.slot < 0 ? 0 : sequence.length;
  return sum;
}

static std::string text(int64_t number) { return std::to_string(number); }
static std::string quoted(const std::string &name) { return "'" + name + "'"; }

Error wrong(const std::string &tensor, const std::string &what, int64_t got,
            const std::string &expected) {
  return {"",
          "tensor " + quoted(tensor) + " has " + what + " " + text(got) +
              ", expected " + expected,
          {}};
}

Status checkCount(const char *what, size_t got, size_t expected,
                  bool optional) {
  if (got == expected || (optional && got == 0))
    return Status::ok();
  return Error{"",
               "got " + text(int64_t(got)) + " " + what + ", expected " +
                   text(int64_t(expected)),
               {}};
}

bool hasRows(const ManifestTensor &state, const RunArgs &args) {
  return state.grows && !(args.growingRows.empty() && args.rowTables.empty());
}

std::optional<int64_t> firstExtent(const Manifest &manifest,
                                   const RunArgs &args,
                                   const std::vector<TensorView> &views) {
  for (size_t i = 0; i < std::min(views.size(), manifest.states.size()); ++i)
    if (!hasRows(manifest.states[i], args))
      return views[i].shape[0];
  return std::nullopt;
}

namespace {

/// B and T, which all inputs must share; H, which is the largest.
Status findSizes(const Manifest &manifest, const RunArgs &args,
                 Problem &problem) {
  const auto &views = args.inputs.empty() ? args.outputs : args.inputs;
  const auto &tensors =
      args.inputs.empty() ? manifest.outputs : manifest.inputs;
  if (!views.empty()) {
    problem.batch = views[0].shape[0];
    problem.tokens = views[0].shape[1];
  }
  for (size_t i = 0; i < views.size(); ++i) {
    const char *axes[] = {"B =", "T ="};
    const int64_t expected[] = {problem.batch, problem.tokens};
    for (int axis = 0; axis < 2; ++axis)
      if (views[i].shape[axis] != expected[axis]) {
        Error error = wrong(tensors[i].name, axes[axis], views[i].shape[axis],
                            text(expected[axis]));
        error.notes.push_back(std::string(axes[axis]) + " " +
                              text(expected[axis]) + " comes from " +
                              quoted(tensors[0].name));
        return error;
      }
  }
  const std::string *from = nullptr;
  auto widen = [&](const std::vector<TensorView> &list,
                   const std::vector<ManifestTensor> &names, int axis) {
    for (size_t i = 0; i < list.size(); ++i)
      if (!from || list[i].shape[axis] > problem.heads) {
        problem.heads = list[i].shape[axis];
        from = &names[i].name;
      }
  };
  widen(args.inputs, manifest.inputs, 2);
  widen(args.params, manifest.params, 2);
  widen(args.initialStates, manifest.states, 1);
  if (problem.heads < 1)
    return wrong(from ? *from : manifest.layer, "H =", problem.heads,
                 "at least 1");
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    int64_t heads = args.inputs[i].shape[2];
    if (heads < 1 || problem.heads % heads != 0) {
      Error error = wrong(manifest.inputs[i].name, "H =", heads,
                          "a divisor of " + text(problem.heads));
      error.notes.push_back("H = " + text(problem.heads) + " comes from " +
                            quoted(*from));
      return error;
    }
    problem.group.push_back(problem.heads / heads);
  }
  for (size_t s = 0; s < manifest.states.size(); ++s) {
    std::optional<size_t> input = manifest.rowsInput(s);
    problem.stateGroup.push_back(input ? problem.group[*input] : 1);
  }
  return Status::ok();
}

Status checkIndices(const IndexView &view, const char *name) {
  if (view.dtype != DType::I32 && view.dtype != DType::I64)
    return Error{"",
                 "tensor " + quoted(name) + " has dtype " +
                     std::string(plum::name(view.dtype)) +
                     ", expected i32 or i64",
                 {}};
  return Status::ok();
}

Status checkPacked(const IndexView &cu, const Problem &problem) {
  if (Status status = checkIndices(cu, "cu_seqlens"); !status)
    return status;
  if (problem.batch != 1)
    return Error{"",
                 "'cu_seqlens' packs sequences along T, but the inputs have "
                 "B = " +
                     text(problem.batch) + ", expected 1",
                 {}};
  if (cu.count < 1)
    return Error{"", "'cu_seqlens' is empty, expected N + 1 values", {}};
  return Status::ok();
}

Status cutPacked(const IndexView &cu, Problem &problem) {
  auto bad = [&](int64_t i, const std::string &expected) {
    return Error{"",
                 "'cu_seqlens[" + text(i) + "]' is " + text(cu[i]) +
                     ", expected " + expected,
                 {}};
  };
  if (cu[0] != 0)
    return bad(0, "0");
  for (int64_t n = 0; n + 1 < cu.count; ++n) {
    if (cu[n + 1] < cu[n])
      return bad(n + 1, "at least " + text(cu[n]) + ", the value before it");
    if (cu[n + 1] > problem.tokens)
      return bad(n + 1, "at most T = " + text(problem.tokens));
    problem.sequences.push_back({0, cu[n], cu[n + 1] - cu[n], n, 0, n});
  }
  return Status::ok();
}

Status checkSlots(const Manifest &manifest, const RunArgs &args,
                  Problem &problem) {
  if (Status status = checkIndices(args.slots, "slots"); !status)
    return status;
  if (args.slots.count != problem.sequenceCount)
    return wrong("slots", "length", args.slots.count,
                 text(problem.sequenceCount) + ", one for each sequence");
  std::optional<int64_t> pool;
  for (const auto *views : {&args.initialStates, &args.finalStates})
    if (!pool)
      pool = firstExtent(manifest, args, *views);
  if (!pool)
    return Error{"", "'slots' index a pool of states, but there are none", {}};
  problem.pool = *pool;
  return Status::ok();
}

Status assignSlots(const RunArgs &args, Problem &problem) {
  const IndexView &slots = args.slots;
  std::vector<std::pair<int64_t, int64_t>> used;
  for (int64_t n = 0; n < slots.count; ++n) {
    int64_t slot = slots[n], pool = problem.pool;
    if (slot < -1 || slot >= pool)
      return Error{"",
                   "'slots[" + text(n) + "]' is " + text(slot) +
                       ", expected -1 or a slot below " + text(pool),
                   {}};
    problem.sequences[size_t(n)].slot = slot;
    if (slot >= 0)
      used.emplace_back(slot, n);
  }
  std::sort(used.begin(), used.end());
  for (size_t i = 1; i < used.size(); ++i)
    if (used[i].first == used[i - 1].first)
      return Error{"",
                   "'slots[" + text(used[i].second) + "]' is " +
                       text(used[i].first) + " as 'slots[" +
                       text(used[i - 1].second) +
                       "]' already is; sequences cannot share a state",
                   {}};
  return Status::ok();
}

} // namespace

Result<Problem> planSizes(const Manifest &manifest, const RunArgs &args) {
  Problem problem;
  if (Status s =
          checkCount("inputs", args.inputs.size(), manifest.inputs.size());
      !s)
    return s.error();
  if (Status s =
          checkCount("params", args.params.size(), manifest.params.size());
      !s)
    return s.error();
  if (Status s = checkCount("initial states", args.initialStates.size(),
                            manifest.states.size(), true);
      !s)
    return s.error();
  if (Status s = findSizes(manifest, args, problem); !s)
    return s.error();
  if (problem.batch < 0 || problem.tokens < 0)
    return Error{"", "a size is negative", {}};
  problem.sequenceCount = problem.batch;
  if (args.cuSeqlens) {
    if (Status s = checkPacked(args.cuSeqlens, problem); !s)
      return s.error();
    problem.sequenceCount = args.cuSeqlens.count - 1;
  }
  if (args.slots)
    if (Status s = checkSlots(manifest, args, problem); !s)
      return s.error();
  if ((args.past || args.appended || !args.growingRows.empty() ||
       !args.rowTables.empty()) &&
      !manifest.growingState())
    return Error{"",
                 "rows of growing states are given, but layer " +
                     quoted(manifest.layer) + " has no such state",
                 {}};
  if (args.snapshotEvery < 0)
    return Error{"",
                 "snapshots every " + text(args.snapshotEvery) +
                     " tokens, expected at least 1",
                 {}};
  return problem;
}

Result<Problem> planProblem(const Manifest &manifest, const RunArgs &args) {
  Result<Problem> planned = planSizes(manifest, args);
  if (!planned)
    return planned;
  Problem &problem = *planned;
  if (args.cuSeqlens) {
    if (Status s = cutPacked(args.cuSeqlens, problem); !s)
      return s.error();
  } else {
    for (int64_t b = 0; b < problem.batch; ++b)
      problem.sequences.push_back({b, 0, problem.tokens, b, 0, b});
  }
  if (args.slots)
    if (Status s = assignSlots(args, problem); !s)
      return s.error();
  if (Status s = assignPast(manifest, args, problem); !s)
    return s.error();
  for (Sequence &sequence : problem.sequences) {
    sequence.snapshot = problem.snapshotCount;
    if (args.snapshotEvery > 0 && sequence.slot >= 0)
      problem.snapshotCount += sequence.length / args.snapshotEvery;
  }
  return planned;
}

} // namespace plum::runtime
