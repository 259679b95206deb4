//===- Problem.cpp - Check the tensors of a run ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Growing.h"
#include "runtime/ProblemSizes.h"

#include <algorithm>

namespace plum::runtime {

TensorView TensorView::dense(void *data, DType dtype, int64_t a, int64_t b,
                             int64_t c, int64_t d) {
  // Unsigned: strides of an empty tensor may wrap, nobody follows them.
  uint64_t row = uint64_t(c) * uint64_t(d), plane = uint64_t(b) * row;
  return {data, dtype, {a, b, c, d}, {int64_t(plane), int64_t(row), d, 1}};
}

namespace {

std::string text(int64_t number) { return std::to_string(number); }
std::string quoted(const std::string &name) { return "'" + name + "'"; }

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
  if (Status s = checkDeviceGrowing(manifest, args, *planned); !s)
    return s.error();
  return planned;
}

} // namespace plum::runtime
