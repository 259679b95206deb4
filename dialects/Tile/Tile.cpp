//===- Tile.cpp - Dialect, layouts and names --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constraints carry the number they have in TileDialect.td; those of ops are in
// TileOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum::tile;

#include "dialects/Tile/TileDialect.cpp.inc"
#include "dialects/Tile/TileEnums.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Tile/TileTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/Tile/TileOps.cpp.inc"

void TileDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Tile/TileTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Tile/TileAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Tile/TileOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

std::optional<LayoutKind> plum::tile::layoutOf(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return std::nullopt;
  auto layout = dyn_cast_or_null<LayoutAttr>(tensor.getEncoding());
  return layout ? std::optional(layout.getKind()) : std::nullopt;
}

RankedTensorType plum::tile::withLayout(Type type, LayoutKind kind) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), tensor.getElementType(),
                               LayoutAttr::get(type.getContext(), kind));
}

bool plum::tile::isOpb(LayoutKind kind) {
  return kind == LayoutKind::Opb || kind == LayoutKind::OpbRow ||
         kind == LayoutKind::OpbCol;
}

//===----------------------------------------------------------------------===//
// Types and attributes
//===----------------------------------------------------------------------===//

LogicalResult SharedType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t rows, int64_t cols, Type element) {
  // shared_c1
  if (!element.isBF16() && !element.isF32())
    return emitError() << "expects a tile of bf16 or f32, got " << element;
  const int64_t multiple = element.isBF16() ? 16 : 1;
  if (rows < 1 || cols < 1 || rows % multiple || cols % multiple)
    return emitError() << "expects a tile of " << element
                       << " to have multiples of " << multiple
                       << " rows and columns, got " << rows << " and " << cols;
  return success();
}

LogicalResult PartAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               SharedType type, int64_t blob, StringAttr rows,
                               bool sliced) {
  // part_c1
  if ((blob >= 0) == bool(rows))
    return emitError() << "expects either an offset in the blob or rows";
  // part_c2
  if (rows && !type.getElement().isBF16())
    return emitError() << "expects rows of bf16, got " << type.getElement();
  return success();
}

/// "k1,k2" as a name.
static std::string joined(StringRef names) {
  std::string name = names.str();
  llvm::replace(name, ',', '_');
  return name;
}

Type KernelOp::elementOf(StringRef name) {
  for (auto argument : getArguments().getAsRange<ArgumentAttr>())
    if (argument.getName() == name)
      return argument.getElement();
  return Type();
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// What part `i` of a ring's stage prints as.
static std::string partName(Value ring, unsigned i) {
  auto op = ring.getDefiningOp<RingOp>();
  if (!op || i >= op.getParts().size())
    return "part";
  auto part = cast<PartAttr>(op.getParts()[i]);
  return part.getRows() ? joined(part.getRows())
                        : "at" + std::to_string(part.getBlob());
}

/// What a tile, or a value that comes from the layer, prints as; empty when it
/// has no name.
static std::string nameOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return "";
  if (isa<AllocOp>(op)) {
    for (Operation *user : value.getUsers())
      if (auto fetch = dyn_cast<FetchOp>(user))
        return joined(fetch.getInput());
    return "tile";
  }
  unsigned number = cast<OpResult>(value).getResultNumber();
  if (auto acquire = dyn_cast<AcquireOp>(op))
    return partName(acquire.getRing(), number);
  if (auto previous = dyn_cast<PreviousOp>(op))
    return partName(previous.getRing(), number);
  if (auto load = dyn_cast<LoadOp>(op))
    return nameOf(load.getFrom());
  if (auto param = dyn_cast<ParamOp>(op))
    return param.getName().str();
  if (auto column = dyn_cast<ColumnOp>(op))
    return joined(column.getName());
  if (auto state = dyn_cast<LoadStateOp>(op))
    return state.getName().str();
  return "";
}

static void nameResults(Operation *op, OpAsmSetValueNameFn setName) {
  for (Value result : op->getResults())
    if (std::string name = nameOf(result); !name.empty())
      setName(result, name);
}

void AllocOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  nameResults(*this, setName);
}
void AcquireOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  nameResults(*this, setName);
}
void PreviousOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  nameResults(*this, setName);
}
void LoadOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  nameResults(*this, setName);
}
void ParamOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  nameResults(*this, setName);
}
void ColumnOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  nameResults(*this, setName);
}
void LoadStateOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  nameResults(*this, setName);
}

/// Carried arguments print as what they start from.
static void nameCarried(ArrayRef<BlockArgument> arguments, ValueRange init,
                        OpAsmSetValueNameFn setName) {
  for (auto [argument, value] : llvm::zip(arguments, init))
    if (std::string name = nameOf(value); !name.empty())
      setName(argument, name);
}

void StripsOp::getAsmBlockArgumentNames(Region &region,
                                        OpAsmSetValueNameFn setName) {
  if (region.empty() || region.getNumArguments() == 0)
    return;
  setName(region.getArgument(0), "strip");
  nameCarried(region.getArguments().drop_front(), getInit(), setName);
}
void ChunksOp::getAsmBlockArgumentNames(Region &region,
                                        OpAsmSetValueNameFn setName) {
  if (!region.empty())
    nameCarried(region.getArguments(), getInit(), setName);
}
