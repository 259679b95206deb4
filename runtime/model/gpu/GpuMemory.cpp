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
// States that grow need none of that: to drop rows is to forget how many there
// were. Their lists are where the pool has put them; kernels look up where, so
// a recorded pass follows a list that has moved.
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
  Status run(const RunArgs &args, const RunOptions &wanted) override {
    GpuOptions options;
    options.form = wanted.form;
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
    for (const RowTable &table : args.rowTables) // Of layers of lists alone.
      final.push_back(const_cast<int64_t *>(table.firsts));
    GpuPointers pointers;
    pointers.params = params.data();
    pointers.inputs = inputs.data();
    pointers.initialStates = initial.data();
    pointers.finalStates = final.data();
    pointers.outputs = outputs.data();
    pointers.cuSeqlens = args.cuSeqlens.data;
    pointers.slots = args.slots.data;
    pointers.past = args.past.data;
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

/// What a memory writes of `count` rows, in the type that it writes.
struct GpuBackend::MemoryOutput {
  Rows room;
  HeadRows rows;

  MemoryOutput(Backend &backend, const MemoryLayer &memory, int64_t count)
      : room(backend, count,
             typeOf(memory) == DType::BF16 ? (memory.outputWidth() + 1) / 2
                                           : memory.outputWidth()),
        rows{reinterpret_cast<std::byte *>(room.row(0)), typeOf(memory),
             memory.outputWidth(), memory.outputWidth(), memory.heads} {}
  kernels::Rows asRows() {
    return {room.row(0), rows.width,
            rows.type == DType::BF16 ? kernels::Type::BF16
                                     : kernels::Type::F32};
  }
  View shape() const { return {nullptr, room.count, rows.width, rows.width}; }

private:
  static DType typeOf(const MemoryLayer &memory) {
    return memory.kernel->manifest().outputs[0].dtype;
  }
};

const int64_t *GpuBackend::cachesOf(int64_t state) const {
  return tables->caches + state * tables->sequences;
}

void GpuBackend::setParams(const MemoryLayer &memory, RunArgs &args) {
  for (const Vector &values : memory.params)
    args.params.push_back(
        TensorView::dense(const_cast<float *>(vector(values)), DType::F32, 1, 1,
                          memory.heads, int64_t(values.size()) / memory.heads));
}

/// Single tokens are steps, however many there are of a sequence.
void GpuBackend::launch(const MemoryLayer &memory, const RunArgs &args) {
  RunOptions options;
  options.form = stepping ? Form::Step : Form::Auto;
  machine->run("memory " + memory.kernel->manifest().layer,
               [&] { return memory.kernel->run(args, options); });
}

Rows GpuBackend::asF32(MemoryOutput &output) {
  if (output.rows.type == DType::F32)
    return std::move(output.room);
  Rows out(*this, output.room.count, output.rows.width);
  kernels::ElementwiseArgs copy;
  copy.op = kernels::Elementwise::Copy;
  copy.x = output.asRows();
  copy.y = rowsOf(out);
  copy.rows = out.count;
  copy.width = out.width;
  machine->run("elementwise", [&] {
    return cuda::elementwise(machine->kernels(), machine->stream(), copy);
  });
  return out;
}

Rows GpuBackend::runOnce(const MemoryLayer &memory, RunArgs args,
                         int64_t count) {
  MemoryOutput to(*this, memory, count);
  setParams(memory, args);
  args.outputs = {to.rows.part(0, count)};
  args.cuSeqlens = {tables->begins, DType::I32, tables->sequences + 1};
  if (!args.rowTables.empty())
    args.past = {tables->past, DType::I32, tables->sequences};
  launch(memory, args);
  return asF32(to);
}

Rows GpuBackend::remember(const Work &work, const MemoryLayer &memory,
                          std::span<const MemoryLayer::Input> inputs) {
  // To drop rows of a list needs no checkpoints.
  if (work.checkpoints && memory.growing < 0)
    return rememberSteps(memory, inputs);
  const Manifest &manifest = memory.kernel->manifest();
  const int64_t count = inputs[0].rows.count;
  std::vector<Rows> packed;
  RunArgs args;
  for (const MemoryLayer::Input &input : inputs) {
    const View &rows = input.rows;
    HeadRows from{reinterpret_cast<std::byte *>(rows.data), DType::F32,
                  rows.stride, rows.width, input.heads};
    if (manifest.inputs[args.inputs.size()].dtype == DType::BF16) {
      packed.push_back(narrowed(rows));
      from = {reinterpret_cast<std::byte *>(packed.back().row(0)), DType::BF16,
              rows.width, rows.width, input.heads};
    }
    args.inputs.push_back(from.part(0, count));
  }
  args.initialStates = args.finalStates = memory.statesOf(*pool);
  if (!args.finalStates.empty())
    args.slots = {tables->slots, DType::I32, tables->sequences};
  if (memory.growing >= 0) {
    const auto unit = int64_t(byteSize(cacheType()));
    const int64_t width = pool->shape().growing[size_t(memory.growing)].width;
    int64_t begin = 0;
    for (const ManifestTensor &state : manifest.states) {
      args.rowTables.push_back({cachesOf(memory.growing), begin * unit,
                                cacheType(), width * unit,
                                state.elements() * unit});
      begin += memory.listHeads * state.elements();
    }
  }
  return runOnce(memory, std::move(args), count);
}

/// A pass with checkpoints, as the head of this file has it.
Rows GpuBackend::rememberSteps(const MemoryLayer &memory,
                               std::span<const MemoryLayer::Input> inputs) {
  const Manifest &manifest = memory.kernel->manifest();
  const bool moved = tables->sequences > 1;
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
  MemoryOutput to(*this, memory, inputs[0].rows.count);
  RunArgs args;
  setParams(memory, args);
  const int64_t blocks = pool->checkpointCount() - 1;
  float *before = pool->checkpointBlocks();
  args.initialStates = memory.statesIn(*pool, before, blocks);
  args.finalStates = memory.statesIn(*pool, before + pool->stride(), blocks);
  int64_t first = 0;
  for (int64_t rows : tables->stepRows) {
    args.inputs.clear();
    for (const HeadRows &input : from)
      args.inputs.push_back(input.part(first, rows));
    args.outputs = {to.rows.part(first, rows)};
    args.cuSeqlens = {tables->counting, DType::I32, rows + 1};
    args.slots = {tables->before + first, DType::I32, rows};
    launch(memory, args);
    first += rows;
  }
  return moved ? gathered(to.asRows(), to.shape(), tables->places, DType::F32)
               : asF32(to);
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
