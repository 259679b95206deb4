//===- Backend.h - Where a model runs, if not on this CPU -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A model is written once, as functions on rows: rmsNorm, multiply, gated,
// LatentAttention::run, MemoryLayer::run (Elementwise.h, Work.h, Attention.h,
// ...). They compute on this CPU, unless the Work of the pass names a Backend:
// then they hand their arguments over, and the same line of a model runs
// elsewhere.
//
// What makes that possible is that models never look into rows. A View is an
// address, a count and a stride; columns and rows of it are arithmetic on the
// address, which is as good for the memory of a GPU. Weights are named by their
// address in this program, and the backend keeps what it made of them under
// that name. Everything a backend is told to do happens later, in order;
// copyOut waits for it. What goes wrong is kept and found in `status`; from
// then on nothing is done any more.
//
// Rows are f32 on every backend.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_BACKEND_H
#define PLUM_RUNTIME_MODEL_BACKEND_H

#include "runtime/model/Block.h"
#include "runtime/model/Elementwise.h"
#include "runtime/model/Memory.h"

namespace plum::model {

struct LatentAttention;
struct ShortConv;
struct Experts;
struct Mlp;

enum class Logits : uint8_t { None, Last, All };

/// The tokens of one forward pass.
struct Batch {
  std::span<const Span> spans;
  std::span<const int32_t> ids; ///< One for each row.
  Logits logits = Logits::Last; ///< Of which rows.
};

class Backend {
public:
  virtual ~Backend() = default;

  /// The first thing that went wrong.
  virtual Status status() const = 0;

  // Memory.

  /// For rows; null when there is no memory.
  virtual void *allocate(size_t bytes) = 0;
  virtual void release(void *block) = 0;
  /// For what stays from pass to pass.
  virtual void *reserve(size_t bytes) = 0;
  virtual void free(void *block) = 0;
  virtual void copyIn(void *to, const void *from, size_t bytes) = 0;
  virtual void copyOut(void *to, const void *from, size_t bytes) = 0;
  virtual void copy(void *to, const void *from, size_t bytes) = 0;
  virtual void clear(void *block, size_t bytes) = 0;
  /// Elements of a growing state: F32, or BF16.
  virtual DType cacheType() const = 0;

  /// One of BUNDLE's, or, where there is no bundle, of the specs.
  virtual Result<std::shared_ptr<MemoryKernel>>
  openMemory(const std::string &bundle, const MemorySpec &spec) = 0;

  // A forward pass is `begin`, the functions of the network, `end`.

  /// Makes room in the states. False when the very pass was recorded before:
  /// then `end` replays it and the network has nothing to do.
  virtual bool begin(const Work &work, const Batch &batch) = 0;
  /// The products with `head` of the batch's rows, in this program's memory.
  virtual Rows end(const Work &work, Rows x, const Matrix &head) = 0;
  Rows download(const View &x);
  /// Where `download` puts rows; null: anywhere.
  virtual std::shared_ptr<HostMemory> hostMemory() { return nullptr; }

  virtual Rows embed(const Work &work, const Matrix &table) = 0;
  virtual void addPlaces(const Work &work, const View &x,
                         const Matrix &table) = 0;
  virtual void multiply(const Work &work,
                        std::span<const Product> products) = 0;

  virtual Rows rmsNorm(const Work &work, const View &x, const Vector &weight,
                       float eps) = 0;
  virtual void rmsNormHeads(const Work &work, const View &x,
                            const Vector &weight, float eps) = 0;
  virtual Rows layerNorm(const Work &work, const View &x, const Vector &weight,
                         const Vector &bias, float eps) = 0;
  virtual void add(const Work &work, const View &x, const View &y) = 0;
  virtual void addBias(const Work &work, const View &x, const Vector &bias) = 0;
  virtual void gated(const Work &work, const Activation &act, const View &g,
                     const View &u) = 0;
  virtual void activate(const Work &work, const Activation &act,
                        const View &x) = 0;
  virtual void gateSigmoid(const Work &work, const View &x,
                           const View &gate) = 0;
  virtual void gateRows(const Work &work, const View &x, const View &gate) = 0;
  virtual void normThenGate(const Work &work, const View &o, const View &gate,
                            const Vector &weight, float eps, GateKind act) = 0;
  virtual void gateThenNorm(const Work &work, const View &o, const View &gate,
                            const Vector &weight, float eps) = 0;
  virtual void rotate(const Work &work, const View &x, int64_t width,
                      int64_t dims, double theta) = 0;
  virtual void pickHeads(const Work &work, const View &from, int64_t stride,
                         int64_t begin, int64_t width, const View &to) = 0;
  virtual Rows mixture(const Work &work, std::span<const View> sources,
                       const Vector &mixer) = 0;

  virtual Rows convolve(const Work &work, const ShortConv &conv,
                        const View &x) = 0;
  virtual Rows attend(const Work &work, const LatentAttention &attention,
                      const View &q, const View &rows) = 0;
  virtual Rows route(const Work &work, const Experts &experts, const View &x,
                     const View &z) = 0;
  virtual Rows remember(const Work &work, const MemoryLayer &memory,
                        std::span<const MemoryLayer::Input> inputs) = 0;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_BACKEND_H
