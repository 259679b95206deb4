//===- Problem.cpp - Check the tensors of a run ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Problem.h"

#include "runtime/Growing.h"

#include <algorithm>

namespace plum::runtime {

TensorView TensorView::dense(void *data, DType dtype, int64_t a, int64_t b,
                             int64_t c, int64_t d) {
  // Unsigned: strides of an empty tensor may wrap, nobody follows them.
  uint64_t row = uint64_t(c) * uint64_t(d), plane = uint64_t(b) * row;
  return {data, dtype, {a, b, c, d}, {int64_t(plane), int64_t(row), d, 1}};
}

int64_t Problem::activeTokens() const {
  int64_t sum = 0;
  for (const Sequence &sequence : sequences)
    sum += sequence.slot < 0 ? 0 : sequence.length;
  return sum;
}

namespace {

std::string text(int64_t number) { return std::to_string(number); }
std::string quoted(const std::string &name) { return "'" + name + "'"; }

Error wrong(const std::string &tensor, const std::string &what, int64_t got,
            const std::string &expected) {
  return {"",
          "tensor " + quoted(tensor) + " has " + what + " " + text(got) +
              ", expected " + expected,
          {}};
}

/// As many views as tensors are declared; `optional` allows none at all.
Status checkCount(const char *what, size_t got, size_t expected,
                  bool optional = false) {
  if (got == expected || (optional && got == 0))
    return Status::ok();
  return Error{"",
               "got " + text(int64_t(got)) + " " + what + ", expected " +
                   text(int64_t(expected)),
               {}};
}

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

/// That growingRows stand for the views of this state.
bool hasRows(const ManifestTensor &state, const RunArgs &args) {
  return state.grows && !args.growingRows.empty();
}

/// The first axis of the first view that counts; all states share it.
std::optional<int64_t> firstExtent(const Manifest &manifest,
                                   const RunArgs &args,
                                   const std::vector<TensorView> &views) {
  for (size_t i = 0; i < std::min(views.size(), manifest.states.size()); ++i)
    if (!hasRows(manifest.states[i], args))
      return views[i].shape[0];
  return std::nullopt;
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

/// Checks dtype (`also` is a second one allowed), axes and addresses.
Status checkView(const TensorView &view, const std::string &name, DType dtype,
                 std::optional<DType> also, const int64_t (&expected)[4],
                 bool contiguousRow, bool device) {
  if (view.dtype != dtype && view.dtype != also)
    return Error{"",
                 "tensor " + quoted(name) + " has dtype " +
                     std::string(plum::name(view.dtype)) + ", expected " +
                     std::string(plum::name(dtype)) +
                     (also ? " or " + std::string(plum::name(*also)) : ""),
                 {}};
  auto shape = [](const int64_t (&s)[4]) {
    return "[" + text(s[0]) + "," + text(s[1]) + "," + text(s[2]) + "," +
           text(s[3]) + "]";
  };
  if (!std::equal(expected, expected + 4, view.shape))
    return Error{"",
                 "tensor " + quoted(name) + " has shape " + shape(view.shape) +
                     ", expected " + shape(expected),
                 {}};
  if (view.elements() == 0)
    return Status::ok();
  if (!view.data && !device)
    return Error{"", "tensor " + quoted(name) + " has no data", {}};
  if (reinterpret_cast<uintptr_t>(view.data) % byteSize(view.dtype) != 0)
    return Error{"",
                 "tensor " + quoted(name) +
                     " is not aligned to its element size",
                 {}};
  if (contiguousRow && view.shape[3] > 1 && view.stride[3] != 1)
    return wrong(name, "stride", view.stride[3],
                 "1 along its last axis: the values of one token and head "
                 "must be contiguous");
  return Status::ok();
}

Status checkStates(const Manifest &manifest, const RunArgs &args,
                   const Problem &problem, const std::vector<TensorView> &views,
                   const char *what, std::optional<int64_t> count,
                   bool device) {
  bool kept = &views == &args.snapshots;
  if (Status s = checkCount(what, views.size(), manifest.states.size(), true);
      !s)
    return s;
  for (size_t i = 0; i < views.size(); ++i) {
    const ManifestTensor &state = manifest.states[i];
    if (hasRows(state, args) || (state.grows && kept))
      continue;
    auto [rows, cols] = stateExtents(state, args.layout);
    if (state.grows) // Whether they are enough, checkGrowing says.
      rows = std::max<int64_t>(views[i].shape[2], 0);
    // A pool has as many slots as it has.
    int64_t slots =
        firstExtent(manifest, args, views).value_or(views[i].shape[0]);
    int64_t expected[] = {count.value_or(slots), problem.stateHeads(i), rows,
                          cols};
    if (Status s = checkView(views[i], state.name, DType::F32, DType::BF16,
                             expected, false, device);
        !s)
      return s;
    for (const Sequence &sequence : problem.sequences)
      if (!count && sequence.slot >= views[i].shape[0])
        return wrong(state.name, "pool size", views[i].shape[0],
                     "more than slot " + text(sequence.slot));
  }
  return Status::ok();
}

} // namespace

std::pair<int64_t, int64_t> stateExtents(const ManifestTensor &state,
                                         StateLayout layout) {
  if (state.shape.size() < 2)
    return {1, state.elements()};
  if (layout == StateLayout::VK)
    return {state.shape[1], state.shape[0]};
  return {state.shape[0], state.shape[1]};
}

/// B, T, H and what needs no look at the lengths of sequences.
static Result<Problem> planSizes(const Manifest &manifest,
                                 const RunArgs &args) {
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
  if ((args.past || !args.growingRows.empty()) && !manifest.growingState())
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

/// Every view of `args`, given the sizes; without data when `device`.
static Status checkViews(const Manifest &manifest, const RunArgs &args,
                         const Problem &p, bool device) {
  if (Status s =
          checkCount("outputs", args.outputs.size(), manifest.outputs.size());
      !s)
    return s;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const ManifestTensor &tensor = manifest.inputs[i];
    int64_t expected[] = {p.batch, p.tokens, p.heads / p.group[i],
                          tensor.elements()};
    if (Status s = checkView(args.inputs[i], tensor.name, tensor.dtype, {},
                             expected, true, device);
        !s)
      return s;
  }
  for (size_t i = 0; i < args.params.size(); ++i) {
    const ManifestTensor &tensor = manifest.params[i];
    int64_t expected[] = {1, 1, p.heads, tensor.elements()};
    if (Status s = checkView(args.params[i], tensor.name, tensor.dtype, {},
                             expected, true, device);
        !s)
      return s;
  }
  for (size_t i = 0; i < args.outputs.size(); ++i) {
    const ManifestTensor &tensor = manifest.outputs[i];
    int64_t expected[] = {p.batch, p.tokens, p.heads, tensor.elements()};
    if (Status s = checkView(args.outputs[i], tensor.name, tensor.dtype, {},
                             expected, true, device);
        !s)
      return s;
  }
  std::optional<int64_t> count;
  if (!args.slots)
    count = p.sequenceCount;
  if (Status s = checkStates(manifest, args, p, args.initialStates,
                             "initial states", count, device);
      !s)
    return s;
  if (Status s = checkStates(manifest, args, p, args.finalStates,
                             "final states", count, device);
      !s)
    return s;
  if (args.snapshotEvery > 0)
    if (Status s = checkStates(manifest, args, p, args.snapshots, "snapshots",
                               p.snapshotCount, device);
        !s)
      return s;
  return Status::ok();
}

Result<Problem> checkProblem(const Manifest &manifest, const RunArgs &args) {
  Result<Problem> planned = planProblem(manifest, args);
  if (!planned)
    return planned;
  if (Status s = checkViews(manifest, args, *planned, false); !s)
    return s.error();
  if (Status s = checkGrowing(manifest, args, *planned); !s)
    return s.error();
  return planned;
}

/// Snapshots of packed sequences: there is room for as many as there can be,
/// whatever the lengths, which only the GPU knows.
static Status checkRoom(const Manifest &manifest, const RunArgs &args,
                        int64_t most, Problem &problem) {
  for (size_t i = 0; i < args.snapshots.size(); ++i)
    if (int64_t room = args.snapshots[i].shape[0]; room < most)
      return Error{"",
                   "there is room for " + text(room) + " snapshots of state " +
                       quoted(manifest.states[i].name) +
                       ", expected at least " + text(most),
                   {"packed sequences of " + text(problem.tokens) +
                    " tokens have at most T / " + text(args.snapshotEvery) +
                    "; how many, only the GPU knows"}};
  problem.snapshotCount =
      firstExtent(manifest, args, args.snapshots).value_or(most);
  return Status::ok();
}

Result<Problem> checkDeviceProblem(const Manifest &manifest,
                                   const RunArgs &args) {
  if (const ManifestTensor *state = manifest.growingState())
    return Error{"",
                 "state " + quoted(state->name) +
                     " grows, which no kernel for a GPU supports",
                 {}};
  Result<Problem> planned = planSizes(manifest, args);
  if (!planned)
    return planned;
  if (args.snapshotEvery > 0) {
    const int64_t most = planned->tokens / args.snapshotEvery;
    planned->snapshotCount = planned->batch * most;
    if (args.cuSeqlens)
      if (Status s = checkRoom(manifest, args, most, *planned); !s)
        return s.error();
  }
  if (Status s = checkViews(manifest, args, *planned, true); !s)
    return s.error();
  return planned;
}

} // namespace plum::runtime
