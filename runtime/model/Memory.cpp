//===- Memory.cpp - The compiled layers inside of a model -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Memory.h"

#include "plum/Frontend/Frontend.h"
#include "plum/Reference/Recurrence.h"
#include "runtime/Executor.h"
#include "runtime/ReferenceRun.h"
#include "runtime/StatePort.h"
#include "runtime/model/Backend.h"
#include "runtime/model/Config.h"
#include "runtime/model/SpecTexts.h"

namespace plum::model {

using runtime::Bundle;
using runtime::Executor;
using runtime::Manifest;
using runtime::ManifestTensor;
using runtime::Problem;
using runtime::ReferenceSequence;
using runtime::RunArgs;
using runtime::RunOptions;
using runtime::Sequence;
using runtime::StatePort;
using runtime::TensorView;

std::string_view MemorySpec::text() const {
  for (auto [name, text] : specTexts)
    if (layer == name)
      return text;
  return {};
}

std::string MemorySpec::key() const {
  std::string key = layer;
  for (const auto &[name, value] : dims)
    key += "." + name + std::to_string(value);
  return key;
}

namespace {

class CompiledKernel : public MemoryKernel {
public:
  explicit CompiledKernel(Bundle loaded)
      : bundle(std::move(loaded)), executor(bundle) {}
  const Manifest &manifest() const override { return bundle.manifest(); }
  Status run(const RunArgs &args, const RunOptions &options) override {
    return executor.run(args, options);
  }

private:
  Bundle bundle;
  Executor executor;
};

/// The recurrence as it stands in the spec.
class ReferenceKernel : public MemoryKernel {
public:
  explicit ReferenceKernel(const MemorySpec &spec)
      : source(spec.layer + ".plum", std::string(spec.text())), diags(source) {
    frontend::SpecOptions options;
    options.dims = spec.dims;
    options.layer = spec.layer;
    layer = frontend::parseSpec(diags, options);
    if (!layer)
      return;
    info.layer = spec.layer;
    info.target = "cpu";
    auto describe = [&](const std::vector<const frontend::Symbol *> &symbols) {
      std::vector<ManifestTensor> tensors;
      for (const frontend::Symbol *symbol : symbols) {
        ManifestTensor &tensor = tensors.emplace_back();
        tensor.name = symbol->name;
        if (symbol->shape.kind == frontend::Shape::Matrix)
          tensor.shape.push_back(symbol->shape.rows);
        if (symbol->shape.kind != frontend::Shape::Scalar)
          tensor.shape.push_back(symbol->shape.cols);
        tensor.grows = symbol->shape.kind == frontend::Shape::List;
        if (const frontend::Symbol *rows = layer->rowsOf(*symbol))
          tensor.rows = rows->name;
      }
      return tensors;
    };
    info.params = describe(layer->params);
    info.inputs = describe(layer->inputs);
    info.states = describe(layer->states);
    info.outputs = describe(layer->outputs);
  }
  bool good() const { return layer != nullptr; }
  const Manifest &manifest() const override { return info; }

  Status run(const RunArgs &args, const RunOptions &) override {
    Result<Problem> problem = checkProblem(info, args);
    if (!problem)
      return problem.error();
    if (args.snapshotEvery == 0)
      return finish(args, *problem);
    // A piece at a time, with the state stored in between.
    for (Sequence sequence : problem->sequences) {
      int64_t end = sequence.begin + sequence.length;
      for (; sequence.begin < end; sequence.begin += args.snapshotEvery,
                                   sequence.past += args.snapshotEvery) {
        sequence.length = std::min(args.snapshotEvery, end - sequence.begin);
        Problem piece = *problem;
        piece.sequences = {sequence};
        if (Status status = finish(args, piece); !status)
          return status;
        if (sequence.length == args.snapshotEvery)
          keep(args, *problem, sequence, sequence.snapshot++);
      }
    }
    return Status::ok();
  }

private:
  Status finish(const RunArgs &args, const Problem &problem) {
    auto results = runHeads(info, args, problem, pool, [&](reference::Head &h) {
      reference::run(*layer, h);
    });
    for (const ReferenceSequence &result : results) {
      for (size_t o = 0; o < args.outputs.size(); ++o) {
        const TensorView &view = args.outputs[o];
        const double *from = result.outputs[o].data();
        for (int64_t t = 0; t < result.sequence.length; ++t)
          for (int64_t h = 0; h < view.shape[2]; ++h)
            for (int64_t d = 0; d < view.shape[3]; ++d)
              storeFromDouble(view.at(0, result.sequence.begin + t, h),
                              view.dtype, size_t(d), *from++);
      }
      storeFinalStates(info, args, problem, result);
    }
    return Status::ok();
  }
  void keep(const RunArgs &args, const Problem &problem,
            const Sequence &sequence, int64_t snapshot) const {
    for (size_t s = 0; s < args.snapshots.size(); ++s) {
      if (info.states[s].grows)
        continue;
      StatePort port = StatePort::of(info.states[s], runtime::StateLayout::KV,
                                     args.snapshots, s);
      std::vector<double> values = finalState(info, args, problem, sequence, s);
      std::vector<float> state(values.begin(), values.end());
      for (int64_t h = 0; h < problem.heads; ++h)
        port.store(snapshot, h, state.data() + h * port.elements());
    }
  }
  Source source;
  Diagnostics diags;
  std::unique_ptr<frontend::Layer> layer;
  Manifest info;
  runtime::ThreadPool pool;
};

} // namespace

Result<std::shared_ptr<MemoryKernel>>
MemoryKernel::open(const std::string &directory, const MemorySpec &spec) {
  std::string path = directory + "/" + spec.key();
  Result<Bundle> bundle = Bundle::open(path);
  if (!bundle)
    return bundle.error();
  const Manifest &manifest = bundle->manifest();
  Result<std::string> text = readFile(path + "/" + manifest.source, 1 << 20);
  if (!text)
    return text.error();
  std::map<std::string, int64_t> dims(manifest.dims.begin(),
                                      manifest.dims.end());
  bool wide = true;
  for (const auto *list :
       {&manifest.inputs, &manifest.params, &manifest.outputs})
    for (const ManifestTensor &tensor : *list)
      wide &= tensor.dtype == DType::F32;
  if (*text != spec.text() || dims != spec.dims || !wide)
    return Error{path,
                 "was compiled from another spec than this runtime has",
                 {"'plum compile MODEL -o BUNDLE' makes it anew"}};
  return std::shared_ptr<MemoryKernel>(
      std::make_shared<CompiledKernel>(std::move(*bundle)));
}

Result<std::shared_ptr<MemoryKernel>>
MemoryKernel::reference(const MemorySpec &spec) {
  auto kernel = std::make_shared<ReferenceKernel>(spec);
  if (!kernel->good())
    return Error{spec.key(), "is no layer that this runtime knows", {}};
  return std::shared_ptr<MemoryKernel>(std::move(kernel));
}

TensorView MemoryLayer::heading(const void *data, DType type, int64_t count,
                                int64_t stride, int64_t width, int64_t heads) {
  int64_t d = width / heads;
  return {const_cast<void *>(data),
          type,
          {1, count, heads, d},
          {count * stride, stride, d, 1}};
}

std::vector<TensorView> MemoryLayer::statesIn(const StatePool &pool,
                                              float *block,
                                              int64_t count) const {
  std::vector<TensorView> views;
  auto index = size_t(state);
  for (const ManifestTensor &tensor : kernel->manifest().states) {
    TensorView &view = views.emplace_back();
    if (tensor.grows)
      continue; // See addRows.
    auto [rows, cols] = stateExtents(tensor, runtime::StateLayout::KV);
    view = {block + pool.shape().fixed[index++].offset,
            DType::F32,
            {count, heads, rows, cols},
            {pool.stride(), rows * cols, cols, 1}};
  }
  if (index == size_t(state))
    views.clear();
  return views;
}

void MemoryLayer::addRows(const Work &work, RunArgs &args) const {
  if (growing < 0)
    return;
  int64_t width = work.states->shape().growing[size_t(growing)].width;
  std::vector<float *> rows;
  for (const Span &span : work.spans) {
    void *room = work.states->extend(span.slot, growing, span.length);
    if (!room)
      throw std::bad_alloc();
    rows.push_back(static_cast<float *>(room));
  }
  int64_t offset = 0;
  for (const ManifestTensor &tensor : kernel->manifest().states) {
    if (!tensor.grows)
      continue;
    std::vector<plum_rows> &places = args.growingRows.emplace_back();
    for (float *first : rows)
      places.push_back({first + offset, width * int64_t(sizeof(float))});
    args.growingHeadStride.push_back(tensor.elements() *
                                     int64_t(sizeof(float)));
    offset += listHeads * tensor.elements();
  }
}

Rows MemoryLayer::run(const Work &work, std::span<const Input> inputs) const {
  if (work.backend)
    return work.backend->remember(work, *this, inputs);
  const int64_t count = inputs.begin()->rows.count;
  RunArgs args;
  for (const Input &input : inputs)
    args.inputs.push_back(heading(input.rows.data, DType::F32, count,
                                  input.rows.stride, input.rows.width,
                                  input.heads));
  for (const Vector &values : params)
    args.params.push_back(TensorView::dense(const_cast<float *>(values.data()),
                                            DType::F32, 1, 1, heads,
                                            int64_t(values.size()) / heads));
  Rows out(count, outputWidth());
  args.outputs.push_back(
      heading(out.row(0), DType::F32, count, out.width, out.width, heads));
  args.initialStates = args.finalStates = statesOf(*work.states);
  if (work.checkpoints) {
    args.snapshots =
        statesIn(*work.states, work.states->checkpointBlocks(), count);
    args.snapshotEvery = args.snapshots.empty() ? 0 : 1;
  }
  addRows(work, args);
  std::vector<int64_t> cuts{0}, slots, past;
  double size = 0; // Elements that all tokens meet, of a head.
  for (const Span &span : work.spans) {
    cuts.push_back(span.begin + span.length);
    slots.push_back(span.slot);
    past.push_back(span.past);
    for (const ManifestTensor &tensor : kernel->manifest().states)
      size += double(tensor.elements()) * double(span.length) *
              (tensor.grows ? double(span.past + span.length) : 1);
  }
  args.cuSeqlens = {cuts.data(), DType::I64, int64_t(cuts.size())};
  if (!args.finalStates.empty())
    args.slots = {slots.data(), DType::I64, int64_t(slots.size())};
  if (growing >= 0)
    args.past = {past.data(), DType::I64, int64_t(past.size())};
  bool small = size * double(heads) < 2e5;
  RunOptions options;
  options.threads = small ? 1 : work.threads();
  if (Status status = kernel->run(args, options); !status)
    work.fail(status.error());
  return out;
}

} // namespace plum::model
