//===- Constraints.cpp - What verifiers have in common ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/Constraints.h"

using namespace mlir;
using namespace plum;
using namespace plum::tile;

LogicalResult tile::expectTensor(Operation *op, StringRef what, Value value,
                                 ArrayRef<int64_t> shape, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape && type.getElementType() == element)
    return success();
  return op->emitOpError() << "expects " << what << " of type "
                           << RankedTensorType::get(shape, element) << ", got "
                           << type;
}

LogicalResult tile::expectTensor(Operation *op, StringRef what, Value value,
                                 ArrayRef<int64_t> shape) {
  return expectTensor(op, what, value, shape,
                      getElementTypeOrSelf(value.getType()));
}

LogicalResult tile::expectTile(Operation *op, StringRef what, Value tile,
                               int64_t rows, int64_t cols) {
  SharedType type = tileOf(tile);
  if (type.getRows() == rows && type.getCols() == cols)
    return success();
  return op->emitOpError() << "expects " << what << " of " << rows << " x "
                           << cols << ", got " << type;
}

LogicalResult tile::expectLayout(Operation *op, StringRef what, Value value,
                                 ArrayRef<LayoutKind> legal) {
  std::optional<LayoutKind> kind = layoutOf(value.getType());
  if (!kind || llvm::is_contained(legal, *kind))
    return success();
  InFlightDiagnostic d = op->emitOpError()
                         << "expects " << what << " in layout ";
  llvm::interleave(
      legal, [&](LayoutKind k) { d << stringifyLayoutKind(k); },
      [&] { d << " or "; });
  return d << ", got " << stringifyLayoutKind(*kind);
}

LogicalResult tile::expectAcc(Operation *op) {
  for (Value value : op->getOperands())
    if (isa<RankedTensorType>(value.getType()) &&
        failed(expectLayout(op, "an operand", value, LayoutKind::Acc)))
      return failure();
  for (Value value : op->getResults())
    if (failed(expectLayout(op, "a result", value, LayoutKind::Acc)))
      return failure();
  return success();
}

int64_t tile::teamsAround(Operation *op) {
  auto kernel = op->getParentOfType<KernelOp>();
  return kernel && !op->getParentOfType<TeamOp>() ? int64_t(kernel.getTeams())
                                                  : 1;
}

LogicalResult tile::expectStrip(Operation *op, Value strip, int64_t columns,
                                bool shared) {
  auto argument = dyn_cast<BlockArgument>(strip);
  auto strips = argument && argument.getArgNumber() == 0
                    ? dyn_cast<StripsOp>(argument.getOwner()->getParentOp())
                    : StripsOp();
  if (!strips)
    return op->emitOpError() << "expects the strip of a 'tile.strips'";
  const int64_t most = columns / 16 / (shared ? teamsAround(op) : 1);
  if (int64_t(strips.getCount()) > most) {
    InFlightDiagnostic d = op->emitOpError()
                           << "expects at most " << most << " strips of "
                           << columns << " columns, got " << strips.getCount();
    d.attachNote(strips.getLoc()) << "the strips";
    return d;
  }
  return success();
}

KernelOp tile::expectKernel(Operation *op, std::optional<bool> scans) {
  auto kernel = op->getParentOfType<KernelOp>();
  if (!kernel) {
    op->emitOpError() << "expects to stand in a 'tile.kernel'";
    return KernelOp();
  }
  if (scans && kernel.scans() != *scans) {
    InFlightDiagnostic d = op->emitOpError()
                           << "expects a kernel that "
                           << (*scans ? "scans" : "prepares") << ", got role '"
                           << kernel.getRole() << "'";
    d.attachNote(kernel.getLoc()) << "the kernel";
    return KernelOp();
  }
  return kernel;
}

LogicalResult tile::expectArgument(Operation *op, KernelOp kernel,
                                   StringRef name, Type element) {
  Type found = kernel.elementOf(name);
  if (!found) {
    InFlightDiagnostic d = op->emitOpError()
                           << "expects an argument of the kernel, got '" << name
                           << "'";
    d.attachNote(kernel.getLoc()) << "the kernel";
    return d;
  }
  if (element && found != element)
    return op->emitOpError() << "expects '" << name << "' to be of " << element
                             << ", got " << found;
  return success();
}

LogicalResult tile::expectHalf(Operation *op, std::optional<int64_t> half) {
  if (!half || *half == 8 || *half == 4 || *half == 2 || *half == 1)
    return success();
  return op->emitOpError() << "expects halves of 8, 4, 2 or 1 rows, got "
                           << *half;
}
