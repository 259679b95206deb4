//===- KernelRun.h - A small kernel, written and run ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_EMULATOR_KERNELRUN_H
#define PLUM_TEST_UNIT_EMULATOR_KERNELRUN_H

#include "lib/Conversion/GPU/Ptx.h"
#include "plum/ABI/GpuABI.h"
#include "plum/Emulator/Emulator.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "gtest/gtest.h"

#include <cmath>
#include <random>

namespace plum::test {

using gpu::Ptx;
using gpu::Values;
using llvm::SmallVector;
using mlir::Value;

/// Builds a kernel "k" whose buffers are in and out, [bytes] each, runs it and
/// keeps what it wrote.
class KernelRun {
public:
  explicit KernelRun(int64_t sm = 90)
      : module(makeModule(context)),
        ptx(std::make_unique<Ptx>(*module, "k", gpu::Chip{sm})) {
    i32 = ptx->getI32Type();
    f32 = ptx->getF32Type();
    in = ptx->global(
        ptx->argument(offsetof(plum_gpu_args, workspace), ptx->getI64Type()));
    out = ptx->global(
        ptx->argument(offsetof(plum_gpu_args, cu_seqlens), ptx->getI64Type()));
  }

  Ptx &operator*() { return *ptx; }
  Ptx *operator->() { return ptx.get(); }
  /// The address of this thread's element of `bytes` bytes.
  Value mine(Value base, int64_t bytes) {
    return ptx->at(base, ptx->mul(ptx->tid(), bytes));
  }

  template <typename T> void input(std::vector<T> values) {
    arguments.workspace = memory.upload("in", llvm::ArrayRef<T>(values));
  }
  /// Finishes the kernel at the first call.
  Status run(int64_t threads, int64_t sharedBytes, uint64_t outBytes,
             int64_t grid = 1) {
    if (!finished)
      ptx->finish({threads, 0, sharedBytes, 1});
    finished = true;
    outSize = outBytes;
    arguments.cu_seqlens = memory.allocate("out", outBytes);
    return emulator::launch(*module, "k", {grid, threads, sharedBytes},
                            arguments, memory, options);
  }
  template <typename T> std::vector<T> output() {
    std::vector<T> values(outSize / sizeof(T));
    EXPECT_TRUE(memory.read(arguments.cu_seqlens, values.data(), outSize));
    return values;
  }
  /// Runs and expects an error with this in its text.
  void expectError(const std::string &text, int64_t threads,
                   int64_t sharedBytes, uint64_t outBytes = 4096) {
    Status status = run(threads, sharedBytes, outBytes);
    ASSERT_FALSE(status) << "expected: " << text;
    EXPECT_NE(status.error().str().find(text), std::string::npos)
        << status.error().str();
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<Ptx> ptx;
  mlir::Type i32, f32;
  Value in, out;
  emulator::Memory memory;
  emulator::Options options;
  plum_gpu_args arguments{};

private:
  static mlir::OwningOpRef<mlir::ModuleOp> makeModule(mlir::MLIRContext &c) {
    c.loadDialect<mlir::arith::ArithDialect, mlir::LLVM::LLVMDialect,
                  mlir::NVVM::NVVMDialect, mlir::scf::SCFDialect>();
    return mlir::ModuleOp::create(mlir::UnknownLoc::get(&c));
  }
  uint64_t outSize = 0;
  bool finished = false;
};

inline bool succeeds(const Status &status) {
  if (!status)
    ADD_FAILURE() << status.error().str();
  return bool(status);
}

inline uint16_t bfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float widened(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
/// bf16 numbers of about 1.
inline std::vector<uint16_t> randomHalves(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t &value : values)
    value = bfloat(normal(random));
  return values;
}

} // namespace plum::test

#endif // PLUM_TEST_UNIT_EMULATOR_KERNELRUN_H
