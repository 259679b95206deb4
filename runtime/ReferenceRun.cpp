//===- ReferenceRun.cpp - The truth about a run ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/ReferenceRun.h"

#include "plum/Frontend/Frontend.h"
#include "plum/Reference/Recurrence.h"
#include "runtime/Growing.h"
#include "runtime/StatePort.h"

#include <fstream>
#include <iterator>

namespace plum::runtime {

struct Reference::Spec {
  Source source;
  Diagnostics diags;
  std::unique_ptr<frontend::Layer> layer;
  explicit Spec(Source text) : source(std::move(text)), diags(source) {}
};

Reference::Reference() = default;
Reference::Reference(Reference &&) noexcept = default;
Reference::~Reference() = default;

/// Names in the same order, and as many elements each.
static bool sameSignature(const std::vector<const frontend::Symbol *> &symbols,
                          const std::vector<ManifestTensor> &tensors) {
  if (symbols.size() != tensors.size())
    return false;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const frontend::Shape &shape = symbols[i]->shape;
    bool grows = shape.kind == frontend::Shape::List;
    if (symbols[i]->name != tensors[i].name || grows != tensors[i].grows ||
        (grows ? 1 : shape.rows) * shape.cols != tensors[i].elements())
      return false;
  }
  return true;
}

Result<Reference> Reference::load(const Bundle &bundle) {
  const Manifest &manifest = bundle.manifest();
  std::string path = bundle.directory() + "/" + manifest.source;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{path, "cannot be read; it holds the layer's equations", {}};
  std::string text{std::istreambuf_iterator<char>(file), {}};

  Reference reference;
  reference.manifest = &manifest;
  reference.spec = std::make_unique<Spec>(Source(path, std::move(text)));
  frontend::SpecOptions options;
  options.dims = {manifest.dims.begin(), manifest.dims.end()};
  options.layer = manifest.layer;
  options.stepOnly = true; // The recurrence needs no affine form.
  Spec &spec = *reference.spec;
  spec.layer = frontend::parseSpec(spec.diags, options);
  if (!spec.layer)
    return Error{
        path, "does not compile any more:\n" + spec.diags.render(), {}};
  const frontend::Layer &layer = *spec.layer;
  if (!sameSignature(layer.params, manifest.params) ||
      !sameSignature(layer.inputs, manifest.inputs) ||
      !sameSignature(layer.states, manifest.states) ||
      !sameSignature(layer.outputs, manifest.outputs))
    return Error{path,
                 "declares other tensors than manifest.json does: the bundle's "
                 "files do not belong together",
                 {}};
  return reference;
}

namespace {

/// Copies between one head's dense [T, d] and the [T, H, d] of a result.
void putHead(const std::vector<double> &from, std::vector<double> &to,
             int64_t tokens, int64_t heads, int64_t head, int64_t d) {
  for (int64_t t = 0; t < tokens; ++t)
    std::copy_n(from.begin() + t * d, d, to.begin() + (t * heads + head) * d);
}

std::vector<double> headRows(const TensorView &view, int64_t batch,
                             int64_t begin, int64_t length, int64_t head) {
  int64_t d = view.shape[3];
  std::vector<double> values(size_t(length * d));
  for (int64_t t = 0; t < length; ++t)
    for (int64_t c = 0; c < d; ++c)
      values[size_t(t * d + c)] =
          loadAsDouble(view.at(batch, begin + t, head), view.dtype, size_t(c));
  return values;
}

} // namespace

std::vector<double> sequenceRows(const TensorView &view,
                                 const Sequence &sequence) {
  int64_t heads = view.shape[2], d = view.shape[3];
  std::vector<double> values(size_t(sequence.length * heads * d));
  for (int64_t head = 0; head < heads; ++head)
    putHead(
        headRows(view, sequence.batch, sequence.begin, sequence.length, head),
        values, sequence.length, heads, head, d);
  return values;
}

namespace {

/// A state of either kind, head by head, dense in float64.
struct HeadStates {
  bool grows;
  int64_t size; ///< Of [K, V], or of a row.
  StatePort port;
  GrowingPort list;

  HeadStates(const Manifest &manifest, const RunArgs &args,
             const std::vector<TensorView> &views, size_t state)
      : grows(manifest.states[state].grows),
        size(manifest.states[state].elements()) {
    if (grows)
      list = GrowingPort::of(manifest, args, views, state);
    else
      port = StatePort::of(manifest.states[state], args.layout, views, state);
  }

  bool given() const { return grows ? list.given() : port.view != nullptr; }
  /// After the run.
  int64_t elements(const Sequence &sequence) const {
    return grows ? sequence.rows() * size : size;
  }
  void load(const Sequence &sequence, int64_t head, int64_t rows,
            double *to) const {
    if (!grows)
      return port.load(sequence.slot, head, to);
    for (int64_t row = 0; row < rows; ++row)
      list.load(sequence, head, row, to + row * size);
  }
  void store(const Sequence &sequence, int64_t head, const double *from) const {
    if (!grows) {
      std::vector<float> dense(from, from + size);
      return port.store(sequence.slot, head, dense.data());
    }
    for (int64_t row = 0; row < sequence.rows(); ++row)
      list.store(sequence, head, row, from + row * size);
  }
};

} // namespace

std::vector<double> finalState(const Manifest &manifest, const RunArgs &args,
                               const Problem &problem, const Sequence &sequence,
                               size_t state) {
  HeadStates states(manifest, args, args.finalStates, state);
  int64_t n = states.elements(sequence), heads = problem.stateHeads(state);
  std::vector<double> values(size_t(heads * n));
  for (int64_t head = 0; head < heads; ++head)
    states.load(sequence, head, sequence.rows(), values.data() + head * n);
  return values;
}

void storeFinalStates(const Manifest &manifest, const RunArgs &args,
                      const Problem &problem, const ReferenceSequence &result) {
  for (size_t s = 0; s < manifest.states.size(); ++s) {
    HeadStates states(manifest, args, args.finalStates, s);
    int64_t n = states.elements(result.sequence);
    for (int64_t head = 0; head < problem.stateHeads(s) && states.given();
         ++head)
      states.store(result.sequence, head, result.states[s].data() + head * n);
  }
}

std::vector<ReferenceSequence>
runHeads(const Manifest &manifest, const RunArgs &args, const Problem &problem,
         ThreadPool &pool,
         const std::function<void(reference::Head &)> &runHead,
         std::atomic<int64_t> *progress) {
  std::vector<ReferenceSequence> results;
  for (const Sequence &sequence : problem.sequences) {
    if (sequence.slot < 0)
      continue;
    ReferenceSequence &result = results.emplace_back();
    result.sequence = sequence;
    for (const ManifestTensor &output : manifest.outputs)
      result.outputs.emplace_back(
          size_t(sequence.length * problem.heads * output.elements()));
    for (size_t s = 0; s < manifest.states.size(); ++s) {
      const ManifestTensor &state = manifest.states[s];
      result.states.emplace_back(
          size_t(problem.stateHeads(s) * state.elements() *
                 (state.grows ? sequence.rows() : 1)));
    }
  }

  auto pair = [&](int, int64_t index) {
    ReferenceSequence &result = results[size_t(index / problem.heads)];
    const Sequence &sequence = result.sequence;
    int64_t h = index % problem.heads, length = sequence.length;
    std::vector<std::vector<double>> params, inputs, outputs, lists;
    reference::Head head;
    head.tokens = length;
    head.past = sequence.past;
    // Spans are taken when the vectors no longer move.
    for (const TensorView &view : args.params)
      params.push_back(headRows(view, 0, 0, 1, h));
    for (size_t i = 0; i < args.inputs.size(); ++i)
      inputs.push_back(headRows(args.inputs[i], sequence.batch, sequence.begin,
                                length, h / problem.group[i]));
    for (const ManifestTensor &output : manifest.outputs)
      outputs.emplace_back(size_t(length * output.elements()));
    head.params.assign(params.begin(), params.end());
    head.inputs.assign(inputs.begin(), inputs.end());
    head.outputs.assign(outputs.begin(), outputs.end());
    for (size_t s = 0; s < manifest.states.size(); ++s) {
      HeadStates initial(manifest, args, args.initialStates, s);
      int64_t n = initial.elements(sequence), group = problem.stateGroup[s];
      // Heads that share a list make the same of it; the first of them keeps
      // it.
      std::span<double> state =
          h % group == 0
              ? std::span(result.states[s].data() + h / group * n, size_t(n))
              : lists.emplace_back(size_t(n));
      if (initial.given())
        initial.load(sequence, h / group, sequence.past, state.data());
      head.states.push_back(state);
    }
    runHead(head);
    for (size_t i = 0; i < outputs.size(); ++i)
      putHead(outputs[i], result.outputs[i], length, problem.heads, h,
              manifest.outputs[i].elements());
    if (progress)
      progress->fetch_add(1, std::memory_order_relaxed);
  };
  pool.run(ThreadPool::available(), int64_t(results.size()) * problem.heads,
           pair);
  return results;
}

std::vector<ReferenceSequence>
Reference::run(const RunArgs &args, const Problem &problem, ThreadPool &pool,
               std::atomic<int64_t> *progress) const {
  auto runHead = [&](reference::Head &head) {
    reference::run(*spec->layer, head);
  };
  return runHeads(*manifest, args, problem, pool, runHead, progress);
}

} // namespace plum::runtime
