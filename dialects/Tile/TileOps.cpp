//===- TileOps.cpp - Verifiers of the tile dialect --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Of kernels, their loops and their memory. Constraints carry the number they
// have in the .td files.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/Constraints.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace plum::tile;

/// Rows of one input, or of one for each step.
static LogicalResult expectInputs(Operation *op, KernelOp kernel,
                                  StringRef names, Type element = Type()) {
  SmallVector<StringRef> list;
  names.split(list, ',');
  const int64_t steps = kernel.getSteps();
  if (list.size() != 1 && int64_t(list.size()) != steps)
    return op->emitOpError() << "expects an input, or one for each of " << steps
                             << " steps, got '" << names << "'";
  for (StringRef name : list) {
    if (!element)
      element = kernel.elementOf(name); // All are of one.
    if (failed(expectArgument(op, kernel, name, element)))
      return failure();
  }
  return success();
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
  // kernel_c11
  if (int64_t(getSteps()) < 1)
    return emitOpError() << "expects a step or more, got " << getSteps();
  // kernel_c4
  if (prepares ? slice != 0 || slices != 1 : slices < 1)
    return emitOpError() << "expects "
                         << (prepares ? "no slices in 'prepare'" : "slices")
                         << ", got " << slices << " of " << slice << " columns";
  // kernel_c3
  const int64_t rows = prepares ? this->rows() : slice;
  if (warps < 1 || warps * 16 != rows)
    return emitOpError() << "expects a warp for every 16 of " << rows
                         << (prepares ? " rows" : " columns") << ", got "
                         << warps;
  // kernel_c10
  const int64_t teams = getTeams();
  if (prepares ? teams < 1 : teams != 1)
    return emitOpError() << "expects "
                         << (prepares ? "a team or more" : "one team")
                         << ", got " << teams;
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

LogicalResult TeamOp::verify() {
  // team_c1
  const int64_t teams = (*this)->getParentOfType<KernelOp>().getTeams();
  if (int64_t(getNumber()) >= 0 && int64_t(getNumber()) < teams)
    return success();
  return emitOpError() << "expects one of " << teams << " teams, got "
                       << int64_t(getNumber());
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

static LogicalResult verifyStash(Operation *op, Value value, SharedType tile,
                                 Value strip, bool second) {
  // stash_c2, unstash_c2
  if (failed(expectStrip(op, strip, tile.getCols())))
    return failure();
  // stash_c1, unstash_c1
  if (failed(expectTensor(op, "a value", value, {tile.getRows(), 16})))
    return failure();
  // stash_c3, unstash_c3
  const bool half = getElementTypeOrSelf(value).isBF16();
  if (second && !half)
    return op->emitOpError()
           << "expects 'second' of bf16, got " << value.getType();
  // stash_c4, unstash_c4
  return expectLayout(op, "the value", value,
                      half ? LayoutKind::Acc : LayoutKind::Opb);
}

LogicalResult StashOp::verify() {
  return verifyStash(*this, getValue(), getTo().getType(), getStrip(),
                     getSecond());
}

LogicalResult UnstashOp::verify() {
  return verifyStash(*this, getResult(), getFrom().getType(), getStrip(),
                     getSecond());
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
    if (failed(expectInputs(*this, kernel, part.getRows(), type.getElement())))
      return failure();
    const int64_t cols =
        part.getSliced() ? int64_t(kernel.getSlice()) : type.getCols();
    if (type.getRows() != kernel.rows() || type.getCols() != cols)
      return emitOpError() << "expects rows of " << kernel.rows() << " x "
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
  if (failed(expectInputs(*this, kernel, getInput(), to.getElement())))
    return failure();
  // fetch_c3
  return expectTile(*this, "a tile", getTo(), kernel.rows(), to.getCols());
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
  if (!kernel || failed(expectInputs(*this, kernel, getName())))
    return failure();
  // column_c3
  return expectTensor(*this, "a column", getResult(), kernel.rows());
}

LogicalResult StepOp::verify() {
  // step_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/false);
  // step_c2
  return kernel ? expectTensor(*this, "a column", getResult(), kernel.rows())
                : failure();
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
  const int64_t rows = expectKernel(*this, std::nullopt).rows();
  if (getTokens() && failed(expectTensor(*this, "a value", getValue(), rows)))
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

LogicalResult ExportRowsOp::verify() {
  SharedType tile = getTile().getType();
  // export_rows_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/false);
  if (!kernel ||
      failed(expectArgument(*this, kernel, getOutput(), tile.getElement())))
    return failure();
  // export_rows_c2
  return expectTile(*this, "a tile", getTile(), kernel.rows(), tile.getCols());
}

LogicalResult WriteRowsOp::verify() {
  // write_rows_c1
  KernelOp kernel = expectKernel(*this, /*scans=*/true);
  if (!kernel || failed(expectArgument(*this, kernel, getOutput(),
                                       getPanel().getType().getElement())))
    return failure();
  const int64_t rows = kernel.rows(), slice = kernel.getSlice();
  // write_rows_c2
  if (failed(expectTensor(*this, "a value", getValue(), {slice, rows})) ||
      failed(expectTile(*this, "a panel", getPanel(), rows, slice)))
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
