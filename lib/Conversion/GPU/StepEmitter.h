//===- StepEmitter.h - The thread code of a step ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a StepGraph round by round. What is exchanged has its own place in
// shared memory; it is written in one round and read after the barrier that
// ends it, and the next token's write comes at least one barrier later (a token
// whose last round still reads what its first one wrote gets one more).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_STEPEMITTER_H
#define PLUM_LIB_CONVERSION_GPU_STEPEMITTER_H

#include "StepMemory.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace plum::gpu {

class StepEmitter {
public:
  StepEmitter(assoc::LayerOp layer, const StepGraph &graph,
              const StepShape &shape, Ptx &b);

  /// Writes the whole kernel, but for its end.
  mlir::LogicalResult run();
  int64_t sharedBytes() const { return sharedTop; }
  /// Operations of one token on the states.
  int64_t flops() const { return operations; }

private:
  using Index = unsigned;

  //===--- Places ---------------------------------------------------------===//
  void placeShared();
  void clearPadding();
  int64_t sharedSize(const StepNode &node);
  Value place(Index node) { return b.shared(places.lookup(node)); }
  /// Notes that what the node exchanged is read now.
  Value received(Index node);

  //===--- Nodes ----------------------------------------------------------===//
  /// A node's elements; one element that stands for all when it has only one.
  llvm::ArrayRef<Value> held(Index node);
  Value element(Index node, int64_t i);
  void emit(Index node);
  Values argument(const StepNode &node, Value row);
  Values elementwise(const StepNode &node);
  Values rowsOf(Index node);
  Values decayed(const StepNode &node);
  Values step(const StepNode &node, assoc::StepOp op);
  Values map(const StepNode &node, assoc::MapOp op);
  void send(Index node);
  void sendSum(Index node, mlir::vector::ReductionOp op);
  void sendShared(Index node);
  void sendDot(Index node);
  Values receiveSum(Index node, mlir::vector::ReductionOp op);
  Values receiveDot(Index node);
  Values receiveShared(Index node);
  Value combine(mlir::vector::CombiningKind kind, Value x, Value y);
  Value scalar(mlir::Operation *op, llvm::ArrayRef<Value> operands);

  //===--- The kernel -----------------------------------------------------===//
  int64_t count(assoc::Role role) { return layer.argumentsOf(role).size(); }
  void findRows();
  void readParams();
  Values loadStates();
  Values token(Value index, mlir::ValueRange states);
  void finishToken(Value index);
  void keepStates(Value index);

  static int64_t lengthOf(Value row) {
    return llvm::cast<mlir::VectorType>(row.getType()).getNumElements();
  }
  StateSplit splitOf(const StepNode &node) { return shape.state(node.state); }

  assoc::LayerOp layer;
  const StepGraph &graph;
  const StepShape &shape;
  Ptx &b;
  StepMemory memory;
  llvm::DenseMap<Value, int64_t> inputs; ///< Their rows.
  llvm::DenseMap<Index, int64_t> places; ///< In shared memory.
  llvm::SmallVector<Values> values;      ///< Of nodes.
  int64_t round = 0;
  bool needsLastBarrier = false, failed = false;
  int64_t rowsPlace = 0, sharedTop = 0, operations = 0;
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_STEPEMITTER_H
