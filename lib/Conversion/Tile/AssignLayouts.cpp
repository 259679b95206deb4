//===- AssignLayouts.cpp - Which thread holds what --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Backwards over a kernel: an op asks its operands for the layouts it needs,
// given the layout of its result. A value that several users want in different
// layouts is made once for each, by repeating the op (loads, parameters and
// elementwise maths are cheaper than moving data between threads).
//
//===----------------------------------------------------------------------===//

#include "plum/Conversion/Passes.h"

#define DEBUG_TYPE "tile-assign-layouts"

namespace plum {
#define GEN_PASS_DEF_ASSIGNLAYOUTSPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::tile;

namespace {

int64_t rankOf(Value v) {
  return cast<RankedTensorType>(v.getType()).getRank();
}

LayoutKind rowOf(LayoutKind k) {
  return isOpb(k) ? LayoutKind::OpbRow : LayoutKind::AccRow;
}
LayoutKind colOf(LayoutKind k) {
  return isOpb(k) ? LayoutKind::OpbCol : LayoutKind::AccCol;
}

class Assignment {
public:
  explicit Assignment(KernelOp kernel) : kernel(kernel) {}
  LogicalResult run();

private:
  LogicalResult block(Block &block);
  LogicalResult visit(Operation *op);
  /// Makes `use` see its value in layout `kind`.
  void want(OpOperand &use, LayoutKind kind);
  LogicalResult fix(Operation *op, Value result, LayoutKind only);
  bool isElementwise(Operation *op) {
    return isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
  }

  KernelOp kernel;
  /// Uses that wait for their value, by value and layout.
  DenseMap<Value, SmallVector<std::pair<LayoutKind, OpOperand *>>> wanted;
};

} // namespace

void Assignment::want(OpOperand &use, LayoutKind kind) {
  if (isa<RankedTensorType>(use.get().getType()))
    wanted[use.get()].push_back({kind, &use});
}

/// The layout of a result that can only have one.
LogicalResult Assignment::fix(Operation *op, Value result, LayoutKind only) {
  for (auto [kind, use] : wanted[result])
    if (kind != only) {
      InFlightDiagnostic d = op->emitOpError() << "makes a value in layout "
                                               << stringifyLayoutKind(only)
                                               << ", but a use needs "
                                               << stringifyLayoutKind(kind);
      d.attachNote(use->getOwner()->getLoc()) << "the use";
      return d;
    }
  result.setType(withLayout(result.getType(), only));
  return success();
}

LogicalResult Assignment::visit(Operation *op) {
  using K = LayoutKind;
  auto operands = [&](K kind) {
    for (OpOperand &use : op->getOpOperands())
      if (isa<RankedTensorType>(use.get().getType()))
        want(use, rankOf(use.get()) == 2 ? kind : colOf(kind));
  };
  auto linear = [&]() { want(op->getOpOperand(0), K::Linear); };

  auto ofState = [](Value v) { return rankOf(v) == 2 ? K::Acc : K::Linear; };

  // Ops that fix the layouts of what they take and make.
  if (auto load = dyn_cast<LoadStateOp>(op))
    return fix(op, load.getResult(), ofState(load.getResult()));
  if (isa<StoreStateOp, StoreDecayOp>(op)) {
    want(op->getOpOperand(0), ofState(op->getOperand(0)));
    return success();
  }
  if (auto sums = dyn_cast<ColumnSumsOp>(op))
    return fix(op, sums.getResult(), K::Linear);
  if (isa<DotOp, DotDiagOp, DotBlocksOp, PlaceDiagOp, MaskOp, JoinHalvesOp>(
          op)) {
    // A row-wise op on an operand of a product by blocks stays with it.
    for (Value result : op->getResults())
      if (failed(fix(op, result, K::Acc)))
        return failure();
    operands(K::Acc);
    return success();
  }
  if (isa<ExportMatrixOp, WriteRowsOp, InverseOp>(op)) {
    operands(K::Acc);
    return success();
  }
  if (auto sum = dyn_cast<SumTeamsOp>(op)) {
    const K kind = sum.columns() ? K::AccCol : K::Acc;
    for (Value result : op->getResults())
      if (failed(fix(op, result, kind)))
        return failure();
    operands(K::Acc);
    return success();
  }
  if (isa<ReduceOp, DiagonalOp>(op)) {
    // The sum is complete in every thread of a row: any user can have it in
    // acc.
    if (failed(fix(op, op->getResult(0), K::AccCol)))
      return failure();
    operands(K::Acc);
    return success();
  }
  if (auto sum = dyn_cast<ReduceRowsOp>(op)) {
    if (failed(fix(op, sum.getResult(), K::AccRow)))
      return failure();
    operands(K::Acc);
    return success();
  }
  if (auto cumsum = dyn_cast<CumsumOp>(op)) {
    if (failed(fix(op, cumsum.getResult(), K::Acc)))
      return failure();
    operands(K::Opb);
    return success();
  }
  auto ofStash = [](Value v) {
    return getElementTypeOrSelf(v).isBF16() ? K::Acc : K::Opb;
  };
  if (auto unstash = dyn_cast<UnstashOp>(op))
    return fix(op, unstash.getResult(), ofStash(unstash.getResult()));
  if (auto stash = dyn_cast<StashOp>(op)) {
    want(op->getOpOperand(0), ofStash(stash.getValue()));
    return success();
  }
  if (isa<BlockSumOp>(op)) {
    want(op->getOpOperand(0), K::Opb);
    return success();
  }
  if (auto vector = dyn_cast<ExportVectorOp>(op);
      vector && vector.getTokens()) {
    want(op->getOpOperand(0), K::AccCol);
    return success();
  }
  if (isa<CumulateOp, ExportVectorOp>(op)) {
    linear();
    return success();
  }
  if (auto store = dyn_cast<StoreOp>(op)) {
    want(op->getOpOperand(0), rankOf(store.getValue()) == 2 ? K::Acc
                              : store.getTokens()           ? K::AccCol
                                                            : K::Linear);
    return success();
  }
  if (isa<StripsOp, ChunksOp>(op)) {
    Block &body = op->getRegion(0).front();
    Operation *yield = body.getTerminator();
    unsigned carried = op->getNumOperands();
    // A result has one layout: that of its uses, accumulators where none.
    for (auto [i, result] : llvm::enumerate(op->getResults())) {
      if (!isa<RankedTensorType>(result.getType()))
        continue;
      K kind = rankOf(result) == 2 ? K::Acc : K::AccCol;
      if (!wanted[result].empty())
        kind = wanted[result].front().first;
      if (failed(fix(op, result, kind)))
        return failure();
      want(yield->getOpOperand(i), kind);
      if (i < carried) {
        want(op->getOpOperand(i), kind);
        BlockArgument arg =
            body.getArgument(i + body.getNumArguments() - carried);
        arg.setType(withLayout(arg.getType(), kind));
      }
    }
    return block(body);
  }
  if (isa<TailOp, TeamOp>(op))
    return block(op->getRegion(0).front());
  if (op->getNumResults() == 0)
    return success();

  // Ops whose layout is free: one copy for each layout that is wanted.
  Value result = op->getResult(0);
  if (!isa<RankedTensorType>(result.getType()))
    return success();
  auto uses = wanted[result];
  SmallVector<K> kinds;
  for (auto [kind, use] : uses)
    if (!llvm::is_contained(kinds, kind))
      kinds.push_back(kind);
  // A read that nobody wants would have no layout.
  if (kinds.empty() && (isMemoryEffectFree(op) || isa<LoadOp, ColumnOp>(op))) {
    op->erase();
    return success();
  }
  OpBuilder b(op);
  for (auto [i, kind] : llvm::enumerate(kinds)) {
    Operation *made = i + 1 == kinds.size() ? op : b.clone(*op);
    Value value = made->getResult(0);
    value.setType(withLayout(value.getType(), kind));
    for (auto [k, use] : uses)
      if (k == kind)
        use->set(value);
    if (auto constant = dyn_cast<arith::ConstantOp>(made)) {
      auto splat = cast<DenseElementsAttr>(constant.getValue());
      constant.setValueAttr(DenseElementsAttr::get(
          cast<ShapedType>(value.getType()), splat.getSplatValue<Attribute>()));
      continue;
    }
    for (OpOperand &use : made->getOpOperands()) {
      if (!isa<RankedTensorType>(use.get().getType()))
        continue;
      if (auto broadcast = dyn_cast<BroadcastOp>(made)) {
        bool vector = rankOf(result) == 1; // A number, repeated.
        want(use, vector                ? kind
                  : broadcast.getRows() ? rowOf(kind)
                                        : colOf(kind));
      } else {
        want(use, kind);
      }
    }
  }
  return success();
}

LogicalResult Assignment::block(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (failed(visit(&op)))
      return failure();
  // Carried values: their uses agree with what the op set.
  for (BlockArgument arg : block.getArguments())
    for (auto [kind, use] : wanted[arg])
      if (layoutOf(arg.getType()) != kind)
        return use->getOwner()->emitOpError()
               << "needs a carried value in layout "
               << stringifyLayoutKind(kind);
  return success();
}

LogicalResult Assignment::run() { return block(kernel.getBody().front()); }

namespace {
struct AssignLayoutsPass
    : public plum::impl::AssignLayoutsPassBase<AssignLayoutsPass> {
  void runOnOperation() override {
    if (failed(Assignment(getOperation()).run()))
      signalPassFailure();
  }
};
} // namespace
