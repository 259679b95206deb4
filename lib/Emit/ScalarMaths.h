//===- ScalarMaths.h - Functions of specs in arith and math -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The elementwise functions of the spec language as upstream ops on f32 and
// vector<dxf32>. sigmoid, softplus and friends are spelled out, so that the
// range analysis and every back end see only arith and math.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_EMIT_SCALARMATHS_H
#define PLUM_LIB_EMIT_SCALARMATHS_H

#include "plum/Frontend/AST.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace plum {

/// A constant of the type of `like` (f32 or a row of f32).
mlir::Value constantLike(mlir::ImplicitLocOpBuilder &b, mlir::Value like,
                         double value);

/// Broadcasts a scalar to the type of the other where they differ.
void unifyShapes(mlir::ImplicitLocOpBuilder &b, mlir::Value &lhs,
                 mlir::Value &rhs);

/// Sum of the elements of a row.
mlir::Value sumOf(mlir::ImplicitLocOpBuilder &b, mlir::Value row);

/// x ^ exponent.
mlir::Value powerOf(mlir::ImplicitLocOpBuilder &b, mlir::Value x,
                    double exponent);

/// func(args...); `eps` for the norms. Arguments are already of one shape.
mlir::Value callOf(mlir::ImplicitLocOpBuilder &b, frontend::Func func,
                   mlir::ValueRange args, double eps);

} // namespace plum

#endif // PLUM_LIB_EMIT_SCALARMATHS_H
