//===- Evaluator.h - Values of ops, one after the other ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A map from SSA values to arrays of doubles and a walk over blocks. Each
// dialect's ops are one file: Elementwise.cpp, AssocOps.cpp, ChunkOps.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_INTERPRETER_EVALUATOR_H
#define PLUM_LIB_INTERPRETER_EVALUATOR_H

#include "dialects/Chunk/Chunk.h"
#include "plum/Reference/Recurrence.h"
#include "plum/Support/Result.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <map>
#include <unordered_map>

namespace plum::interpreter {

/// A scalar (no axes), a row [d] or a matrix, row-major. Bools are 0 and 1.
struct Array {
  llvm::SmallVector<int64_t, 2> shape;
  std::vector<double> data;
  /// The value of chunk.cumsum: factors, to be multiplied and nothing else.
  bool isDecay = false;

  static Array filled(llvm::ArrayRef<int64_t> shape, double value);
  static Array scalar(double value) { return filled({}, value); }

  int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Elements of one row; 1 for a column [n].
  int64_t cols() const { return shape.size() < 2 ? 1 : shape[1]; }
  double *row(int64_t i) { return data.data() + i * cols(); }
  const double *row(int64_t i) const { return data.data() + i * cols(); }
  /// Row i as a value of its own: a vector, or a scalar of a column.
  Array copyOfRow(int64_t i) const;
};
using Arrays = std::vector<Array>;

/// softmax of the scores of the queries over the first `rows` rows of the
/// lists, times those of the values; of no rows, 0. Both dialects' attend.
Array attend(llvm::ArrayRef<Array> queries, llvm::ArrayRef<const Array *> keys,
             const Array &values, int64_t rows);

/// The shape of a value; a dynamic extent is `tokens`.
llvm::SmallVector<int64_t, 2> shapeOf(mlir::Type type, int64_t tokens);

class Evaluator {
public:
  Evaluator(reference::Head &head, llvm::ArrayRef<double> constants);

  Status runLayer(assoc::LayerOp layer);
  Status runFunction(mlir::func::FuncOp function);

private:
  //===--- Heads ----------------------------------------------------------===//
  /// The values of an argument: of a token, or all (token < 0).
  mlir::FailureOr<Array> argument(mlir::Operation *op, mlir::Type type,
                                  llvm::StringRef role, unsigned index,
                                  int64_t token);
  mlir::LogicalResult store(mlir::Operation *op, const Array &value,
                            llvm::ArrayRef<std::span<double>> to,
                            unsigned index, int64_t token);
  Status status(mlir::LogicalResult result) const;

  //===--- Blocks and ops -------------------------------------------------===//
  mlir::FailureOr<Arrays> runBlock(mlir::Block &block, Arrays arguments);
  mlir::LogicalResult run(mlir::Operation *op);
  mlir::LogicalResult runFor(mlir::scf::ForOp op);
  mlir::LogicalResult runElementwise(mlir::Operation *op);
  mlir::LogicalResult runConstant(mlir::Operation *op);
  mlir::LogicalResult runVector(mlir::Operation *op);
  mlir::LogicalResult runAssoc(mlir::Operation *op);
  mlir::LogicalResult runMap(assoc::MapOp op);
  mlir::LogicalResult runChunk(mlir::Operation *op);
  mlir::LogicalResult runTokens(chunk::MapOp op);
  mlir::LogicalResult runOutput(chunk::OutputOp op);
  mlir::LogicalResult runStage(chunk::StageOp op);
  /// Rows of `ins` for token `index` of the chunk that begins at `token`.
  Arrays rowsOf(mlir::ValueRange ins, int64_t token, int64_t index);

  //===--- Values ---------------------------------------------------------===//
  const Array &get(mlir::Value value) const {
    return values.at(value.getAsOpaquePointer());
  }
  double number(mlir::Value value) const { return get(value).data.front(); }
  mlir::LogicalResult set(mlir::Value value, Array array);
  /// The first error wins; always a failure.
  mlir::LogicalResult fail(mlir::Operation *op, const llvm::Twine &message);
  double exact(double constant) const;

  reference::Head &head;
  std::map<float, double> constants; ///< Magnitudes, by their f32 rounding.
  std::unordered_map<const void *, Array> values;
  std::optional<Error> error;
};

} // namespace plum::interpreter

#endif // PLUM_LIB_INTERPRETER_EVALUATOR_H
