//===- LayerIO.cpp - A layer's tensors in safetensors files ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/LayerTensors.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace plum::runtime {

namespace {

/// "[T,H,128]" for axes {"T", "H"} and a declared shape.
std::string expectedShape(const std::vector<const char *> &axes,
                          const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (const char *axis : axes)
    text += (text.size() > 1 ? "," : "") + std::string(axis);
  for (int64_t extent : shape)
    text += "," + std::to_string(extent);
  return text + "]";
}

bool endsWith(const std::vector<int64_t> &shape,
              const std::vector<int64_t> &tail) {
  return shape.size() >= tail.size() &&
         std::equal(tail.rbegin(), tail.rend(), shape.rbegin());
}

class Reader {
public:
  Reader(const Manifest &manifest, const SafetensorsFile &file,
         const LayerOptions &options, LayerRun &run)
      : manifest(manifest), file(file), options(options), run(run) {}

  Status read() {
    run.args.layout = options.layout;
    run.args.snapshotEvery = options.snapshotEvery;
    for (const ManifestTensor &tensor : manifest.inputs)
      if (Status s = readInput(tensor); !s)
        return s;
    for (const ManifestTensor &tensor : manifest.params)
      if (Status s = readParam(tensor); !s)
        return s;
    if (Status s = readIndices("cu_seqlens", run.args.cuSeqlens); !s)
      return s;
    if (Status s = readIndices("slots", run.args.slots); !s)
      return s;
    if (Status s = readStates(); !s)
      return s;
    Result<Problem> problem = planProblem(manifest, run.args);
    if (!problem)
      return problem.error();
    run.problem = std::move(*problem);
    if (Status s = checkSizes(); !s)
      return s;
    if (manifest.growingState())
      if (Status s = readRows(); !s)
        return s;
    if (Status s = allocateResults(manifest, options, before, run); !s)
      return s;
    warnAboutOthers();
    // What is left to check needs every view.
    Result<Problem> checked = checkProblem(manifest, run.args);
    return checked ? Status::ok() : checked.error();
  }

private:
  const FileTensor *find(const std::string &name) {
    known.insert(name);
    return file.find(name);
  }
  Error missing(const ManifestTensor &tensor, const std::string &shape) {
    return {"",
            "tensor '" + tensor.name + "' is missing, expected " +
                std::string(fileName(tensor.declared)) + " " + shape,
            {"layer '" + manifest.layer + "' declares it"}};
  }
  Error wrongShape(const FileTensor &tensor, const std::string &expected) {
    return {"",
            "tensor '" + tensor.name + "' has shape " +
                shapeText(tensor.shape) + ", expected " + expected,
            {}};
  }

  /// The tensor's values as `dtype`: in the file where they lie aligned, else
  /// copied, or widened to f32.
  Result<void *> values(const FileTensor &tensor, DType dtype) {
    auto address = reinterpret_cast<uintptr_t>(tensor.data.data());
    if (tensor.dtype == dtype && address % byteSize(dtype) == 0)
      return static_cast<void *>(const_cast<std::byte *>(tensor.data.data()));
    Result<void *> copy = allocate(run, tensor.elements(), dtype);
    if (!copy)
      return copy;
    if (tensor.dtype == dtype) {
      std::memcpy(*copy, tensor.data.data(), tensor.data.size());
      return copy;
    }
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, tensor.data.data() + i * 2, 2);
      static_cast<float *>(*copy)[i] =
          tensor.dtype == DType::BF16 ? bf16ToFloat(bits) : f16ToFloat(bits);
    }
    return copy;
  }

  Status checkDtype(const FileTensor &tensor, const ManifestTensor &expected) {
    bool widens =
        expected.dtype == DType::F32 && tensor.dtype == expected.declared;
    if (tensor.dtype && (tensor.dtype == expected.dtype || widens))
      return Status::ok();
    std::string types(fileName(expected.dtype));
    if (expected.declared != expected.dtype)
      types = std::string(fileName(expected.declared)) + " or " + types;
    return Error{"",
                 "tensor '" + tensor.name + "' has dtype " + tensor.dtypeName +
                     ", expected " + types,
                 {}};
  }

  Status readInput(const ManifestTensor &input) {
    std::string expected = expectedShape({"T", "H"}, input.shape) + " or " +
                           expectedShape({"B", "T", "H"}, input.shape);
    const FileTensor *tensor = find(input.name);
    if (!tensor)
      return missing(input, expected);
    if (Status s = checkDtype(*tensor, input); !s)
      return s;
    size_t axes = tensor->shape.size() - input.shape.size();
    if (!endsWith(tensor->shape, input.shape) || (axes != 2 && axes != 3))
      return wrongShape(*tensor, expected);
    bool batched = axes == 3;
    if (!run.args.inputs.empty() && batched != run.batched)
      return wrongShape(
          *tensor,
          expectedShape(run.batched ? std::vector<const char *>{"B", "T", "H"}
                                    : std::vector<const char *>{"T", "H"},
                        input.shape) +
              ", as '" + manifest.inputs[0].name + "' has" +
              (run.batched ? " a batch axis" : " no batch axis"));
    run.batched = batched;
    Result<void *> data = values(*tensor, input.dtype);
    if (!data)
      return data.error();
    const int64_t *shape = tensor->shape.data() + (batched ? 1 : 0);
    run.args.inputs.push_back(
        TensorView::dense(*data, input.dtype, batched ? tensor->shape[0] : 1,
                          shape[0], shape[1], input.elements()));
    return Status::ok();
  }

  Status readParam(const ManifestTensor &param) {
    std::string expected = expectedShape({"H"}, param.shape);
    const FileTensor *tensor = find(param.name);
    if (!tensor)
      return missing(param, expected);
    if (Status s = checkDtype(*tensor, param); !s)
      return s;
    if (!endsWith(tensor->shape, param.shape) ||
        tensor->shape.size() != param.shape.size() + 1)
      return wrongShape(*tensor, expected);
    Result<void *> data = values(*tensor, param.dtype);
    if (!data)
      return data.error();
    run.args.params.push_back(TensorView::dense(
        *data, param.dtype, 1, 1, tensor->shape[0], param.elements()));
    return Status::ok();
  }

  Status readIndices(const char *name, IndexView &view) {
    const FileTensor *tensor = find(name);
    if (!tensor)
      return Status::ok();
    if (tensor->dtype != DType::I32 && tensor->dtype != DType::I64)
      return Error{"",
                   "tensor '" + tensor->name + "' has dtype " +
                       tensor->dtypeName + ", expected I32 or I64",
                   {}};
    if (tensor->shape.size() != 1)
      return wrongShape(*tensor, "one axis");
    Result<void *> data = values(*tensor, *tensor->dtype);
    if (!data)
      return data.error();
    view = {*data, *tensor->dtype, tensor->shape[0]};
    return Status::ok();
  }

  /// All states or none: a layer with some of them zero is no layer.
  Status readStates() {
    const FileTensor *some = nullptr;
    for (const ManifestTensor &state : manifest.states)
      if (const FileTensor *tensor = find(state.name))
        some = tensor;
    if (!some && run.args.slots && !manifest.states.empty())
      return missing(manifest.states[0],
                     expectedShape(stateAxes(manifest.states[0]),
                                   fileShape(manifest.states[0])) +
                         ", the pool that 'slots' index");
    for (const ManifestTensor &state : manifest.states) {
      if (!some)
        break;
      std::vector<int64_t> shape = fileShape(state);
      std::string expected = expectedShape(stateAxes(state), shape);
      const FileTensor *tensor = find(state.name);
      if (!tensor)
        return missing(state, expected + ", as '" + some->name + "' is given");
      if (tensor->dtype != DType::F32 && tensor->dtype != DType::BF16)
        return Error{"",
                     "tensor '" + tensor->name + "' has dtype " +
                         tensor->dtypeName + ", expected F32 or BF16",
                     {}};
      size_t axes = state.grows ? 3 : 2;
      if (!endsWith(tensor->shape, shape) ||
          tensor->shape.size() != shape.size() + axes)
        return wrongShape(*tensor, expected);
      Result<void *> data = values(*tensor, *tensor->dtype);
      if (!data)
        return data.error();
      run.args.initialStates.push_back(
          stateView(state, options.layout, *data, *tensor->dtype,
                    tensor->shape[0], tensor->shape[1], tensor->shape[2]));
    }
    return Status::ok();
  }

  /// Params and states against the sizes that the inputs have; checkProblem
  /// does so as well, but speaks of four axes.
  Status checkSizes() {
    auto check = [&](const ManifestTensor &tensor, std::vector<int64_t> shape,
                     const std::vector<int64_t> &own) -> Status {
      shape.insert(shape.end(), own.begin(), own.end());
      const FileTensor *given = file.find(tensor.name);
      if (!given || given->shape == shape)
        return Status::ok();
      return wrongShape(*given, shapeText(shape));
    };
    for (const ManifestTensor &param : manifest.params)
      if (Status s = check(param, {run.problem.heads}, param.shape); !s)
        return s;
    if (run.args.initialStates.empty())
      return Status::ok();
    int64_t count = run.args.slots ? run.args.initialStates[0].shape[0]
                                   : int64_t(run.problem.sequences.size());
    for (size_t i = 0; i < manifest.states.size(); ++i) {
      const ManifestTensor &state = manifest.states[i];
      std::vector<int64_t> shape{count, run.problem.stateHeads(i)};
      if (state.grows) // As many in all, says planProblem.
        shape.push_back(run.args.initialStates[i].shape[2]);
      if (Status s = check(state, shape, fileShape(state)); !s)
        return s;
    }
    return Status::ok();
  }

  /// How many rows growing states hold, before the run and after it.
  Status readRows() {
    const ManifestTensor &first = *manifest.growingState();
    IndexView given;
    if (Status s = readIndices("seqlens", given); !s)
      return s;
    if (given && run.args.initialStates.empty())
      return missing(first, expectedShape(stateAxes(first), fileShape(first)) +
                                ", whose rows 'seqlens' count");
    int64_t count = int64_t(run.problem.sequences.size()), most = 0;
    for (size_t i = 0; i < run.args.initialStates.size(); ++i)
      if (manifest.states[i].grows) {
        count = run.args.initialStates[i].shape[0];
        most = run.args.initialStates[i].shape[2];
      }
    if (given && given.count != count)
      return wrongShape(*file.find("seqlens"),
                        shapeText(std::vector<int64_t>{count}));
    for (int64_t n = 0; n < count; ++n) {
      int64_t rows = given ? given[n] : most;
      if (rows < 0 || rows > most)
        return Error{"",
                     "'seqlens[" + std::to_string(n) + "]' is " +
                         std::to_string(rows) + ", expected 0 to " +
                         std::to_string(most) + ", the rows of '" + first.name +
                         "'",
                     {}};
      run.rows.push_back(rows);
    }
    if (given)
      run.args.past = given;
    Result<Problem> problem = planProblem(manifest, run.args);
    if (!problem)
      return problem.error();
    run.problem = std::move(*problem);
    before = run.rows;
    for (const Sequence &sequence : run.problem.sequences)
      if (sequence.slot >= 0)
        run.rows[size_t(sequence.slot)] = sequence.rows();
    return Status::ok();
  }

  /// The axes before those that the state declares.
  std::vector<const char *> stateAxes(const ManifestTensor &state) const {
    std::vector<const char *> axes{run.args.slots ? "P" : "N", "H"};
    if (state.grows)
      axes.push_back("L");
    return axes;
  }
  std::vector<int64_t> fileShape(const ManifestTensor &state) const {
    std::vector<int64_t> shape = state.shape;
    if (options.layout == StateLayout::VK)
      std::reverse(shape.begin(), shape.end());
    return shape;
  }
  void warnAboutOthers() {
    for (const FileTensor &tensor : file.tensors())
      if (!known.count(tensor.name) && !tensor.name.starts_with("expected."))
        run.warnings.push_back("tensor '" + tensor.name +
                               "' is not used: layer '" + manifest.layer +
                               "' declares no such input");
  }

  const Manifest &manifest;
  const SafetensorsFile &file;
  const LayerOptions &options;
  LayerRun &run;
  std::set<std::string> known;
  std::vector<int64_t> before; ///< Rows of growing states before the run.
};

} // namespace

Result<LayerRun> openLayerRun(const Manifest &manifest,
                              const SafetensorsFile &file,
                              const LayerOptions &options) {
  LayerRun run;
  if (Status status = Reader(manifest, file, options, run).read(); !status) {
    Error error = status.error();
    error.where = file.path();
    return error;
  }
  return run;
}

} // namespace plum::runtime
