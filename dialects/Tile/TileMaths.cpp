//===- TileMaths.cpp - Verifiers of maths on tiles --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constraints carry the number they have in TileOps.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/Constraints.h"

using namespace mlir;
using namespace plum::tile;

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
  const int64_t rows = kernel.rows();
  if (dim(getValue(), 0) != rows)
    return emitOpError() << "expects " << rows << " rows, got "
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
  return expectStrip(*this, getStrip(), value.getDimSize(1),
                     /*shared=*/false);
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

LogicalResult ReduceRowsOp::verify() {
  // reduce_rows_c1
  const int64_t rows = dim(getValue(), 0), columns = dim(getValue(), 1);
  if (rows % 16)
    return emitOpError() << "expects rows in blocks of 16, got "
                         << getValue().getType();
  if (failed(expectTile(*this, "a tile for parts", getParts(), rows / 16,
                        columns)) ||
      failed(expectTensor(*this, "a result", getResult(), columns)))
    return failure();
  // reduce_rows_c2
  if (failed(expectLayout(*this, "the value", getValue(), LayoutKind::Acc)))
    return failure();
  return expectLayout(*this, "the result", getResult(), LayoutKind::AccRow);
}

LogicalResult DiagonalOp::verify() {
  // diagonal_c1
  const int64_t rows = dim(getValue(), 0);
  if (failed(expectTensor(*this, "blocks", getValue(), {rows, 16})) ||
      failed(expectTensor(*this, "a result", getResult(), rows)))
    return failure();
  // diagonal_c2
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

std::pair<int64_t, int64_t> SumTeamsOp::scratch(RankedTensorType type,
                                                int64_t values, int64_t teams) {
  const int64_t m = type.getDimSize(0);
  if (type.getRank() == 1)
    return {values * teams, m};
  return {values * (teams - 1) * m, type.getDimSize(1)};
}

LogicalResult SumTeamsOp::verify() {
  // sum_teams_c1
  const int64_t teams = teamsAround(*this);
  if (teams < 2)
    return emitOpError() << "expects two teams or more, got " << teams;
  // sum_teams_c2
  if (getValues().empty() || getValues().getTypes() != getResultTypes())
    return emitOpError() << "expects results of the types of some values, got "
                         << getResultTypes() << " for "
                         << getValues().getTypes();
  auto type = cast<RankedTensorType>(getValues()[0].getType());
  if (!llvm::all_equal(getValues().getTypes()))
    return emitOpError() << "expects values of one type, got "
                         << getValues().getTypes();
  // sum_teams_c3
  auto [rows, cols] = scratch(type, getValues().size(), teams);
  if (failed(expectTile(*this, "a tile", getThrough(), rows, cols)))
    return failure();
  // sum_teams_c4
  if (type.getRank() == 2)
    return expectAcc(*this);
  for (Value value : getValues())
    if (failed(expectLayout(*this, "a column", value, LayoutKind::AccCol)))
      return failure();
  return success();
}

LogicalResult CumsumOp::verify() {
  // cumsum_c1
  if (failed(expectTensor(
          *this, "a result", getResult(),
          cast<RankedTensorType>(getValue().getType()).getShape())))
    return failure();
  // cumsum_c2
  if (failed(expectHalf(*this, getHalf())))
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
  if (failed(expectTensor(*this, "blocks", getC(),
                          {dim(getX(), 0), getHalf() ? 8 : 16})))
    return failure();
  // dot_diag_c3
  if (failed(expectHalf(*this, getHalf())))
    return failure();
  // dot_diag_c4
  return expectAcc(*this);
}

LogicalResult JoinHalvesOp::verify() {
  // join_halves_c1
  if (getHalves().size() != 4)
    return emitOpError() << "expects four halves, got " << getHalves().size();
  const int64_t m = dim(getResult(), 0);
  for (Value half : getHalves())
    if (failed(expectTensor(*this, "a half", half, {m, 8})) ||
        failed(expectLayout(*this, "a half", half, LayoutKind::Acc)))
      return failure();
  if (failed(expectTensor(*this, "a result", getResult(), {m, 16})))
    return failure();
  // join_halves_c2
  if (getDiagonal() &&
      failed(expectTensor(*this, "a diagonal", getDiagonal(), m)))
    return failure();
  // join_halves_c3
  if (getDiagonal() && failed(expectLayout(*this, "the diagonal", getDiagonal(),
                                           LayoutKind::AccCol)))
    return failure();
  return expectLayout(*this, "the result", getResult(), LayoutKind::Acc);
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
  const int64_t whole = k * teamsAround(*this);
  if (failed(expectTile(*this, "a tile", getY(), m, whole)) ||
      (getLow() && failed(expectTile(*this, "a low tile", getLow(), m, whole))))
    return failure();
  // dot_blocks_c3
  if (getScale() && getDiagonal())
    return emitOpError() << "expects no factors for blocks on the diagonal";
  if (getScale() && failed(expectTile(*this, "factors", getScale(),
                                      (blocks - 1) * (blocks - 2) / 2, whole)))
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
  if (getLow() &&
      (failed(expectTile(*this, "a low tile", getLow(), m, m)) ||
       failed(expectTile(*this, "low scratch", getLowBlocks(), m, m))))
    return failure();
  llvm::SmallDenseSet<Value, 4> apart{getTo(), getBlocks()};
  if (getLow())
    apart.insert_range(ArrayRef<Value>{getLow(), getLowBlocks()});
  if (apart.size() != (getLow() ? 4 : 2))
    return emitOpError() << "expects scratch apart from the result";
  // inverse_c3
  if (failed(expectLayout(*this, "the matrix", getValue(), LayoutKind::Acc)))
    return failure();
  return getScale() ? expectLayout(*this, "the factors", getScale(),
                                   LayoutKind::AccCol)
                    : success();
}
