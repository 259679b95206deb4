//===- Plan.cpp - Split a chunk's work by what needs the state --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The forward slice of the loop's states is `scan`; everything else is
// `prepare`. Nothing here knows a layer or an equation: an op that moves to
// the other side of the line does so because its operands changed.
//
//===----------------------------------------------------------------------===//

#include "plum/Transforms/Passes.h"

#include "mlir/Transforms/RegionUtils.h"

#define DEBUG_TYPE "chunk-plan"

namespace plum {
#define GEN_PASS_DEF_PLANPASS
#include "plum/Transforms/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::chunk;

namespace {

struct PlanPass : public plum::impl::PlanPassBase<PlanPass> {
  void runOnOperation() override;

private:
  static void wrap(ArrayRef<Operation *> ops, Stage stage, Block *body,
                   Operation *before);
};

/// Moves `ops` into one stage that yields what others use.
void PlanPass::wrap(ArrayRef<Operation *> ops, Stage stage, Block *body,
                    Operation *before) {
  if (ops.empty())
    return;
  llvm::SmallPtrSet<Operation *, 16> inside(ops.begin(), ops.end());
  SmallVector<Value> results;
  for (Operation *op : ops)
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) {
            return !inside.contains(body->findAncestorOpInBlock(*user));
          }))
        results.push_back(result);
  OpBuilder b(before);
  Location loc = before->getLoc();
  auto op = StageOp::create(b, loc, TypeRange(ValueRange(results)), stage);
  Block &block = op.getBody().emplaceBlock();
  for (Operation *moved : ops)
    moved->moveBefore(&block, block.end());
  b.setInsertionPointToEnd(&block);
  auto yield = chunk::YieldOp::create(b, loc, results);
  for (auto [inner, outer] : llvm::zip(results, op.getResults())) {
    inner.replaceUsesWithIf(outer, [&](OpOperand &use) {
      return use.getOwner() != yield && !op->isProperAncestor(use.getOwner());
    });
  }
}

void PlanPass::runOnOperation() {
  if (!getOperation()->hasAttr(kChunkAttr))
    return;
  getOperation().walk([&](scf::ForOp loop) {
    Block *body = loop.getBody();
    llvm::DenseSet<Value> needsState(loop.getRegionIterArgs().begin(),
                                     loop.getRegionIterArgs().end());
    SmallVector<Operation *> prepare, scan;
    for (Operation &op : body->without_terminator()) {
      SetVector<Value> captured;
      getUsedValuesDefinedAbove(op.getRegions(), captured);
      captured.insert(op.operand_begin(), op.operand_end());
      bool needs = llvm::any_of(
          captured, [&](Value v) { return needsState.contains(v); });
      if (needs)
        needsState.insert(op.result_begin(), op.result_end());
      (needs ? scan : prepare).push_back(&op);
    }
    numPrepared += prepare.size();
    wrap(prepare, Stage::Prepare, body, body->getTerminator());
    wrap(scan, Stage::Scan, body, body->getTerminator());
  });
}

} // namespace
