//===- HostGpu.cpp - The GPU backend on the CPU ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/HostGpu.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <list>

namespace plum::model::test {

namespace {

using runtime::RowTable;
using runtime::TensorView;

/// `count` rows of `from`, [1, heads, rows, d], as an input of a run: with the
/// values that a list of such a type holds.
TensorView rowsOf(const TensorView &from, int64_t begin, int64_t count,
                  DType type, std::vector<float> &values) {
  const int64_t heads = from.shape[1], d = from.shape[3];
  for (int64_t t = begin; t < begin + count; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t c = 0; c < d; ++c) {
        auto x = float(loadAsDouble(from.at(0, h, t, c), from.dtype, 0));
        values.push_back(type == DType::BF16 ? bf16ToFloat(floatToBf16(x)) : x);
      }
  return TensorView::dense(values.data(), DType::F32, 1, count, heads, d);
}

/// A run on lists that tables place: what a GPU does for all sequences at once.
Status runOnLists(MemoryKernel &kernel, const runtime::RunArgs &args) {
  for (int64_t n = 0; n + 1 < args.cuSeqlens.count; ++n) {
    const int64_t begin = args.cuSeqlens[n], past = args.past[n],
                  count = args.cuSeqlens[n + 1] - begin;
    auto part = [&](TensorView view) {
      view.data = view.data ? view.at(0, begin, 0) : nullptr;
      view.shape[1] = count;
      return view;
    };
    runtime::RunArgs one;
    one.params = args.params;
    std::list<std::vector<float>> made;
    for (const TensorView &view : args.inputs)
      one.inputs.push_back(part(view));
    for (const TensorView &view : args.outputs)
      one.outputs.push_back(part(view));
    for (size_t s = 0; s < args.rowTables.size(); ++s) {
      const RowTable &table = args.rowTables[s];
      TensorView &input = one.inputs[*kernel.manifest().rowsInput(s)];
      const auto unit = int64_t(byteSize(table.dtype));
      const TensorView list{
          reinterpret_cast<void *>(table.firsts[n] + table.base),
          table.dtype,
          {1, input.shape[2], past + count, input.shape[3]},
          {0, table.headStride / unit, table.rowStride / unit, 1}};
      one.finalStates.push_back(list);
      TensorView rows = input; // Tokens are the third axis of a list.
      std::swap(rows.shape[1], rows.shape[2]);
      std::swap(rows.stride[1], rows.stride[2]);
      std::vector<float> &values = made.emplace_back();
      input = args.appended ? rowsOf(list, past, count, table.dtype, values)
                            : rowsOf(rows, 0, count, table.dtype, values);
    }
    one.initialStates = one.finalStates;
    one.past = {&past, DType::I64, 1};
    if (Status status = kernel.run(one, {}); !status)
      return status;
  }
  return Status::ok();
}

/// A memory of the CPU in a stream: every run is a host function of it.
class HostKernel : public MemoryKernel {
public:
  HostKernel(Machine &machine, std::shared_ptr<MemoryKernel> kernel)
      : machine(machine), kernel(std::move(kernel)) {}
  const runtime::Manifest &manifest() const override {
    return kernel->manifest();
  }
  Status run(const runtime::RunArgs &args,
             const runtime::RunOptions &) override {
    calls.push_back({kernel.get(), args});
    auto run = [](void *data) {
      auto *call = static_cast<Call *>(data);
      Status status = call->args.rowTables.empty()
                          ? call->kernel->run(call->args, {.threads = 1})
                          : runOnLists(*call->kernel, call->args);
      EXPECT_TRUE(status) << status.error().str();
    };
    return machine.driver().check("cuLaunchHostFunc",
                                  machine.driver().cuLaunchHostFunc(
                                      machine.stream(), run, &calls.back()));
  }

private:
  struct Call {
    MemoryKernel *kernel;
    runtime::RunArgs args;
  };
  Machine &machine;
  std::shared_ptr<MemoryKernel> kernel;
  std::list<Call> calls; ///< Those that were recorded are done again.
};

} // namespace

static std::unique_ptr<Machine> openMachine() {
  auto machine = Machine::open();
  if (!machine) {
    ADD_FAILURE() << machine.error().str();
    std::abort();
  }
  return std::move(*machine);
}

std::string bundleOf(const std::string &fixture) {
  const char *bundles = std::getenv("PLUM_GPU_BUNDLES");
  return bundles ? std::string(bundles) + "/" + fixture : "";
}

std::shared_ptr<GpuBackend> someGpu(GpuBackendOptions options) {
  if (bundleOf("").empty())
    return hostGpu(std::move(options));
  return std::make_shared<GpuBackend>(openMachine(), std::move(options));
}

std::shared_ptr<GpuBackend> hostGpu(GpuBackendOptions options) {
  setenv("PLUM_LIBCUDA", HOST_CUDA, 1);
  setenv("PLUM_LIBCUBLASLT", HOST_CUBLASLT, 1);
  setenv("PLUM_CACHE", "/nonexistent", 1);
  options.openMemory = [](Machine &on, const std::string &bundle,
                          const MemorySpec &spec,
                          Compute) -> Result<std::shared_ptr<MemoryKernel>> {
    auto kernel = bundle.empty() ? MemoryKernel::reference(spec)
                                 : MemoryKernel::open(bundle, spec);
    if (!kernel)
      return kernel.error();
    return std::shared_ptr<MemoryKernel>(
        std::make_shared<HostKernel>(on, std::move(*kernel)));
  };
  return std::make_shared<GpuBackend>(openMachine(), std::move(options));
}

} // namespace plum::model::test
