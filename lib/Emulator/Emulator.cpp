//===- Emulator.cpp - Run GPU kernels on a CPU ------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Emulator/Emulator.h"

#include "Cta.h"

#include "plum/Target/GpuChip.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

struct Kernel::Impl {
  Program program;
  int64_t instructions = 0;
};

Kernel::Kernel(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Kernel::~Kernel() = default;
Kernel::Kernel(Kernel &&) = default;

int64_t Kernel::instructions() const { return impl->instructions; }

Result<Kernel> Kernel::decode(ModuleOp module, StringRef name) {
  Result<Program> program = emulator::decode(module, name);
  if (!program)
    return program.error();
  auto impl = std::make_unique<Impl>();
  impl->program = std::move(*program);
  return Kernel(std::move(impl));
}

Status Kernel::launch(const LaunchConfig &config, ArrayRef<uint8_t> arguments,
                      Memory &memory, const Options &options) const {
  const Program &program = impl->program;
  auto refuse = [&](const Twine &text) {
    return Error{"kernel '" + program.name + "'", text.str(), {}};
  };
  int64_t threads = config.threads ? config.threads : program.threads;
  int64_t bytes =
      config.sharedBytes < 0 ? program.sharedBytes : config.sharedBytes;
  if (program.threads && threads != program.threads)
    return refuse("launched with " + Twine(threads) + " threads, it requires " +
                  Twine(program.threads));
  if (threads <= 0 || threads % kLanes || threads > kMaxWarps * kLanes)
    return refuse("launched with " + Twine(threads) +
                  " threads, expected a multiple of 32 up to 1024");
  const int64_t kMostShared = gpuChips().back().sharedBytes;
  if (bytes < program.sharedBytes || bytes > kMostShared)
    return refuse("launched with " + Twine(bytes) +
                  " bytes of shared memory, it requires " +
                  Twine(program.sharedBytes) + " and there are " +
                  Twine(kMostShared));
  if (config.grid <= 0)
    return refuse("launched with " + Twine(config.grid) + " CTAs");

  std::vector<int64_t> order(config.grid);
  std::iota(order.begin(), order.end(), 0);
  if (options.seed) {
    std::mt19937_64 random(options.seed);
    std::shuffle(order.begin(), order.end(), random);
  }
  GlobalOrder global;
  Cta cta(program, memory, global, options, arguments, threads, bytes);
  for (int64_t index : order)
    if (Status status = cta.run(index); !status)
      return status;
  impl->instructions = cta.instructions;
  return Status::ok();
}

Status emulator::launch(ModuleOp module, StringRef name,
                        const LaunchConfig &config, ArrayRef<uint8_t> arguments,
                        Memory &memory, const Options &options) {
  Result<Kernel> kernel = Kernel::decode(module, name);
  if (!kernel)
    return kernel.error();
  return kernel->launch(config, arguments, memory, options);
}
