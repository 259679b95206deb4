//===- GpuBackend.h - A model's operations on a GPU -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each operation of Backend as launches of a Machine. Nothing waits: a pass of
// any number of layers is one row of launches, and the host reads back logits
// alone.
//
//   rows      f32 in memory that is used again as soon as its Rows are gone:
//             launches happen in order, so the next owner writes later
//   weights   copied to the GPU when first used, in the type that the model
//             computes in; MXFP4 stays packed
//   tables    what kernels look up of a batch: tokens, positions, which row is
//             of which sequence, slots, addresses of caches; one copy a pass
//   passes    one token of each of N sequences, or as many of each with
//             checkpoints, is a pass that is recorded the second time and
//             replayed from then on: all that differs is in the tables
//
// Compute f32 is exact f32, to compare with expected values. Compute bf16
// multiplies in bf16 with f32 sums, keeps caches in bf16, and rounds nothing
// else.
//
// A row's bits depend on its own sequence, not on the others of its batch: the
// order of a sum never depends on the number of rows. A pass with checkpoints
// takes the kernels of single tokens for all its rows, so each has the bits
// that it would have had by itself: to drop drafted tokens is to never have had
// them, and those that stay are what decoding would have made.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_GPU_GPUBACKEND_H
#define PLUM_RUNTIME_MODEL_GPU_GPUBACKEND_H

#include "runtime/cuda/Moe.h"
#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/model/Backend.h"
#include "runtime/model/gpu/Machine.h"

#include <functional>
#include <tuple>
#include <unordered_map>

namespace plum::model {

/// How a memory is opened: `openGpuMemory`, but for tests.
using OpenMemory = std::function<Result<std::shared_ptr<MemoryKernel>>(
    Machine &machine, const std::string &bundle, const MemorySpec &spec,
    Compute compute)>;

struct GpuBackendOptions {
  Compute compute = Compute::F32;
  /// Matrices are filled with random values on the GPU, whatever the files
  /// hold: to measure models of sizes that no disk has.
  bool randomWeights = false;
  bool record = true;
  OpenMemory openMemory = openGpuMemory;
};

class GpuBackend final : public Backend {
public:
  GpuBackend(std::unique_ptr<Machine> machine, GpuBackendOptions options);
  ~GpuBackend() override;

  Status status() const override { return machine->status(); }
  /// The GPU, for tools that measure.
  Machine &gpu() { return *machine; }
  /// Whether passes are recorded, and recorded ones replayed.
  void setRecording(bool on) { options.record = on; }
  /// Of weights on the GPU, and of everything.
  int64_t weightBytes() const { return weightSum; }

  void *allocate(size_t bytes) override;
  void release(void *block) override;
  void *reserve(size_t bytes) override { return machine->allocate(bytes); }
  void free(void *block) override { machine->release(block); }
  void copyIn(void *to, const void *from, size_t bytes) override {
    machine->copyIn(to, from, bytes);
  }
  void copyOut(void *to, const void *from, size_t bytes) override {
    machine->copyOut(to, from, bytes);
  }
  void copy(void *to, const void *from, size_t bytes) override {
    machine->copy(to, from, bytes);
  }
  void clear(void *block, size_t bytes) override {
    machine->clear(block, bytes);
  }
  std::shared_ptr<HostMemory> hostMemory() override {
    return machine->pinned();
  }
  DType cacheType() const override {
    return options.compute == Compute::BF16 ? DType::BF16 : DType::F32;
  }
  Result<std::shared_ptr<MemoryKernel>>
  openMemory(const std::string &bundle, const MemorySpec &spec) override {
    return options.openMemory(*machine, bundle, spec, options.compute);
  }

  bool begin(const Work &work, const Batch &batch) override;
  Rows end(const Work &work, Rows x, const Matrix &head) override;

  Rows embed(const Work &work, const Matrix &table) override;
  void addPlaces(const Work &work, const View &x, const Matrix &table) override;
  void multiply(const Work &work, std::span<const Product> products) override;
  Rows rmsNorm(const Work &work, const View &x, const Vector &weight,
               float eps) override;
  void rmsNormHeads(const Work &work, const View &x, const Vector &weight,
                    float eps) override;
  Rows layerNorm(const Work &work, const View &x, const Vector &weight,
                 const Vector &bias, float eps) override;
  void add(const Work &work, const View &x, const View &y) override;
  void addBias(const Work &work, const View &x, const Vector &bias) override;
  void gated(const Work &work, const Activation &act, const View &g,
             const View &u) override;
  void activate(const Work &work, const Activation &act,
                const View &x) override;
  void gateSigmoid(const Work &work, const View &x, const View &gate) override;
  void gateRows(const Work &work, const View &x, const View &gate) override;
  void normThenGate(const Work &work, const View &o, const View &gate,
                    const Vector &weight, float eps, GateKind act) override;
  void gateThenNorm(const Work &work, const View &o, const View &gate,
                    const Vector &weight, float eps) override;
  void rotate(const Work &work, const View &x, int64_t width, int64_t dims,
              double theta) override;
  void pickHeads(const Work &work, const View &from, int64_t stride,
                 int64_t begin, int64_t width, const View &to) override;
  Rows mixture(const Work &work, std::span<const View> sources,
               const Vector &mixer) override;
  Rows convolve(const Work &work, const ShortConv &conv,
                const View &x) override;
  Rows attend(const Work &work, const LatentAttention &attention, const View &q,
              const View &rows) override;
  Rows route(const Work &work, const Experts &experts, const View &x,
             const View &z) override;
  Rows remember(const Work &work, const MemoryLayer &memory,
                std::span<const MemoryLayer::Input> inputs) override;

private:
  /// A weight on the GPU.
  struct Resident {
    const void *data = nullptr;
    const uint8_t *scales = nullptr;
    kernels::WeightKind kind = kernels::WeightKind::F32;
  };
  /// The experts of a layer; one matrix of all of them.
  struct ResidentExperts;
  struct Stack;
  /// Of a batch, in one block: see `begin`.
  struct Tables {
    std::byte *block = nullptr;
    size_t bytes = 0;
    int64_t rows = 0, sequences = 0;
    const int32_t *ids, *position, *sequence, *begins, *slots, *last;
    const int32_t *past;   ///< Tokens before the pass, of each sequence.
    const int64_t *caches; ///< Addresses [growing states, sequences].
    /// With checkpoints: the block after each row; then, in the order of steps
    /// (GpuMemory.cpp), the row of each token and the block before it; the
    /// token of each row; 0, 1, ... sequences; rows of each step.
    const int32_t *after, *order, *before, *places, *counting;
    std::vector<int64_t> stepRows;
  };
  struct Steps;
  struct Pass;
  struct RotaryTable {
    int64_t dims = 0, positions = 0;
    double theta = 0;
    const float *data = nullptr;
  };

  static kernels::Rows rowsOf(const View &x);
  /// Memory that stays as long as the backend, and a copy in such memory.
  void *upload(size_t bytes);
  const void *upload(const void *values, size_t bytes);
  const float *vector(const Vector &values);
  Resident weight(const Matrix &matrix);
  void place(const Matrix &matrix, void *to, void *scales);
  int64_t placedBytes(const Matrix &matrix) const;
  static int64_t scaleBytes(const Matrix &matrix);
  kernels::WeightKind placedKind(const Matrix &matrix) const;
  void fillRandom(void *to, int64_t count, kernels::WeightKind kind,
                  int64_t cols, bool scales);
  const ResidentExperts &residentExperts(const Experts &experts);
  void stackExperts(const Experts &experts, Matrix Mlp::*which, Stack &to);
  runtime::cuda::ExpertMatrix packExperts(const Experts &experts,
                                          Matrix Mlp::*which);
  void routeExactly(const Work &work, const Experts &experts,
                    const ResidentExperts &resident, const View &logits,
                    const View &z, const View &y);

  void fillTables(const Work &work, const Batch &batch, Tables &tables);
  void forget();
  Rows rowsOfTable(const Matrix &table, const int32_t *ids);
  const float *rotaryTable(int64_t dims, double theta);
  const float *fillRotaryTable(RotaryTable &table);
  void growRotaryTables();

  void normalize(kernels::NormArgs args);
  void elementwise(kernels::Elementwise op, const View &x,
                   const kernels::Rows &u, const kernels::Rows &y,
                   const Activation *act = nullptr);
  /// The rows as dense bf16.
  Rows narrowed(const View &x);
  /// Row i is row `ids[i]` of x, dense and of another type if need be.
  Rows gathered(const kernels::Rows &x, const View &shape, const int32_t *ids,
                DType type);
  const float *
  narrowedOnce(const View &x,
               std::vector<std::pair<const float *, Rows>> &packed);
  struct Skinny {
    View x, y;
    int64_t heads = 1;
    kernels::SkinnyPart part = {}; ///< The weight, and what heads have.
  };
  void skinny(std::span<const Skinny> products);
  void multiplyExactly(Gemm gemm);
  /// Head h of y is head h of x, `cols` of its `pitch` columns, times rows
  /// firstRow + h * headRows .. of w.
  struct HeadProduct {
    View x, y;
    Resident w;
    int64_t heads, cols, pitch, headRows, firstRow;
  };
  void multiplyHeads(const HeadProduct &product);
  void dots(const View &x, const Resident &w, const View &y);
  void launchDots(const kernels::DotsArgs &args);

  // Memories.

  struct MemoryOutput;
  /// Addresses of a growing state's rows, for kernels.
  const int64_t *cachesOf(int64_t state) const;
  void setParams(const MemoryLayer &memory, runtime::RunArgs &args);
  void launch(const MemoryLayer &memory, const runtime::RunArgs &args);
  /// Runs `args`, which lacks params, sequences and the output: [count, H * d].
  Rows runOnce(const MemoryLayer &memory, runtime::RunArgs args, int64_t count);
  Rows rememberSteps(const MemoryLayer &memory,
                     std::span<const MemoryLayer::Input> inputs);
  Rows asF32(MemoryOutput &output);

  // Latent attention.

  void append(const View &x, int64_t state, int64_t cacheWidth);
  /// W_UK of each head, transposed: [heads * latent, nope].
  Resident absorbing(const LatentAttention &attention);
  Rows expand(const LatentAttention &attention, std::vector<int64_t> &firsts);
  Rows attendExpanded(const LatentAttention &attention, const View &q,
                      const View &rows);

  std::unique_ptr<Machine> machine;
  GpuBackendOptions options;
  int64_t weightSum = 0;

  std::map<size_t, std::vector<void *>> spare; ///< Of `allocate`, by size.
  std::unordered_map<void *, size_t> sizes;    ///< Of `allocate`.
  std::vector<void *> kept;                    ///< Of `upload`.
  std::unordered_map<const void *, const void *> vectors;
  std::unordered_map<const void *, Resident> weights;
  std::unordered_map<const Experts *, std::unique_ptr<ResidentExperts>>
      expertLists;
  std::vector<RotaryTable> rotaryTables;
  /// By pool, sequences, wanted logits, tokens of each, checkpoints.
  std::map<std::tuple<const void *, int64_t, Logits, int64_t, const void *>,
           std::unique_ptr<Pass>>
      passes;
  Tables other;             ///< Of passes that are not recorded.
  Tables *tables = nullptr; ///< Of the pass that runs.
  Pass *current = nullptr;  ///< That can be recorded.
  bool recording = false;
  /// Every row is computed as the single token of a sequence: it is one, or
  /// the pass has checkpoints.
  bool stepping = false;
  int64_t longest = 0, lastPosition = 0; ///< Of the batch.
  Logits wanted = Logits::Last;
  std::span<const Span> spans; ///< Of the batch.
  StatePool *pool = nullptr;
  int64_t fills = 0; ///< Random weights so far, for their seeds.
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_GPU_GPUBACKEND_H
