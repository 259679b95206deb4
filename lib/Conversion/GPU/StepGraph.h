//===- StepGraph.h - What a step kernel computes, and when ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A CTA of T threads owns S[K, w]: w columns of every state of one head, its
// slice. The slice is cut into groups of C columns and runs of P rows, and
// thread (r, c) keeps [P x C] of it in registers from the first token to the
// last. A value of a token's equations is held in the form that its users need:
//
//     Uniform   a scalar: every thread has it
//     Full      a row: thread t has elements t, t + T, ...
//     Slice     a row of V: thread (r, c) has the C elements of its columns
//     Shared    a row, all of it in shared memory
//     Rows      a row of K: thread (r, c) has the P elements of its rows
//     Dot       f S: products summed over K; held as a Slice
//     Decayed   D S of a step; as a State
//     State     thread (r, c) has [P x C]
//
// Reductions, Shared and Dot are exchanges: threads write to shared memory,
// wait for each other and read. A node's round is the number of barriers before
// it; everything of one round is exchanged at one barrier, so KDA, which has
// two norms, three rows of K and two reads, takes four:
//
//     0  load                                  |k|^2, |q|^2  ->
//     1  normalise, decay exp(a)                       k, q, exp(a) ->
//     2  decay the state                               k S  ->
//     3  u = beta (v - k S), S += k^T u                q S  ->
//     4  o
//
// The same row may be held in two forms; maths is then done twice, which is
// cheaper than an exchange.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_STEPGRAPH_H
#define PLUM_LIB_CONVERSION_GPU_STEPGRAPH_H

#include "dialects/Assoc/Assoc.h"

#include <map>

namespace plum::gpu {

enum class Form { Uniform, Full, Slice, Shared, Rows, Dot, Decayed, State };

struct StepNode {
  Form form;
  /// The value of the body; of a Decayed its step's result, of a Dot its key.
  mlir::Value value;
  assoc::StateType state; ///< Rows, Dot, Decayed, State: of which states.
  llvm::SmallVector<unsigned> operands;
  int64_t round = 0;
  bool exchange = false;
};

/// True for what has more than one element; rows of one are held as scalars.
bool isRow(mlir::Type type);

class StepGraph {
public:
  /// Finds what the layer's outputs and next states need. Log decays must have
  /// been made linear.
  static mlir::FailureOr<StepGraph> read(assoc::LayerOp layer);

  llvm::SmallVector<StepNode, 0> nodes; ///< Operands before users.
  llvm::SmallVector<unsigned> outputs;  ///< Uniform or Slice.
  llvm::SmallVector<unsigned> states;   ///< What is yielded.
  int64_t rounds = 0;                   ///< Barriers of a token.
  /// Some row of V is needed whole: no slices.
  bool wholeRows = false;

private:
  explicit StepGraph(assoc::LayerOp layer) : layer(layer) {}
  using Key = std::tuple<Form, void *, const void *>;

  unsigned add(Form form, mlir::Value value, assoc::StateType state,
               const void *extra, llvm::ArrayRef<unsigned> operands,
               bool exchange);
  unsigned uniform(mlir::Value value);
  unsigned row(Form form, mlir::Value value);
  unsigned shared(mlir::Value value);
  unsigned rows(mlir::Value value, assoc::StateType type);
  unsigned dot(unsigned state, mlir::Value key, assoc::StateType type);
  unsigned dotOf(assoc::ReadOp op);
  unsigned state(mlir::Value value);
  unsigned step(assoc::StepOp op);
  unsigned map(assoc::MapOp op);
  unsigned refuse(mlir::Operation *op, llvm::StringRef why);

  assoc::LayerOp layer;
  std::map<Key, unsigned> index;
  bool failed = false;
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_STEPGRAPH_H
