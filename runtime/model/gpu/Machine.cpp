//===- Machine.cpp - A GPU as the backend uses it -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/gpu/Machine.h"
#include "runtime/model/gpu/PinnedMemory.h"

namespace plum::model {

using namespace runtime::cuda;

static CUdeviceptr address(const void *pointer) {
  return CUdeviceptr(reinterpret_cast<uintptr_t>(pointer));
}

Result<std::unique_ptr<Machine>> Machine::open(int ordinal) {
  auto device = Device::open(ordinal);
  if (!device)
    return device.error();
  std::unique_ptr<Machine> machine(new Machine);
  machine->gpu = *device;
  auto stream = makeStream(*machine->gpu);
  if (!stream)
    return stream.error();
  machine->lane = std::move(*stream);
  for (Event *event : {&machine->start, &machine->end}) {
    auto made = makeEvent(*machine->gpu);
    if (!made)
      return made.error();
    *event = std::move(*made);
  }
  auto blas = CublasLt::open(machine->gpu);
  if (!blas)
    return blas.error();
  machine->blas = std::move(*blas);
  machine->pages = pinnedMemory(machine->gpu);
  machine->library = std::make_unique<Kernels>(machine->gpu);
  if (Status status = machine->library->load(); !status)
    return status.error();
  return machine;
}

Status Machine::status() const {
  return failure ? Status(*failure) : Status::ok();
}

bool Machine::then(const Status &status) {
  if (!status && !failure)
    failure = status.error();
  return good();
}

bool Machine::then(const char *call, CUresult result) {
  return then(driver().check(call, result));
}

void *Machine::allocate(size_t bytes) {
  if (!good())
    return nullptr;
  Current current(*gpu);
  CUdeviceptr block = 0;
  then(driver().check("cuMemAlloc(" + std::to_string(bytes) + " B)",
                      driver().cuMemAlloc(&block, bytes)));
  return reinterpret_cast<void *>(uintptr_t(block));
}

void Machine::release(void *block) {
  Current current(*gpu);
  if (block)
    then("cuMemFree", driver().cuMemFree(address(block)));
}

void Machine::copyIn(void *to, const void *from, size_t bytes) {
  Current current(*gpu);
  if (good() && bytes > 0)
    then("cuMemcpyHtoDAsync",
         driver().cuMemcpyHtoDAsync(address(to), from, bytes, stream()));
}

void Machine::copyOut(void *to, const void *from, size_t bytes) {
  Current current(*gpu);
  if (good() && bytes > 0)
    then("cuMemcpyDtoHAsync",
         driver().cuMemcpyDtoHAsync(to, address(from), bytes, stream()));
  wait();
}

void Machine::wait() {
  Current current(*gpu);
  if (good())
    then("cuStreamSynchronize", driver().cuStreamSynchronize(stream()));
}

double Machine::copyRate() {
  constexpr size_t bytes = size_t(512) << 20;
  constexpr int count = 20;
  void *from = allocate(bytes), *to = allocate(bytes);
  clear(from, bytes);
  copy(to, from, bytes);
  wait();
  bool before = std::exchange(timing, true);
  for (int i = 0; i < count; ++i)
    run("copy", [&] {
      return driver().check("cuMemcpyDtoDAsync",
                            driver().cuMemcpyDtoDAsync(
                                address(to), address(from), bytes, stream()));
    });
  timing = before;
  double ms = times["copy"].ms / count;
  times.erase("copy");
  release(from);
  release(to);
  return good() && ms > 0 ? 2 * double(bytes) / ms * 1000 : 0;
}

void Machine::copy(void *to, const void *from, size_t bytes) {
  Current current(*gpu);
  if (good() && bytes > 0)
    then("cuMemcpyDtoDAsync", driver().cuMemcpyDtoDAsync(
                                  address(to), address(from), bytes, stream()));
}

void Machine::clear(void *block, size_t bytes) {
  Current current(*gpu);
  if (good() && bytes > 0)
    then("cuMemsetD8Async",
         driver().cuMemsetD8Async(address(block), 0, bytes, stream()));
}

void Machine::run(const std::string &name,
                  const std::function<Status()> &enqueue) {
  if (!good())
    return;
  if (!timing) {
    then(enqueue());
    return;
  }
  Current current(*gpu);
  float ms = 0;
  then("cuEventRecord", driver().cuEventRecord(start.get(), stream()));
  then(enqueue());
  then("cuEventRecord", driver().cuEventRecord(end.get(), stream()));
  then(name.c_str(), driver().cuEventSynchronize(end.get()));
  then("cuEventElapsedTime",
       driver().cuEventElapsedTime(&ms, start.get(), end.get()));
  Time &time = times[name];
  ++time.count;
  time.ms += double(ms);
}

void Machine::multiply(const Gemm &gemm) {
  if (gemm.m > 0 && gemm.n > 0)
    run("cublasLt [" + std::to_string(gemm.n) + "," + std::to_string(gemm.k) +
            "]",
        [&] { return blas->multiply(gemm, stream()); });
}

void Machine::record() {
  Current current(*gpu);
  if (good())
    then("cuStreamBeginCapture", driver().cuStreamBeginCapture(
                                     stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
}

std::shared_ptr<const Graph> Machine::finish() {
  // A failed pass ends its capture, too.
  Current current(*gpu);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  then("cuStreamEndCapture", driver().cuStreamEndCapture(stream(), &graph));
  if (good())
    then("cuGraphInstantiate", driver().cuGraphInstantiate(&exec, graph, 0));
  if (graph)
    driver().cuGraphDestroy(graph);
  if (!good())
    return nullptr;
  return std::make_shared<const Graph>(*gpu, exec, &Driver::cuGraphExecDestroy);
}

void Machine::replay(const Graph &graph) {
  Current current(*gpu);
  if (good())
    then("cuGraphLaunch", driver().cuGraphLaunch(graph.get(), stream()));
}

} // namespace plum::model
