//===- TileOps.cpp - Verifiers of the tile dialect --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constraints carry the number they have in the .td files. A constraint on
// layouts holds for tensors without one: tile-assign-layouts is still to come.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/Tile.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace plum::tile;

//===----------------------------------------------------------------------===//
// What constraints have in common
//===----------------------------------------------------------------------===//

static int64_t dim(Value value, unsigned i) {
  return cast<RankedTensorType>(value.getType()).getDimSize(i);
}
static int64_t lengthOf(Value vector) { return dim(vector, 0); }
static SharedType tileOf(Value value) {
  return cast<SharedType>(value.getType());
}

/// A value of this shape and element, in whatever layout.
static LogicalResult expectTensor(Operation *op, StringRef what, Value value,
                                  ArrayRef<int64_t> shape, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape && type.getElementType() == element)
    return success();
  return op->emitOpError() << "expects " << what << " of type "
                           << RankedTensorType::get(shape, element) << ", got "
                           << type;
}
static LogicalResult expectTensor(Operation *op, StringRef what, Value value,
                                  ArrayRef<int64_t> shape) {
  return expectTensor(op, what, value, shape,
                      getElementTypeOrSelf(value.getType()));
}

static LogicalResult expectTile(Operation *op, StringRef what, Value tile,
                                int64_t rows, int64_t cols) {
  SharedType type = tileOf(tile);
  if (type.getRows() == rows && type.getCols() == cols)
    return success();
  return op->emitOpError() << "expects " << what << " of " << rows << " x "
                           << cols << ", got " << type;
}

static LogicalResult expectLayout(Operation *op, StringRef what, Value value,
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

/// All tensors that an op takes and makes are matrices in acc.
static LogicalResult expectAcc(Operation *op) {
  for (Value value : op->getOperands())
    if (isa<RankedTensorType>(value.getType()) &&
        failed(expectLayout(op, "an operand", value, LayoutKind::Acc)))
      return failure();
  for (Value value : op->getResults())
    if (failed(expectLayout(op, "a result", value, LayoutKind::Acc)))
      return failure();
  return success();
}

/// `strip` counts the turns of a tile.strips around the op, and that many
/// strips make `columns` at most.
static LogicalResult expectStrip(Operation *op, Value strip, int64_t columns) {
  auto argument = dyn_cast<BlockArgument>(strip);
  auto strips = argument && argument.getArgNumber() == 0
                    ? dyn_cast<StripsOp>(argument.getOwner()->getParentOp())
                    : StripsOp();
  if (!strips)
    return op->emitOpError() << "expects the strip of a 'tile.strips'";
  if (int64_t(strips.getCount()) * 16 > columns) {
    InFlightDiagnostic d =
        op->emitOpError() << "expects at most " << columns / 16 << " strips of "
                          << columns << " columns, got " << strips.getCount();
    d.attachNote(strips.getLoc()) << "the strips";
    return d;
  }
  return success();
}

/// The kernel around an op, which scans or prepares.
static KernelOp expectKernel(Operation *op, std::optional<bool> scans) {
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

/// `name` is an argument; of `element`, where that is given.
static LogicalResult expectArgument(Operation *op, KernelOp kernel,
                                    StringRef name, Type element = Type()) {
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

static LogicalResult expectHalf(Operation *op, int64_t half, bool orZero) {
  if (half == 8 || half == 4 || half == 2 || half == 1 || (orZero && half == 0))
    return success();
  return op->emitOpError() << "expects halves of 8, 4, 2"
                           << (orZero ? ", 1 or 0" : " or 1") << " rows, got "
                           << half;
}

//===----------------------------------------------------------------------===//
// Structure
//===----------------------------------------------------------------------===//

LogicalResult KernelOp::verify() {
  const bool prepares = getRole() == "prepare";
  // kernel_c1
  if (!prepares && getRole() != "scan" && getRole() != "summary")
    return emitOpError() << "expects the role 'prepare', 'scan' or 'summary', "
                            "got '"
                         << getRole() << "'";
  const int64_t chunk = getChunk(), slice = getSlice(), slices = getSlices(),
                warps = getWarps(), blob = getBlob();
  // kernel_c2
  if (chunk < 16 || chunk % 16)
    return emitOpError() << "expects a chunk of a multiple of 16 tokens, got "
                         << chunk;
  // kernel_c4
  if (prepares ? slice != 0 || slices != 1 : slices < 1)
    return emitOpError() << "expects "
                         << (prepares ? "no slices in 'prepare'" : "slices")
                         << ", got " << slices << " of " << slice << " columns";
  // kernel_c3
  const int64_t rows = prepares ? chunk : slice;
  if (warps < 1 || warps * 16 != rows)
    return emitOpError() << "expects a warp for every 16 of " << rows
                         << (prepares ? " tokens" : " columns") << ", got "
                         << warps;
  // kernel_c5
  llvm::StringSet<> names;
  for (auto argument : getArguments().getAsRange<ArgumentAttr>())
    if (!names.insert(argument.getName()).second)
      return emitOpError() << "expects arguments of different names, got '"
                           << argument.getName() << "' twice";
  // kernel_c6
  if (blob < 0 || blob % 16)
    return emitOpError() << "expects a blob of a multiple of 16 bytes, got "
                         << blob;
  // kernel_c9
  if (prepares && getDiagonal())
    return emitOpError() << "expects 'diagonal' in a kernel that scans";
  return success();
}

LogicalResult KernelOp::verifyRegions() {
  const int64_t rows = int64_t(getWarps()) * 16;
  Operation *with = nullptr, *without = nullptr;
  WalkResult result = getBody().walk([&](Operation *op) {
    for (Value value : op->getResults()) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      if (!type)
        continue;
      // kernel_c7
      if (type.getRank() == 2 && type.getDimSize(0) != rows) {
        InFlightDiagnostic d = op->emitOpError()
                               << "expects matrices of " << rows
                               << " rows, got " << type;
        d.attachNote(getLoc()) << "the kernel has " << getWarps() << " warps";
        return WalkResult::interrupt();
      }
      (type.getEncoding() ? with : without) = op;
    }
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  // kernel_c8
  if (with && without) {
    InFlightDiagnostic d = without->emitOpError()
                           << "expects a layout, as other tensors have one";
    d.attachNote(with->getLoc()) << "this one has";
    return d;
  }
  return success();
}

/// The region's arguments from `first` on have the types of `init`.
static LogicalResult expectArguments(Operation *op, Block &body, unsigned first,
                                     TypeRange init) {
  SmallVector<Type> types(body.getArgumentTypes());
  bool index = first == 0 || (!types.empty() && types.front().isIndex());
  if (index && types.size() == first + init.size() &&
      TypeRange(types).drop_front(first) == init)
    return success();
  InFlightDiagnostic d = op->emitOpError()
                         << "expects region arguments of types ";
  if (first)
    d << "'index'" << (init.empty() ? "" : ", ");
  return d << init << ", got " << types;
}

/// The first results and yielded values have the types of `init`.
static LogicalResult expectCarried(Operation *op, TypeRange yielded,
                                   TypeRange init) {
  for (auto [what, types] :
       {std::pair("yield", yielded),
        std::pair("have results of", TypeRange(op->getResultTypes()))})
    if (types.size() < init.size() || types.take_front(init.size()) != init)
      return op->emitOpError() << "expects to " << what << " the types of "
                               << init << ", got " << types;
  return success();
}

LogicalResult StripsOp::verify() {
  const int64_t count = getCount();
  // strips_c4
  if (count < 1)
    return emitOpError() << "expects a strip or more, got " << count;
  Block &body = getBody().front();
  TypeRange init = getInit().getTypes();
  // strips_c1
  if (failed(expectArguments(*this, body, 1, init)))
    return failure();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield)
    return emitOpError() << "expects to end in 'tile.yield'";
  TypeRange yielded = yield.getValues().getTypes();
  // strips_c2
  if (failed(expectCarried(*this, yielded, init)))
    return failure();
  // strips_c3
  if (yielded.size() != getNumResults())
    return emitOpError() << "expects to yield " << getNumResults()
                         << " values, got " << yielded.size();
  for (size_t i = init.size(); i < yielded.size(); ++i) {
    auto whole = dyn_cast<RankedTensorType>(getResult(i).getType());
    auto piece = dyn_cast<RankedTensorType>(yielded[i]);
    if (!whole || !piece || whole.getRank() != 2 ||
        whole.getDimSize(1) != count * 16 ||
        piece != RankedTensorType::get({whole.getDimSize(0), 16},
                                       whole.getElementType(),
                                       whole.getEncoding()))
      return emitOpError() << "expects " << count
                           << " pieces of 16 columns to make "
                           << getResult(i).getType() << ", got " << yielded[i];
  }
  return success();
}

LogicalResult ChunksOp::verify() {
  Block &body = getBody().front();
  TypeRange init = getInit().getTypes();
  // chunks_c1
  if (failed(expectArguments(*this, body, 0, init)))
    return failure();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  // chunks_c2
  if (!yield || yield.getValues().size() != init.size() ||
      getNumResults() != init.size())
    return emitOpError() << "expects to yield " << init.size()
                         << " carried values, got "
                         << (yield ? yield.getValues().size() : 0) << " for "
                         << getNumResults() << " results";
  if (failed(expectCarried(*this, yield.getValues().getTypes(), init)))
    return failure();
  // chunks_c3
  KernelOp kernel = expectKernel(*this, /*scans=*/true);
  if (!kernel)
    return failure();
  ChunksOp first = *kernel.getBody().front().getOps<ChunksOp>().begin();
  if (first != *this) {
    InFlightDiagnostic d = emitOpError()
                           << "expects to be the kernel's only one";
    d.attachNote(first.getLoc()) << "another is here";
    return d;
  }
  return success();
}

LogicalResult TailOp::verify() {
  // tail_c1
  for (Operation *op = getOperation()->getPrevNode(); op;
       op = op->getPrevNode())
    if (isa<ChunksOp>(op))
      return success();
  return emitOpError() << "expects to stand after 'tile.chunks'";
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

static LogicalResult expectPanelStart(Operation *op, int64_t offset) {
  if (offset >= 0 && offset % 1024 == 0)
    return success();
  return op->emitOpError() << "expects an offset of a multiple of 1024 bytes, "
                              "got "
                           << offset;
}

LogicalResult AllocOp::verify() {
  // alloc_c1
  return getOffset() ? expectPanelStart(*this, *getOffset()) : success();
}

LogicalResult ReuseOp::verify() {
  const int64_t offset = getOffset();
  // reuse_c2
  if (failed(expectPanelStart(*this, offset)))
    return failure();
  // reuse_c1
  const int64_t most = getFrom().getType().bytes() - offset;
  if (getTile().getType().bytes() > most)
    return emitOpError() << "expects a tile of at most " << most
                         << " bytes, got " << getTile().getType().bytes();
  return success();
}

/// `row` of a vector; what goes with which element.
static LogicalResult expectRow(Operation *op, SharedType tile,
                               std::optional<uint64_t> row) {
  if (row && int64_t(*row) >= tile.getRows())
    return op->emitOpError()
           << "expects a row below " << tile.getRows() << ", got " << *row;
  return success();
}

LogicalResult LoadOp::verify() {
  SharedType from = getFrom().getType();
  const int64_t rows = from.getRows(), cols = from.getCols();
  const bool half = from.swizzled();
  // load_c3
  if (half ? getRow() || getBlocks() || (getTransposed() && getStrip())
           : getTransposed() || (getRow() && getBlocks()))
    return emitOpError()
           << (half ? "expects 'strip' or 'transposed' of a tile of bf16"
                    : "expects 'row' or 'blocks' of a tile of f32");
  if (failed(expectRow(*this, from, getRow())))
    return failure();
  // load_c2
  if (getStrip() && failed(expectStrip(*this, getStrip(), cols)))
    return failure();
  // load_c1
  const int64_t read = getStrip() ? 16 : cols;
  SmallVector<int64_t> shape;
  if (half)
    shape = getTransposed() ? SmallVector<int64_t>{cols, rows}
                            : SmallVector<int64_t>{rows, read};
  else
    shape = getBlocks() ? SmallVector<int64_t>{16 * rows, read}
                        : SmallVector<int64_t>{read};
  if (failed(expectTensor(*this, "a result", getResult(), shape,
                          from.getElement())))
    return failure();
  // load_c4
  using K = LayoutKind;
  if (shape.size() == 1)
    return expectLayout(
        *this, "a vector", getResult(),
        {K::AccRow, K::AccCol, K::OpbRow, K::OpbCol, K::Linear});
  if (getTransposed() || getBlocks())
    return expectLayout(*this, "this matrix", getResult(), K::Acc);
  return expectLayout(*this, "a matrix", getResult(), {K::Acc, K::Opb});
}

LogicalResult ElementOp::verify() {
  SharedType from = getFrom().getType();
  // element_c1
  if (int64_t(getRow()) >= from.getRows() ||
      int64_t(getCol()) >= from.getCols())
    return emitOpError() << "expects an element of " << from << ", got ["
                         << getRow() << ", " << getCol() << "]";
  return success();
}

LogicalResult StoreOp::verify() {
  SharedType to = getTo().getType();
  const int64_t rows = to.getRows(), cols = to.getCols();
  const bool half = to.swizzled();
  // store_c3
  if (half ? getRow() || getTokens() || (getTransposed() && getStrip())
           : getTransposed() || getStrip())
    return emitOpError()
           << (half ? "expects 'strip' or 'transposed' of a tile of bf16"
                    : "expects 'row' or 'tokens' of a tile of f32");
  if (failed(expectRow(*this, to, getRow())))
    return failure();
  // store_c2
  if (getStrip() && failed(expectStrip(*this, getStrip(), cols)))
    return failure();
  // store_c1
  SmallVector<int64_t> shape{cols};
  if (half)
    shape = getTransposed()
                ? SmallVector<int64_t>{cols, rows}
                : SmallVector<int64_t>{rows, getStrip() ? 16 : cols};
  if (failed(
          expectTensor(*this, "a value", getValue(), shape, to.getElement())))
    return failure();
  // store_c4
  return expectLayout(*this, "the value", getValue(),
                      half          ? LayoutKind::Acc
                      : getTokens() ? LayoutKind::AccCol
                                    : LayoutKind::Linear);
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

LogicalResult RingOp::verify() {
  // ring_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/true);
  if (!kernel)
    return failure();
  // ring_c2
  if (int64_t(getStages()) < 1 || getParts().empty())
    return emitOpError() << "expects a stage and a part, got " << getStages()
                         << " and " << getParts().size();
  for (auto part : getParts().getAsRange<PartAttr>()) {
    SharedType type = part.getType();
    if (!part.getRows()) {
      // ring_c3
      if (part.getBlob() % 16 ||
          part.getBlob() + type.bytes() > int64_t(kernel.getBlob()))
        return emitOpError() << "expects " << type.bytes()
                             << " bytes in the blob of " << kernel.getBlob()
                             << ", at a multiple of 16, got " << part.getBlob();
      continue;
    }
    // ring_c4
    if (failed(
            expectArgument(*this, kernel, part.getRows(), type.getElement())))
      return failure();
    const int64_t cols =
        part.getSliced() ? int64_t(kernel.getSlice()) : type.getCols();
    if (type.getRows() != int64_t(kernel.getChunk()) || type.getCols() != cols)
      return emitOpError() << "expects rows of " << kernel.getChunk() << " x "
                           << cols << ", got " << type;
  }
  return success();
}

/// An op gives all parts of a ring's stage.
static LogicalResult expectParts(Operation *op, Value ring) {
  auto source = ring.getDefiningOp<RingOp>();
  if (!source)
    return op->emitOpError() << "expects a ring of 'tile.ring'";
  SmallVector<Type> types;
  for (auto part : source.getParts().getAsRange<PartAttr>())
    types.push_back(part.getType());
  if (op->getResultTypes() == TypeRange(types))
    return success();
  InFlightDiagnostic d = op->emitOpError() << "expects the parts " << types
                                           << ", got " << op->getResultTypes();
  d.attachNote(source.getLoc()) << "the ring";
  return d;
}

/// While a stage is filled, the chunk before still has its own.
static LogicalResult expectTwoStages(Operation *op, Value ring) {
  auto source = ring.getDefiningOp<RingOp>();
  if (!source || int64_t(source.getStages()) >= 2)
    return success();
  InFlightDiagnostic d = op->emitOpError() << "expects a ring of two stages or "
                                              "more, got "
                                           << source.getStages();
  d.attachNote(source.getLoc()) << "the ring";
  return d;
}

// acquire_c1
LogicalResult AcquireOp::verify() { return expectParts(*this, getRing()); }

LogicalResult PreviousOp::verify() {
  // previous_c1
  if (failed(expectParts(*this, getRing())))
    return failure();
  // previous_c2
  return expectTwoStages(*this, getRing());
}

LogicalResult ReleaseOp::verify() {
  // release_c1
  return getPrevious() ? expectTwoStages(*this, getRing()) : success();
}

//===----------------------------------------------------------------------===//
// Global memory
//===----------------------------------------------------------------------===//

LogicalResult FetchOp::verify() {
  // fetch_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/false);
  if (!kernel)
    return failure();
  SharedType to = getTo().getType();
  // fetch_c2
  if (failed(expectArgument(*this, kernel, getInput(), to.getElement())))
    return failure();
  // fetch_c3
  return expectTile(*this, "a tile", getTo(), kernel.getChunk(), to.getCols());
}

LogicalResult ParamOp::verify() {
  // param_c1
  KernelOp kernel = expectKernel(*this, std::nullopt);
  if (!kernel || failed(expectArgument(*this, kernel, getName())))
    return failure();
  // param_c2
  if (!getStrip())
    return success();
  if (failed(
          expectStrip(*this, getStrip(), std::numeric_limits<int64_t>::max())))
    return failure();
  auto type = dyn_cast<RankedTensorType>(getResult().getType());
  if (!type || type.getDimSize(0) != 16)
    return emitOpError() << "expects a strip of 16 values, got "
                         << getResult().getType();
  return success();
}

LogicalResult ColumnOp::verify() {
  // column_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/false);
  // column_c2
  if (!kernel || failed(expectArgument(*this, kernel, getName())))
    return failure();
  // column_c3
  return expectTensor(*this, "a column", getResult(),
                      int64_t(kernel.getChunk()));
}

/// Bytes [offset, offset + bytes) of what a preparing kernel leaves.
static LogicalResult expectInBlob(Operation *op, int64_t offset,
                                  int64_t bytes) {
  KernelOp kernel = expectKernel(op, /*scans=*/false);
  if (!kernel)
    return failure();
  if (offset >= 0 && offset % 16 == 0 &&
      offset + bytes <= int64_t(kernel.getBlob()))
    return success();
  return op->emitOpError() << "expects " << bytes << " bytes in the blob of "
                           << kernel.getBlob() << ", at a multiple of 16, got "
                           << offset;
}

// export_c1, export_c2
LogicalResult ExportOp::verify() {
  return expectInBlob(*this, getBlob(), getTile().getType().bytes());
}

LogicalResult ExportVectorOp::verify() {
  const int64_t length = lengthOf(getValue());
  // export_vector_c1, export_vector_c2
  if (failed(expectInBlob(*this, getBlob(), 4 * length)))
    return failure();
  // export_vector_c3
  const int64_t chunk = expectKernel(*this, std::nullopt).getChunk();
  if (getTokens() && failed(expectTensor(*this, "a value", getValue(), chunk)))
    return failure();
  // export_vector_c4
  return expectLayout(*this, "the value", getValue(),
                      getTokens() ? LayoutKind::AccCol : LayoutKind::Linear);
}

LogicalResult ExportMatrixOp::verify() {
  const int64_t panels = (dim(getValue(), 1) + 63) / 64;
  // export_matrix_c1, export_matrix_c2
  if (failed(expectInBlob(*this, getBlob(), panels * dim(getValue(), 0) * 128)))
    return failure();
  // export_matrix_c3
  return expectAcc(*this);
}

LogicalResult WriteRowsOp::verify() {
  // write_rows_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/true);
  if (!kernel || failed(expectArgument(*this, kernel, getOutput(),
                                       getPanel().getType().getElement())))
    return failure();
  const int64_t chunk = kernel.getChunk(), slice = kernel.getSlice();
  // write_rows_c2
  if (failed(expectTensor(*this, "a value", getValue(), {slice, chunk})) ||
      failed(expectTile(*this, "a panel", getPanel(), chunk, slice)))
    return failure();
  // write_rows_c3
  return expectAcc(*this);
}

/// A state is named in a kernel that scans, and `summary` says which role.
static LogicalResult expectState(Operation *op, StringRef name, bool summary,
                                 StringRef suffix) {
  KernelOp kernel = expectKernel(op, /*scans=*/true);
  if (!kernel)
    return failure();
  if ((kernel.getRole() == "summary") != summary) {
    InFlightDiagnostic d = op->emitOpError();
    if (summary)
      d << "expects a kernel with the role 'summary', got '" << kernel.getRole()
        << "'";
    else
      d << "expects 'summary' in a kernel with that role";
    d.attachNote(kernel.getLoc()) << "the kernel";
    return d;
  }
  return expectArgument(op, kernel, (name + suffix).str());
}

/// A matrix in acc, or a linear vector.
static LogicalResult expectStateLayout(Operation *op, Value value) {
  const bool isVector = cast<RankedTensorType>(value.getType()).getRank() == 1;
  return expectLayout(op, "a state", value,
                      isVector ? LayoutKind::Linear : LayoutKind::Acc);
}

LogicalResult KeepStateOp::verify() {
  // keep_state_c2
  if (failed(expectInBlob(*this, getBlob(), 4 * int64_t(getColumns()))))
    return failure();
  // keep_state_c1
  return expectArgument(*this, expectKernel(*this, /*scans=*/false), getName());
}
LogicalResult LoadStateOp::verify() {
  // load_state_c1, load_state_c2
  if (failed(expectState(*this, getName(), getSummary(), "")))
    return failure();
  // load_state_c3
  const bool isVector =
      cast<RankedTensorType>(getResult().getType()).getRank() == 1;
  if (getKept().has_value() != (isVector && !getSummary()))
    return emitOpError() << "expects " << (getKept() ? "no copy" : "a copy")
                         << " in the blob of " << getResult().getType();
  // load_state_c4
  return expectStateLayout(*this, getResult());
}
LogicalResult StoreStateOp::verify() {
  // store_state_c1, store_state_c2
  if (failed(expectState(*this, getName(), getSummary(),
                         getSummary() ? "" : ".final")))
    return failure();
  // store_state_c3
  return expectStateLayout(*this, getValue());
}
LogicalResult StoreDecayOp::verify() {
  // store_decay_c1
  KernelOp kernel = expectKernel(*this, std::nullopt);
  if (kernel && kernel.getRole() != "summary")
    return emitOpError() << "expects a kernel with the role 'summary', got '"
                         << kernel.getRole() << "'";
  if (kernel && !kernel.getDiagonal())
    return emitOpError() << "expects a kernel that is 'diagonal'";
  // store_decay_c2
  return kernel
             ? expectLayout(*this, "the decay", getValue(), LayoutKind::Linear)
             : failure();
}

//===----------------------------------------------------------------------===//
// Rows and columns
//===----------------------------------------------------------------------===//

static LogicalResult expectSameType(Operation *op) {
  if (op->getResult(0).getType() == op->getOperand(0).getType())
    return success();
  return op->emitOpError() << "expects a result of type "
                           << op->getOperand(0).getType() << ", got "
                           << op->getResult(0).getType();
}

LogicalResult ValidOp::verify() {
  // valid_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/false);
  if (!kernel)
    return failure();
  // valid_c2
  const int64_t chunk = kernel.getChunk();
  if (dim(getValue(), 0) != chunk)
    return emitOpError() << "expects " << chunk << " rows, got "
                         << getValue().getType();
  if (failed(expectSameType(*this)))
    return failure();
  // valid_c3
  using K = LayoutKind;
  return expectLayout(*this, "the value", getValue(),
                      {K::Acc, K::Opb, K::AccCol, K::OpbCol, K::Linear});
}

LogicalResult ValuesOp::verify() {
  KernelOp kernel = expectKernel(*this, std::nullopt);
  // values_c1
  if (kernel && kernel.getRole() != "summary")
    return emitOpError() << "expects a kernel with the role 'summary', got '"
                         << kernel.getRole() << "'";
  return success(bool(kernel));
}

LogicalResult BroadcastOp::verify() {
  if (getValue().getType().isF32())
    return success();
  // broadcast_c1
  auto result = cast<RankedTensorType>(getResult().getType());
  const bool rows = getRows();
  if (result.getRank() != 2 ||
      lengthOf(getValue()) != result.getDimSize(rows ? 1 : 0))
    return emitOpError() << "expects a matrix of " << lengthOf(getValue())
                         << (rows ? " columns" : " rows") << ", got " << result;
  // broadcast_c2
  using K = LayoutKind;
  if (failed(expectLayout(*this, "a result", getResult(), {K::Acc, K::Opb})))
    return failure();
  std::optional<K> kind = layoutOf(result);
  if (!kind)
    return success();
  if (isOpb(*kind))
    return expectLayout(*this, "a vector", getValue(),
                        rows ? K::OpbRow : K::OpbCol);
  return expectLayout(*this, "a vector", getValue(),
                      rows ? K::AccRow : K::AccCol);
}

LogicalResult StripOp::verify() {
  auto value = cast<RankedTensorType>(getValue().getType());
  auto expected = RankedTensorType::get(
      {value.getDimSize(0), 16}, value.getElementType(), value.getEncoding());
  // strip_c1
  if (getResult().getType() != expected)
    return emitOpError() << "expects a result of type " << expected << ", got "
                         << getResult().getType();
  // strip_c2
  return expectStrip(*this, getStrip(), value.getDimSize(1));
}

LogicalResult MaskOp::verify() {
  const int64_t m = dim(getValue(), 0), n = dim(getValue(), 1);
  // mask_c1
  if (n != m && n != 16)
    return emitOpError() << "expects a square matrix or blocks of 16 columns, "
                            "got "
                         << getValue().getType();
  if (failed(expectSameType(*this)))
    return failure();
  // mask_c2
  if (getHalf()) {
    if (failed(expectHalf(*this, *getHalf(), /*orZero=*/true)))
      return failure();
    if (n != 16 || getInclusive())
      return emitOpError() << "expects halves of blocks, and not 'inclusive'";
  }
  // mask_c3
  return expectAcc(*this);
}

LogicalResult HalfOp::verify() {
  // half_c1
  if (failed(expectSameType(*this)))
    return failure();
  // half_c2
  if (failed(expectHalf(*this, getHalf(), /*orZero=*/false)))
    return failure();
  // half_c3
  return expectAcc(*this);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

LogicalResult ReduceOp::verify() {
  // reduce_c1
  if (failed(expectTensor(*this, "a result", getResult(), dim(getValue(), 0))))
    return failure();
  // reduce_c2
  if (failed(expectLayout(*this, "the value", getValue(), LayoutKind::Acc)))
    return failure();
  return expectLayout(*this, "the result", getResult(), LayoutKind::AccCol);
}

LogicalResult ColumnSumsOp::verify() {
  SharedType from = getFrom().getType();
  // column_sums_c1
  if (failed(expectTile(*this, "weights", getWeights(), 1, from.getRows())))
    return failure();
  // column_sums_c2
  if (failed(expectTensor(*this, "a result", getResult(), from.getCols())))
    return failure();
  // column_sums_c3
  return expectLayout(*this, "the result", getResult(), LayoutKind::Linear);
}

LogicalResult RowDotsOp::verify() {
  SharedType rows = getRows().getType();
  // row_dots_c1
  if (failed(expectTile(*this, "a vector", getVector(), 1, rows.getCols())))
    return failure();
  // row_dots_c2
  return expectTile(*this, "a result", getTo(), 1, rows.getRows());
}

LogicalResult CumsumOp::verify() {
  // cumsum_c1
  if (failed(expectTensor(
          *this, "a result", getResult(),
          cast<RankedTensorType>(getValue().getType()).getShape())))
    return failure();
  // cumsum_c2
  if (getHalf() && failed(expectHalf(*this, *getHalf(), /*orZero=*/false)))
    return failure();
  // cumsum_c3
  if (failed(expectLayout(*this, "the value", getValue(), LayoutKind::Opb)))
    return failure();
  return expectLayout(*this, "the result", getResult(), LayoutKind::Acc);
}

LogicalResult BlockSumOp::verify() {
  SharedType to = getTo().getType();
  // block_sum_c2
  if (getStrip() && failed(expectStrip(*this, getStrip(), to.getCols())))
    return failure();
  // block_sum_c1
  if (failed(expectTensor(*this, "a value", getValue(),
                          {to.getRows() * 16, getStrip() ? 16 : to.getCols()})))
    return failure();
  // block_sum_c3
  return expectLayout(*this, "the value", getValue(), LayoutKind::Opb);
}

LogicalResult CumulateOp::verify() {
  // cumulate_c1
  if (failed(expectTile(*this, "a tile", getTo(), 1, lengthOf(getValue()))))
    return failure();
  // cumulate_c2
  return expectLayout(*this, "the value", getValue(), LayoutKind::Linear);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

LogicalResult DotOp::verify() {
  SharedType b = getB().getType();
  const int64_t depth = getTransposed() ? b.getRows() : b.getCols();
  const int64_t n = getTransposed() ? b.getCols() : b.getRows();
  // dot_c1
  if (dim(getA(), 1) != depth)
    return emitOpError() << "expects operands of one depth, got "
                         << dim(getA(), 1) << " and " << depth;
  // dot_c2
  if (failed(expectTensor(*this, "a result", getResult(), {dim(getA(), 0), n})))
    return failure();
  if (n > 256)
    return emitOpError() << "expects at most 256 columns, got " << n;
  // dot_c3
  if (getC() && getC().getType() != getResult().getType())
    return emitOpError() << "expects to add onto " << getResult().getType()
                         << ", got " << getC().getType();
  // dot_c4
  return expectAcc(*this);
}

LogicalResult DotDiagOp::verify() {
  // dot_diag_c1
  if (getX().getType() != getY().getType())
    return emitOpError() << "expects rows of one type, got " << getX().getType()
                         << " and " << getY().getType();
  // dot_diag_c2
  if (failed(expectTensor(*this, "blocks", getC(), {dim(getX(), 0), 16})))
    return failure();
  // dot_diag_c3
  return expectAcc(*this);
}

LogicalResult DotBlocksOp::verify() {
  // dot_blocks_c1
  if (getX().empty() || getX().size() != getNumResults())
    return emitOpError() << "expects a result for each of some operands, got "
                         << getNumResults() << " for " << getX().size();
  const int64_t m = dim(getX()[0], 0), k = dim(getX()[0], 1), blocks = m / 16;
  for (auto [x, result] : llvm::zip(getX(), getResults()))
    if (failed(expectTensor(*this, "rows", x, {m, k})) ||
        failed(expectTensor(*this, "a result", result, {m, m})))
      return failure();
  // dot_blocks_c2
  if (failed(expectTile(*this, "a tile", getY(), m, k)))
    return failure();
  // dot_blocks_c3
  if (getScale() && getDiagonal())
    return emitOpError() << "expects no factors for blocks on the diagonal";
  if (getScale() && failed(expectTile(*this, "factors", getScale(),
                                      blocks * (blocks - 1) / 2, k)))
    return failure();
  // dot_blocks_c4
  return expectAcc(*this);
}

LogicalResult PlaceDiagOp::verify() {
  const int64_t m = dim(getBlocks(), 0);
  // place_diag_c1
  if (failed(expectTensor(*this, "blocks", getBlocks(), {m, 16})) ||
      failed(expectTensor(*this, "a matrix", getInto(), {m, m})) ||
      failed(expectTensor(*this, "a result", getResult(), {m, m})))
    return failure();
  // place_diag_c2
  return expectAcc(*this);
}

LogicalResult InverseOp::verify() {
  const int64_t m = dim(getValue(), 0);
  // inverse_c1
  if (failed(expectTensor(*this, "a matrix", getValue(), {m, m})))
    return failure();
  if (getScale() && failed(expectTensor(*this, "factors", getScale(), m)))
    return failure();
  // inverse_c2
  if (failed(expectTile(*this, "a tile", getTo(), m, m)) ||
      failed(expectTile(*this, "scratch", getBlocks(), m, m)) ||
      failed(expectTile(*this, "scratch", getDiagonal(), m, 20)))
    return failure();
  if (getTo() == getBlocks())
    return emitOpError() << "expects scratch apart from the result";
  // inverse_c3
  if (failed(expectLayout(*this, "the matrix", getValue(), LayoutKind::Acc)))
    return failure();
  return getScale() ? expectLayout(*this, "the factors", getScale(),
                                   LayoutKind::AccCol)
                    : success();
}
