//===- CostModel.h - How long a schedule may take ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An estimate that is good enough to leave out what cannot win, and to choose
// where nothing was measured. For a state [K, V] with e erased and w written
// directions a token, in flops per token of one head:
//
//   states     2 K V (1 + e + w)            products with the state
//   pairs      C (K + V) (1 + e)            lower triangles of scores, and
//   times
//                                           the rows
//   inverse    e C^2 / 4
//   step       K V (1 + 2 (1 + e) + 2 w)    a pass of multiplications for the
//                                           decay, reads, updates
//
// CPU: one thread has one head at a time. Rates are what this project's kernels
// reached with AVX-512 (docs/tuning.md); only their ratios matter.
//
// GPU: a scan is a chain of ceil(T / (C P)) chunks, each a fixed latency plus
// its products; CTAs beyond one wave of the processors wait. The preparation
// has no chain and fills every processor.
//
// What was proven about decays limits C: see decayLoss.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TUNING_COSTMODEL_H
#define PLUM_LIB_TUNING_COSTMODEL_H

#include "plum/Pipelines/Compiler.h"
#include "runtime/TuningRecord.h"

namespace plum::tuning {

/// What the model has to know of a machine.
struct DeviceModel {
  std::string name; ///< As in a TuningKey; empty: not known.
  bool gpu = false;
  int64_t processors = 1; ///< Threads of a CPU, SMs of a GPU.
  // GPU only.
  int64_t sharedBytes = 0; ///< Most of one CTA; a processor has 1 KiB more.
  int64_t registers = 65536, threads = 2048; ///< Of a processor.
};

/// A CPU with so many threads.
DeviceModel cpuDevice(const std::string &cpu, int threads);
/// The GPU that a target is named after, A100 or H100; without a name.
DeviceModel gpuDevice(const std::string &target);

/// What compiled kernels take.
struct KernelNeeds {
  int64_t registers = 0, spilledBytes = 0; ///< A thread; the worst kernel.
  int64_t sharedBytes = 0; ///< Of a CTA; the kernel that has most.
  int64_t scanShared = 0, scanThreads = 0, scanRegisters = 0;
  bool splits = true; ///< A sequence can be split into segments.
  int64_t slices = 1; ///< CTAs of a scan for one head.
};

/// The largest state of a layer.
struct StateSize {
  int64_t k = 1, v = 1, count = 0;
};
StateSize stateSize(const runtime::Manifest &manifest);

double estimateMs(const LayerFacts &facts,
                  const runtime::TuningSchedule &schedule,
                  const runtime::TuningShape &shape, const DeviceModel &device,
                  const KernelNeeds *needs = nullptr);

/// Bytes of shared memory of a scan with two stages, before it is compiled:
/// a lower bound that leaves out paddings and what the output needs.
int64_t leastShared(const LayerFacts &facts,
                    const runtime::TuningSchedule &schedule);

/// Part of a decay that is lost where a kernel subtracts fp32 sums of C
/// logarithms that may each be `low`: C |low| 2^-24.
double decayLoss(int64_t chunk, double low);

/// Parts of a sequence: those asked for, or as many as pay.
int64_t segmentsOf(const runtime::TuningSchedule &schedule,
                   const runtime::TuningShape &shape, const DeviceModel &device,
                   const KernelNeeds &needs);

/// Waves of CTAs that a scan takes.
double wavesOf(const runtime::TuningSchedule &schedule,
               const runtime::TuningShape &shape, const DeviceModel &device,
               const KernelNeeds &needs);

} // namespace plum::tuning

#endif // PLUM_LIB_TUNING_COSTMODEL_H
