//===- CostModel.cpp - How long a schedule may take -----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CostModel.h"

#include "plum/Target/GpuChip.h"
#include "runtime/cuda/LaunchPlan.h"

#include <algorithm>
#include <cmath>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

DeviceModel plum::tuning::cpuDevice(const std::string &cpu, int threads) {
  DeviceModel device;
  device.name = cpuDeviceName(cpu, threads);
  device.processors = threads;
  return device;
}

DeviceModel plum::tuning::gpuDevice(const std::string &target) {
  DeviceModel device;
  device.gpu = true;
  bool hopper = target == "sm_90a";
  device.processors = hopper ? 132 : 108;
  device.sharedBytes = gpuChipOf(hopper ? 90 : 80).sharedBytes;
  return device;
}

StateSize plum::tuning::stateSize(const Manifest &manifest) {
  StateSize size;
  for (const ManifestTensor &state : manifest.states) {
    if (state.grows)
      continue;
    size.count += 1;
    int64_t k = state.shape.empty() ? 1 : state.shape[0];
    int64_t v = state.shape.size() < 2 ? 1 : state.shape[1];
    if (k * v > size.k * size.v)
      size.k = k, size.v = v;
  }
  return size;
}

namespace {

struct Flops {
  double states, pairs, inverse, step; ///< A token of one head.
};

Flops flopsOf(const LayerFacts &facts, int64_t chunk) {
  StateSize size = stateSize(facts.manifest);
  auto K = double(size.k), V = double(size.v), C = double(chunk);
  auto e = double(facts.erases), w = double(facts.writes);
  return {2 * K * V * (1 + e + w), C * (K + V) * (1 + e), e * C * C / 4,
          K * V * (1 + 2 * (1 + e) + 2 * w)};
}

// CPU, a thread. The state of a step kernel streams from L1 or from L2; the
// passes over the state that every chunk makes are bound by L2, too.
constexpr double cpuFlopsPerUs = 17.5e3, cpuStepInL1 = 32e3,
                 cpuStepInL2 = 12.5e3, cpuBytesPerUs = 20e3, cpuPasses = 3,
                 cpuTokenUs = 0.1; // Rows and loops, whatever their length.
constexpr int64_t l1Bytes = 32 << 10;

/// What attends to a growing state costs: a token sees half of the sequence's
/// rows as a rule, and a chunk gathers them once for all of its tokens.
double listsUs(const LayerFacts &facts, const TuningSchedule &schedule,
               const TuningShape &shape) {
  double width = 0;
  for (const ManifestTensor &state : facts.manifest.states)
    width += state.grows ? double(state.elements()) : 0;
  auto tokens = double(shape.tokens), rows = tokens / 2;
  if (schedule.form == "step")
    return tokens * rows * 2 * width / cpuStepInL2;
  return tokens * rows * 2 * width / cpuFlopsPerUs +
         double(ceilDiv(shape.tokens, schedule.chunk)) * rows * 4 * width /
             cpuBytesPerUs;
}

double cpuUs(const LayerFacts &facts, const TuningSchedule &schedule,
             const TuningShape &shape) {
  Flops flops = flopsOf(facts, schedule.chunk);
  StateSize size = stateSize(facts.manifest);
  auto tokens = double(shape.tokens);
  int64_t bytes = size.k * size.v * 4;
  double lists = listsUs(facts, schedule, shape);
  if (schedule.form == "step")
    return lists + tokens * (cpuTokenUs + flops.step / (bytes <= l1Bytes
                                                            ? cpuStepInL1
                                                            : cpuStepInL2));
  auto chunks = double(ceilDiv(shape.tokens, schedule.chunk));
  double perToken =
      cpuTokenUs + (flops.states + flops.pairs + flops.inverse) / cpuFlopsPerUs;
  return lists + chunks * (double(schedule.chunk) * perToken +
                           cpuPasses * double(bytes) / cpuBytesPerUs);
}

// GPU, a processor: half of what an H200 can do in bf16 is a good kernel; a
// chunk's chain of three products takes at least the latency.
constexpr double gpuFlopsPerUs = 2.6e6, gpuLatencyUs = 0.5,
                 gpuStepFlopsPerUs = 1e5, gpuSpillUs = 2e-4;

double gpuUs(const LayerFacts &facts, const TuningSchedule &schedule,
             const TuningShape &shape, const DeviceModel &device,
             const KernelNeeds &needs) {
  Flops flops = flopsOf(facts, schedule.chunk);
  double waves = wavesOf(schedule, shape, device, needs);
  if (schedule.form == "step") {
    double perToken = flops.step / gpuStepFlopsPerUs / double(needs.slices);
    return double(shape.tokens) * waves * std::max(perToken, 0.3);
  }
  auto C = double(schedule.chunk);
  int64_t segments = segmentsOf(schedule, shape, device, needs);
  auto chain = double(ceilDiv(ceilDiv(shape.tokens, schedule.chunk), segments));
  double products = C * flops.states / double(needs.slices) / gpuFlopsPerUs;
  // M and B of each segment are a second walk over its chunks.
  double walks = segments > 1 ? 2 : 1;
  double scan = walks * waves * chain * (gpuLatencyUs + products);
  auto chunks = double(ceilDiv(shape.tokens, schedule.chunk) * shape.rows());
  double prepare = chunks / double(device.processors) *
                   (C * (flops.pairs + flops.inverse) / gpuFlopsPerUs +
                    double(needs.spilledBytes) * gpuSpillUs);
  return scan + prepare;
}

KernelNeeds guess(const LayerFacts &facts, const TuningSchedule &schedule) {
  KernelNeeds needs;
  int64_t V = stateSize(facts.manifest).v;
  int64_t slice = schedule.slice ? schedule.slice : V % 64 ? V : 64;
  needs.slices = std::max<int64_t>(V / slice, 1);
  needs.scanShared = leastShared(facts, schedule);
  needs.scanThreads = slice * 2 + 32; // A warp for 16 columns, one for copies.
  return needs;
}

} // namespace

int64_t plum::tuning::segmentsOf(const TuningSchedule &schedule,
                                 const TuningShape &shape,
                                 const DeviceModel &device,
                                 const KernelNeeds &needs) {
  if (schedule.form == "step" || !needs.splits)
    return 1;
  if (schedule.segments > 0)
    return schedule.segments;
  cuda::GpuSizes sizes{shape.batch, shape.tokens, shape.heads, false};
  return cuda::segmentsFor(sizes, schedule.chunk, needs.slices,
                           int(device.processors));
}

double plum::tuning::wavesOf(const TuningSchedule &schedule,
                             const TuningShape &shape,
                             const DeviceModel &device,
                             const KernelNeeds &needs) {
  auto blocks = double(shape.rows()) * double(needs.slices) *
                double(segmentsOf(schedule, shape, device, needs));
  int64_t together = 8;
  if (needs.scanShared > 0)
    together = std::min(together, (device.sharedBytes + 1024) /
                                      (needs.scanShared + 1024));
  if (needs.scanThreads > 0) {
    together = std::min(together, device.threads / needs.scanThreads);
    if (needs.scanRegisters > 0)
      together = std::min(together, device.registers / (needs.scanRegisters *
                                                        needs.scanThreads));
  }
  // CTAs that share a processor share its tensor cores; what they hide from
  // each other is latency, about a third of a chunk.
  double full = std::ceil(blocks / double(device.processors));
  return together > 1 && full > 1 ? 1 + (full - 1) * 0.7 : full;
}

int64_t plum::tuning::leastShared(const LayerFacts &facts,
                                  const TuningSchedule &schedule) {
  if (schedule.form == "step")
    return 0;
  StateSize size = stateSize(facts.manifest);
  int64_t C = schedule.chunk;
  int64_t slice = schedule.slice     ? schedule.slice
                  : size.v % 64 != 0 ? size.v
                                     : 64;
  // bf16: rows that read, erase and write; triangles of scores and of the
  // solve; the slice of V.
  int64_t stage = 2 * (C * size.k * (1 + facts.erases + facts.writes) +
                       C * C * (1 + facts.erases) + C * slice);
  // What was asked for, but no more than any kernel needs: auto may take two.
  return stage * std::max<int64_t>(schedule.stages, 2);
}

double plum::tuning::decayLoss(int64_t chunk, double low) {
  return double(chunk) * std::abs(low) * 0x1p-24;
}

double plum::tuning::estimateMs(const LayerFacts &facts,
                                const TuningSchedule &schedule,
                                const TuningShape &shape,
                                const DeviceModel &device,
                                const KernelNeeds *needs) {
  if (!device.gpu)
    return cpuUs(facts, schedule, shape) *
           double(ceilDiv(shape.rows(), device.processors)) / 1000;
  return gpuUs(facts, schedule, shape, device,
               needs ? *needs : guess(facts, schedule)) /
         1000;
}
