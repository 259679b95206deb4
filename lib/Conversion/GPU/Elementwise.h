//===- Elementwise.h - arith and math, one element a thread -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every elementwise op of a layer's or chunk's body on one f32 element, in the
// instructions of Ptx.h. Both GPU lowerings use it.
//
// Accuracy, in ulp of f32 where the result is normal (subnormals are zero):
//
//     op      instructions    error
//     exp     2 fast          2 + 0.7 |x|: an ex2 of a rounded product
//     exp     8 exact         3, at any x
//     log1p   10 for softplus 3, relative also at u = 1e-30: slow decays are
//             14 else         log1p of what is almost nothing
//     log     15              4, also next to 1
//     expm1   11 or 17        4, also next to 0
//     tanh    13              6, also next to 0
//     a / b   2               2; 1 / b: 1
//     others  1               1 or 2
//
// -inf, inf and NaN come out as C's functions have them. A divisor above 2^126
// gives 0.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_ELEMENTWISE_H
#define PLUM_LIB_CONVERSION_GPU_ELEMENTWISE_H

#include "Ptx.h"

namespace plum::gpu {

enum class Exp { Exact, Fast };

Value exp(Ptx &b, Value x, Exp accuracy = Exp::Exact);
/// log(1 + u). With `unit`, u is in [-1/2, 1].
Value log1p(Ptx &b, Value u, bool unit = false);
Value log(Ptx &b, Value x);
Value expm1(Ptx &b, Value x, Exp accuracy = Exp::Exact);
Value tanh(Ptx &b, Value x);
Value divide(Ptx &b, Value x, Value y);

/// The element of `op`'s result that belongs to the elements `operands`: of any
/// op of arith and math that a body has, of a splat constant and of a scalar's
/// vector.broadcast. Rows are taken to be of f32: conversions between f32 and
/// storage types happen at loads and stores, and are the identity here. Null
/// for another op.
Value emitScalar(Ptx &b, mlir::Operation *op, llvm::ArrayRef<Value> operands,
                 Exp accuracy = Exp::Exact);

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_ELEMENTWISE_H
