//===- Assoc.cpp - Dialect, types and attributes ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialects/Assoc/Assoc.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum::assoc;

#include "dialects/Assoc/AssocDialect.cpp.inc"
#include "dialects/Assoc/AssocEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Assoc/AssocAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/Assoc/AssocTypes.cpp.inc"

void AssocDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Assoc/AssocAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Assoc/AssocTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Assoc/AssocOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// StateType
//===----------------------------------------------------------------------===//

VectorType StateType::getKeyRowType() const {
  return VectorType::get({getKeyDim()}, Float32Type::get(getContext()));
}

VectorType StateType::getValueRowType() const {
  return VectorType::get({getValueDim()}, Float32Type::get(getContext()));
}

LogicalResult StateType::verify(function_ref<InFlightDiagnostic()> emitError,
                                int64_t keyDim, int64_t valueDim, Layout layout,
                                Type storage, Type accumulate) {
  // state_c1
  if (keyDim < 1 || valueDim < 1)
    return emitError() << "expects dims of at least 1, got " << keyDim
                       << " and " << valueDim;
  // state_c2
  if (!storage.isF32() && !storage.isF16() && !storage.isBF16())
    return emitError() << "expects storage f32, f16 or bf16, got " << storage;
  // state_c3
  if (!accumulate.isF32())
    return emitError() << "expects accumulation in f32, got " << accumulate;
  return success();
}

//===----------------------------------------------------------------------===//
// ListType
//===----------------------------------------------------------------------===//

VectorType ListType::getRowType() const {
  return VectorType::get({getWidth()}, Float32Type::get(getContext()));
}

LogicalResult ListType::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t width, Type storage) {
  // list_c1
  if (width < 1)
    return emitError() << "expects rows of at least 1, got " << width;
  // list_c2
  if (!storage.isF32() && !storage.isF16() && !storage.isBF16())
    return emitError() << "expects storage f32, f16 or bf16, got " << storage;
  return success();
}

//===----------------------------------------------------------------------===//
// DomainAttr
//===----------------------------------------------------------------------===//

ParseResult plum::assoc::parseDomain(OpAsmParser &parser, DomainAttr &domain) {
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Domain> value = symbolizeDomain(word);
  if (!value)
    return parser.emitError(loc)
           << "expects 'log' or 'linear', got '" << word << "'";
  domain = DomainAttr::get(parser.getContext(), *value);
  return success();
}

void plum::assoc::printDomain(OpAsmPrinter &printer, Operation *,
                              DomainAttr domain) {
  printer << stringifyDomain(domain.getValue());
}

//===----------------------------------------------------------------------===//
// BoundsAttr: <low, high> or <low, high, assumed>, with -inf and inf as words
//===----------------------------------------------------------------------===//

static ParseResult parseBound(AsmParser &parser, double &value) {
  bool negative = succeeded(parser.parseOptionalMinus());
  if (succeeded(parser.parseOptionalKeyword("inf")))
    value = std::numeric_limits<double>::infinity();
  else if (parser.parseFloat(value))
    return failure();
  if (negative)
    value = -value;
  return success();
}

static void printBound(AsmPrinter &printer, const APFloat &value) {
  if (value.isInfinity())
    printer << (value.isNegative() ? "-inf" : "inf");
  else
    printer.printFloat(value);
}

Attribute BoundsAttr::parse(AsmParser &parser, Type) {
  double low = 0, high = 0;
  bool assumed = false;
  if (parser.parseLess() || parseBound(parser, low) || parser.parseComma() ||
      parseBound(parser, high))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    if (parser.parseKeyword("assumed"))
      return {};
    assumed = true;
  }
  if (parser.parseGreater())
    return {};
  return get(parser.getContext(), low, high, assumed);
}

void BoundsAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printBound(printer, getLow());
  printer << ", ";
  printBound(printer, getHigh());
  if (getAssumed())
    printer << ", assumed";
  printer << ">";
}
