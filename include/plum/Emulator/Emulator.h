//===- Emulator.h - Run GPU kernels on a CPU --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Executes a kernel that was written through plum::gpu::Ptx as a GPU would, and
// stops at the first thing that a GPU is free to do otherwise than the author
// thought. A wrong kernel is then an error message instead of wrong numbers or
// a hung device:
//
//   - global accesses outside an allocation, misaligned, of undefined bytes
//   - shared accesses outside the CTA's memory, misaligned, of undefined bytes
//   - asynchronous copies and wgmma take effect as late as they may; a touch of
//     bytes still in flight, or of accumulators not waited for, is an error
//   - two warps that touch the same shared bytes with no barrier in between,
//   two
//     lanes of a warp with no syncWarp; lanes that store different values to
//     the same bytes at once
//   - global bytes that a CTA writes and another of the launch reads or writes,
//     or that warps of a CTA exchange with no barrier
//   - shared bytes written by stores and read by a bulk copy or wgmma without
//     fence.proxy.async
//   - warp-wide instructions that some lanes do not reach; deadlocks
//
// CTAs run one after the other. A warp's lanes run in lockstep under a mask:
// the two sides of a branch run one after the other, and lanes that leave a
// loop wait for the rest. Warps interleave at every instruction; `seed` picks
// the order.
//
// Not modelled: clusters, lanes of a warp that wait for each other, the proxy
// of accesses to global memory, stores by lanes of a warp to what others of it
// still read, flushing of subnormals by plain f32 arithmetic, time.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_EMULATOR_EMULATOR_H
#define PLUM_EMULATOR_EMULATOR_H

#include "plum/Emulator/Memory.h"

#include "mlir/IR/BuiltinOps.h"

namespace plum::emulator {

struct LaunchConfig {
  int64_t grid = 1;    ///< CTAs.
  int64_t threads = 0; ///< Of a CTA, a multiple of 32; 0: as the kernel says.
  int64_t sharedBytes = -1; ///< Dynamic; -1: as the kernel says.
};

struct Options {
  /// 0: each warp runs until it must wait, in order, and asynchronous copies
  /// arrive when nothing else can go on. Otherwise a random interleaving.
  uint64_t seed = 0;
  bool checkUndefined = true; ///< Shared bytes that nothing has written.
  bool checkRaces = true;     ///< Between warps, in shared memory.
  bool checkLanes = true;     ///< Between lanes of a warp, there.
  /// Off for kernels whose CTAs wait for each other through global memory.
  bool checkGlobalRaces = true;
  bool checkProxyFences = true;
  bool checkWgmmaFences = true;
  /// A CTA that runs this many warp instructions is taken to hang.
  int64_t maxInstructions = int64_t(1) << 32;
};

/// A kernel, translated once and launched any number of times. The module must
/// outlive it: errors print its ops.
class Kernel {
public:
  static Result<Kernel> decode(mlir::ModuleOp module, llvm::StringRef name);
  ~Kernel();
  Kernel(Kernel &&);

  /// `arguments`: the bytes of plum_gpu_args, with addresses of `memory`.
  Status launch(const LaunchConfig &config, llvm::ArrayRef<uint8_t> arguments,
                Memory &memory, const Options &options = {}) const;

  /// Warp instructions that the last launch executed.
  int64_t instructions() const;

private:
  struct Impl;
  explicit Kernel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

/// decode() and launch().
Status launch(mlir::ModuleOp module, llvm::StringRef name,
              const LaunchConfig &config, llvm::ArrayRef<uint8_t> arguments,
              Memory &memory, const Options &options = {});

/// The same for any struct of arguments.
template <typename T>
Status launch(mlir::ModuleOp module, llvm::StringRef name,
              const LaunchConfig &config, const T &arguments, Memory &memory,
              const Options &options = {}) {
  return launch(
      module, name, config,
      llvm::ArrayRef(reinterpret_cast<const uint8_t *>(&arguments), sizeof(T)),
      memory, options);
}

} // namespace plum::emulator

#endif // PLUM_EMULATOR_EMULATOR_H
