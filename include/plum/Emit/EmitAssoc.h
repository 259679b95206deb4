//===- EmitAssoc.h - From a checked layer to the assoc dialect --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_EMIT_EMITASSOC_H
#define PLUM_EMIT_EMITASSOC_H

#include "plum/Frontend/AST.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace plum {

struct EmitOptions {
  bool f32Storage =
      false; ///< Take every storage type as f32 (--precision f32).
};

/// The layer as one `assoc.layer` in a module. Values carry the spec's names
/// and places as their locations. Null, with an MLIR error, only for matrix
/// expressions that not even the step form can run.
mlir::OwningOpRef<mlir::ModuleOp> emitAssoc(const frontend::Layer &layer,
                                            const Source &source,
                                            const EmitOptions &options,
                                            mlir::MLIRContext &context);

} // namespace plum

#endif // PLUM_EMIT_EMITASSOC_H
