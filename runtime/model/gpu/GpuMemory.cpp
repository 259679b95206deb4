//===- GpuMemory.cpp - Compiled memory layers on a GPU --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A bundle has each memory twice: KEY computes in bf16 (chunks of tokens, and
// single ones), KEY.f32 in f32, token by token.
//
// With checkpoints the state after each token is wanted. Chunk kernels have it
// only every chunk, and step kernels keep it in registers from a sequence's
// first token to its last. So a pass of up to n tokens a sequence is n launches
// of the step kernel, each the very launch that decodes a token: step t takes
// the t-th token of all sequences that have one, reads its state in the block
// before that token and leaves the new one in the block after it, which is the
// next block (States.h). A state's traffic is that of decoding these tokens one
// after the other; nothing is copied, and the host waits for nothing.
//
// A launch's rows lie side by side. Those of one sequence do so anyway, those
// of several are gathered in the order of steps (first tokens, second tokens,
// ...), in the same launch that makes them bf16, and outputs are put back:
//
//   rows     a0 a1 a2 b0 c0 c1       order of steps   a0 b0 c0  a1 c1  a2
//   blocks   A a0 a1 a2 B b0 C c0 c1      before it   A  B  C   a0 c0  a1
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/GpuExecutor.h"
#include "runtime/model/Config.h"
#include "runtime/model/gpu/GpuBackend.h"

namespace plum::model {

using namespace runtime;
using namespace runtime::cuda;

namespace {

class GpuMemoryKernel : public MemoryKernel {
public:
  GpuMemoryKernel(Machine &machine, Bundle loaded)
      : machine(machine), bundle(std::move(loaded)) {}
  Status open() {
    Result<GpuExecutor> opened = GpuExecutor::open(bundle, machine.shared());
    if (!opened)
      return opened.error();
    executor.emplace(std::move(*opened));
    return Status::ok();
  }
  const Manifest &manifest() const override { return bundle.manifest(); }

  /// A sequence's bits shall not depend on its batch: one segment.
  Status run(const RunArgs &args, int) override {
    GpuOptions options;
    options.segments = 1;
    Result<GpuPlan> plan = executor->plan(args, options);
    if (!plan)
      return plan.error();
    uint64_t bytes = plan->workspaceBytes();
    if (bytes > (workspaces.empty() ? 0 : workspaceBytes)) {
      // The smaller ones stay: recorded passes have their addresses.
      Result<Memory> larger = allocate(machine.device(), bytes);
      if (!larger)
        return larger.error();
      workspaces.push_back(std::move(*larger));
      workspaceBytes = bytes;
    }
    auto addresses = [](const std::vector<TensorView> &views) {
      std::vector<void *> list;
      for (const TensorView &view : views)
        list.push_back(view.data);
      return list;
    };
    std::vector<void *> params = addresses(args.params),
                        inputs = addresses(args.inputs),
                        initial = addresses(args.initialStates),
                        final = addresses(args.finalStates),
                        outputs = addresses(args.outputs);
    GpuPointers pointers;
    pointers.params = params.data();
    pointers.inputs = inputs.data();
    pointers.initialStates = initial.data();
    pointers.finalStates = final.data();
    pointers.outputs = outputs.data();
    pointers.cuSeqlens = args.cuSeqlens.data;
    pointers.slots = args.slots.data;
    void *workspace =
        workspaces.empty()
            ? nullptr
            : reinterpret_cast<void *>(uintptr_t(workspaces.back().get()));
    return plan->launch(pointers, workspace, workspaceBytes, machine.stream());
  }

private:
  Machine &machine;
  Bundle bundle;
  std::optional<GpuExecutor> executor;
  std::vector<Memory> workspaces;
  uint64_t workspaceBytes = 0;
};

/// Rows of heads on the GPU, of which a launch takes some.
struct HeadRows {
  std::byte *data;
  DType type;
  int64_t stride, width, heads;

  TensorView part(int64_t first, int64_t count) const {
    return MemoryLayer::heading(data + first * stride * int64_t(byteSize(type)),
                                type, count, stride, width, heads);
  }
};

} // namespace

Rows GpuBackend::remember(const Work &work, const MemoryLayer &memory,
                          std::span<const MemoryLayer::Input> inputs) {
  const Manifest &manifest = memory.kernel->manifest();
  const bool steps = work.checkpoints, moved = steps && tables->sequences > 1;
  const int64_t count = inputs[0].rows.count;
  std::vector<Rows> packed;
  std::vector<HeadRows> from;
  for (const MemoryLayer::Input &input : inputs) {
    const View &rows = input.rows;
    DType type = manifest.inputs[from.size()].dtype;
    float *data = rows.data;
    int64_t stride = rows.stride;
    if (moved || type == DType::BF16) {
      packed.push_back(moved ? gathered(rowsOf(rows), rows, tables->order, type)
                             : narrowed(rows));
      data = packed.back().row(0);
      stride = rows.width;
    }
    from.push_back({reinterpret_cast<std::byte *>(data), type, stride,
                    rows.width, input.heads});
  }
  RunArgs args;
  for (const Vector &values : memory.params)
    args.params.push_back(
        TensorView::dense(const_cast<float *>(vector(values)), DType::F32, 1, 1,
                          memory.heads, int64_t(values.size()) / memory.heads));
  DType type = manifest.outputs[0].dtype;
  const int64_t width = memory.outputWidth();
  bool narrow = type == DType::BF16;
  Rows raw(*this, count, narrow ? (width + 1) / 2 : width);
  HeadRows to{reinterpret_cast<std::byte *>(raw.row(0)), type, width, width,
              memory.heads};
  auto run = [&](int64_t first, int64_t rows) {
    args.inputs.clear();
    for (const HeadRows &input : from)
      args.inputs.push_back(input.part(first, rows));
    args.outputs = {to.part(first, rows)};
    machine->run("memory " + manifest.layer,
                 [&] { return memory.kernel->run(args, 1); });
  };
  if (!steps) {
    args.initialStates = args.finalStates = memory.statesOf(*pool);
    args.cuSeqlens = {tables->begins, DType::I32, tables->sequences + 1};
    args.slots = {tables->slots, DType::I32, tables->sequences};
    run(0, count);
  } else {
    const int64_t blocks = pool->checkpointCount() - 1;
    float *before = pool->checkpointBlocks();
    args.initialStates = memory.statesIn(*pool, before, blocks);
    args.finalStates = memory.statesIn(*pool, before + pool->stride(), blocks);
    int64_t first = 0;
    for (int64_t rows : tables->stepRows) {
      args.cuSeqlens = {tables->counting, DType::I32, rows + 1};
      args.slots = {tables->before + first, DType::I32, rows};
      run(first, rows);
      first += rows;
    }
  }
  if (!moved && !narrow)
    return raw;
  kernels::Rows result{raw.row(0), width,
                       narrow ? kernels::Type::BF16 : kernels::Type::F32};
  View shape{nullptr, count, width, width};
  if (moved)
    return gathered(result, shape, tables->places, DType::F32);
  Rows out(*this, count, width);
  kernels::ElementwiseArgs copy;
  copy.op = kernels::Elementwise::Copy;
  copy.x = result;
  copy.y = rowsOf(out);
  copy.rows = count;
  copy.width = width;
  machine->run("elementwise", [&] {
    return cuda::elementwise(machine->kernels(), machine->stream(), copy);
  });
  return out;
}

Result<std::shared_ptr<MemoryKernel>> openGpuMemory(Machine &machine,
                                                    const std::string &bundle,
                                                    const MemorySpec &spec,
                                                    Compute compute) {
  if (bundle.empty())
    return Error{"",
                 "memories are not compiled, which a GPU needs",
                 {"'plum compile MODEL --target sm_90a -o BUNDLE' does it"}};
  std::string path =
      bundle + "/" + spec.key() + (compute == Compute::F32 ? ".f32" : "");
  Result<Bundle> opened = Bundle::open(path);
  if (!opened)
    return opened.error();
  const Manifest &manifest = opened->manifest();
  Result<std::string> text = readFile(path + "/" + manifest.source, 1 << 20);
  if (!text)
    return text.error();
  std::map<std::string, int64_t> dims(manifest.dims.begin(),
                                      manifest.dims.end());
  if (*text != spec.text() || dims != spec.dims)
    return Error{path,
                 "was compiled from another spec than this runtime has",
                 {"'plum compile MODEL -o BUNDLE' makes it anew"}};
  if (manifest.target == "cpu")
    return Error{
        path,
        "is for the CPU",
        {"'plum compile MODEL --target sm_90a -o BUNDLE' makes one for "
         "a GPU"}};
  auto kernel = std::make_shared<GpuMemoryKernel>(machine, std::move(*opened));
  if (Status status = kernel->open(); !status)
    return status.error();
  return std::shared_ptr<MemoryKernel>(std::move(kernel));
}

} // namespace plum::model
