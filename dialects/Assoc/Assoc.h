//===- Assoc.h - The assoc dialect ------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One token of a layer as updates of an associative memory. What each op
// means stands in AssocOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_ASSOC_ASSOC_H
#define PLUM_DIALECTS_ASSOC_ASSOC_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Assoc/AssocDialect.h.inc"
#include "dialects/Assoc/AssocEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Assoc/AssocAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/Assoc/AssocTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/Assoc/AssocOps.h.inc"

namespace plum::assoc {
/// `log` or `linear`, the word alone: how ops of every dialect write a domain.
mlir::ParseResult parseDomain(mlir::OpAsmParser &parser, DomainAttr &domain);
void printDomain(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                 DomainAttr domain);
} // namespace plum::assoc

#endif // PLUM_DIALECTS_ASSOC_ASSOC_H
