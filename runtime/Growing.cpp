//===- Growing.cpp - Check the lists of rows of a run ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Growing.h"

#include <functional>

namespace plum::runtime {

static std::string text(int64_t number) { return std::to_string(number); }

static Status bad(const std::string &message) { return Error{"", message, {}}; }

/// What `args` gives for each growing state: its index among all states, and
/// among those that grow.
static Status
eachGrowing(const Manifest &manifest,
            const std::function<Status(size_t state, size_t nth)> &body) {
  size_t nth = 0;
  for (size_t s = 0; s < manifest.states.size(); ++s)
    if (manifest.states[s].grows)
      if (Status status = body(s, nth++); !status)
        return status;
  return Status::ok();
}

GrowingPort GrowingPort::of(const Manifest &manifest, const RunArgs &args,
                            const std::vector<TensorView> &views,
                            size_t state) {
  GrowingPort port;
  port.d = manifest.states[state].elements();
  if (args.growingRows.empty()) {
    port.view = views.empty() ? nullptr : &views[state];
    return port;
  }
  size_t nth = 0;
  for (size_t s = 0; s < state; ++s)
    nth += manifest.states[s].grows;
  port.lists = &args.growingRows[nth];
  port.headStride = args.growingHeadStride[nth];
  return port;
}

GrowingList::GrowingList(const Manifest &manifest, const RunArgs &args,
                         const Problem &problem, size_t state, bool shared)
    : initial(GrowingPort::of(manifest, args, args.initialStates, state)),
      final(GrowingPort::of(manifest, args, args.finalStates, state)),
      group(problem.stateGroup[state]), same(initial.sameAs(final)) {
  if (shared)
    input = &args.inputs[*manifest.rowsInput(state)];
  if (final.inPlace())
    return;
  for (const Sequence &sequence : problem.sequences)
    if (sequence.slot >= 0)
      room = std::max(room, sequence.rows());
}

void GrowingList::copyPast(const plum_rows &rows, const Sequence &sequence,
                           int64_t head) const {
  for (int64_t row = 0; row < sequence.past; ++row)
    initial.load(sequence, head / group, row, GrowingPort::rowAt(rows, row));
}

void GrowingList::appendInput(const plum_rows &rows, const Sequence &sequence,
                              int64_t head) const {
  for (int64_t t = 0; t < sequence.length; ++t) {
    const void *from =
        input->at(sequence.batch, sequence.begin + t, head / group);
    float *to = GrowingPort::rowAt(rows, sequence.past + t);
    if (input->dtype == DType::F32)
      std::copy_n(static_cast<const float *>(from), final.d, to);
    else
      for (int64_t c = 0; c < final.d; ++c)
        to[c] = float(loadAsDouble(from, input->dtype, size_t(c)));
  }
}

void GrowingList::prepare(const Sequence &sequence, int64_t head) const {
  if (!input || !final.inPlace() || head % group != 0)
    return;
  plum_rows rows = final.rows(sequence, head / group);
  if (!same)
    copyPast(rows, sequence, head);
  appendInput(rows, sequence, head);
}

plum_rows GrowingList::load(float *scratch, const Sequence &sequence,
                            int64_t head) const {
  bool direct = final.inPlace();
  plum_rows rows = direct
                       ? final.rows(sequence, head / group)
                       : plum_rows{scratch, final.d * int64_t(sizeof(float))};
  if (!direct || (!same && !input))
    copyPast(rows, sequence, head);
  if (!direct && input)
    appendInput(rows, sequence, head);
  return rows;
}

void GrowingList::store(const plum_rows &rows, const Sequence &sequence,
                        int64_t head) const {
  if (final.inPlace() || !final.given() || head % group != 0)
    return;
  for (int64_t row = same ? sequence.past : 0; row < sequence.rows(); ++row)
    final.store(sequence, head / group, row, GrowingPort::rowAt(rows, row));
}

/// The values of `past`, which count for sequences or for the slots of a pool.
static Status checkPast(const RunArgs &args, bool pooled, int64_t expected) {
  const IndexView &past = args.past;
  if (past.dtype != DType::I32 && past.dtype != DType::I64)
    return bad("tensor 'past' has dtype " + std::string(name(past.dtype)) +
               ", expected i32 or i64");
  if (past.count != expected)
    return bad("tensor 'past' has length " + text(past.count) + ", expected " +
               text(expected) + ", one for each " +
               (pooled ? "slot" : "sequence"));
  return Status::ok();
}

Status assignPast(const Manifest &manifest, const RunArgs &args,
                  Problem &problem) {
  const ManifestTensor *first = manifest.growingState();
  if (!first)
    return Status::ok();
  bool lists = !args.growingRows.empty(), given = !args.initialStates.empty();
  bool pooled = args.slots && !lists;
  if (args.past)
    if (Status s = checkPast(args, pooled,
                             pooled ? problem.pool : problem.sequenceCount);
        !s)
      return s;
  // The rows of an initial view: how many there can be, and are by default.
  std::optional<int64_t> least, shared;
  std::string leastName;
  if (given && !lists)
    if (Status s = eachGrowing(
            manifest,
            [&](size_t state, size_t) -> Status {
              const std::string &name = manifest.states[state].name;
              int64_t rows = args.initialStates[state].shape[2];
              if (!args.past && shared && rows != *shared)
                return bad("tensor '" + name + "' has " + text(rows) +
                           " rows, expected " + text(*shared) + ", as '" +
                           first->name + "' has");
              shared = rows;
              if (!least || rows < *least) {
                least = rows;
                leastName = name;
              }
              return Status::ok();
            });
        !s)
      return s;
  for (Sequence &sequence : problem.sequences) {
    if (sequence.slot < 0)
      continue;
    int64_t i = pooled ? sequence.slot : sequence.index;
    int64_t past = args.past ? args.past[i] : least.value_or(0);
    auto wrong = [&](const std::string &expected) {
      return bad("'past[" + text(i) + "]' is " + text(past) + ", expected " +
                 expected);
    };
    if (past < 0)
      return wrong("at least 0");
    if (past > 0 && !lists && !least)
      return wrong("0, as no initial states are given");
    if (least && past > *least)
      return wrong("at most " + text(*least) + ", the rows of '" + leastName +
                   "'");
    int64_t all;
    if (__builtin_add_overflow(past, sequence.length, &all))
      return wrong("less, with " + text(sequence.length) + " tokens to come");
    sequence.past = past;
  }
  return Status::ok();
}

/// The rows of each sequence on their own.
static Status checkLists(const std::string &state,
                         const std::vector<plum_rows> &lists,
                         int64_t headStride, const Problem &problem) {
  constexpr auto width = int64_t(sizeof(float));
  if (int64_t(lists.size()) != problem.sequenceCount)
    return bad("got rows of " + text(int64_t(lists.size())) +
               " sequences for '" + state + "', expected " +
               text(problem.sequenceCount));
  for (const Sequence &sequence : problem.sequences) {
    const plum_rows &list = lists[size_t(sequence.index)];
    if (sequence.slot < 0 || sequence.rows() == 0)
      continue;
    std::string where =
        "the rows of '" + state + "' of sequence " + text(sequence.index);
    if (!list.data)
      return bad(where + " have no data");
    if (reinterpret_cast<uintptr_t>(list.data) % width != 0 ||
        list.stride % width != 0 || headStride % width != 0)
      return bad(where + " are not aligned to their element size");
  }
  return Status::ok();
}

static int64_t countGrowing(const Manifest &manifest) {
  return std::count_if(manifest.states.begin(), manifest.states.end(),
                       [](const ManifestTensor &state) { return state.grows; });
}

Status checkGrowing(const Manifest &manifest, const RunArgs &args,
                    const Problem &problem) {
  if (!args.rowTables.empty() || args.appended)
    return bad("tables of where rows are, and rows that are there before a "
               "run, are for a GPU only");
  if (!args.growingRows.empty()) {
    const int64_t count = countGrowing(manifest);
    for (size_t got : {args.growingRows.size(), args.growingHeadStride.size()})
      if (int64_t(got) != count)
        return bad("got rows or head strides of " + text(int64_t(got)) +
                   " growing states, expected " + text(count));
    return eachGrowing(manifest, [&](size_t state, size_t nth) {
      return checkLists(manifest.states[state].name, args.growingRows[nth],
                        args.growingHeadStride[nth], problem);
    });
  }
  if (args.finalStates.empty())
    return Status::ok();
  return eachGrowing(manifest, [&](size_t state, size_t) -> Status {
    int64_t room = args.finalStates[state].shape[2];
    for (const Sequence &sequence : problem.sequences)
      if (sequence.slot >= 0 && sequence.rows() > room)
        return bad("tensor '" + manifest.states[state].name +
                   "' has room for " + text(room) +
                   " rows, expected at least " + text(sequence.rows()) +
                   ": sequence " + text(sequence.index) + " holds " +
                   text(sequence.past) + " and adds " + text(sequence.length));
    return Status::ok();
  });
}

int64_t defaultPast(const Manifest &manifest, const RunArgs &args) {
  for (size_t i = 0; i < args.initialStates.size(); ++i)
    if (manifest.states[i].grows && args.rowTables.empty())
      return args.initialStates[i].shape[2];
  return 0;
}

/// Tables in place of views.
static Status checkTables(const Manifest &manifest, const RunArgs &args) {
  if (auto got = int64_t(args.rowTables.size()); got != countGrowing(manifest))
    return bad("got tables of " + text(got) + " growing states, expected " +
               text(countGrowing(manifest)));
  return eachGrowing(manifest, [&](size_t state, size_t nth) -> Status {
    const RowTable &table = args.rowTables[nth];
    const std::string where = "the table of '" + manifest.states[state].name;
    if (table.dtype != DType::F32 && table.dtype != DType::BF16)
      return bad(where + "' has rows of " + std::string(name(table.dtype)) +
                 ", expected f32 or bf16");
    const auto width = int64_t(byteSize(table.dtype));
    const int64_t rowBytes = manifest.states[state].elements() * width,
                  unit = rowBytes % 16 == 0 ? 16 : width;
    for (int64_t stride : {table.rowStride, table.headStride, table.base})
      if (stride % unit != 0)
        return bad(where + "' has a stride or base of " + text(stride) +
                   " bytes, expected a multiple of " + text(unit));
    return Status::ok();
  });
}

Status checkDeviceGrowing(const Manifest &manifest, const RunArgs &args,
                          const Problem &problem) {
  const ManifestTensor *first = manifest.growingState();
  if (!first)
    return Status::ok();
  if (!args.growingRows.empty())
    return bad("rows of each sequence on their own do not run on a GPU, "
               "expected views of '" +
               first->name + "' or tables of where they are");
  for (const ManifestTensor &state : manifest.states)
    if (args.appended && state.rows.empty())
      return bad("rows of '" + state.name +
                 "' are computed from the inputs, so they cannot be there "
                 "before the run");
  if (args.finalStates.empty() && args.rowTables.empty())
    return bad("state '" + first->name +
               "' grows and has no final view: on a GPU rows are appended to "
               "the caller's memory");
  const bool pooled = bool(args.slots);
  if (args.past)
    if (Status s = checkPast(args, pooled,
                             pooled ? problem.pool : problem.sequenceCount);
        !s)
      return s;
  if (!args.rowTables.empty())
    return checkTables(manifest, args);
  const int64_t past = defaultPast(manifest, args);
  // The tokens of packed sequences are known to the GPU alone.
  const int64_t least =
      (args.past ? 0 : past) + (args.cuSeqlens ? 0 : problem.tokens);
  return eachGrowing(manifest, [&](size_t state, size_t) -> Status {
    const std::string &name = manifest.states[state].name;
    if (!args.past && !args.initialStates.empty() &&
        args.initialStates[state].shape[2] != past)
      return bad("tensor '" + name + "' has " +
                 text(args.initialStates[state].shape[2]) + " rows, expected " +
                 text(past) + ", as '" + first->name + "' has");
    if (int64_t room = args.finalStates[state].shape[2]; room < least)
      return bad("tensor '" + name + "' has room for " + text(room) +
                 " rows, expected at least " + text(least));
    for (const auto *views : {&args.initialStates, &args.finalStates})
      if (!views->empty() && (*views)[state].shape[3] > 1 &&
          (*views)[state].stride[3] != 1)
        return bad("tensor '" + name + "' has stride " +
                   text((*views)[state].stride[3]) +
                   " along its last axis, expected 1: on a GPU the rows of a "
                   "growing state must be contiguous");
    return Status::ok();
  });
}

} // namespace plum::runtime
