//===- Normalize.cpp - Every update as decay, erases, writes ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The updates of one state form a chain S -> S1 -> ... -> Sn. This pass cuts
// the chain into steps
//
//     S' = D S + sum_i e_i^T (c_i f_i P_i) + sum_j k_j^T u_j
//
// as long as possible. Inside a step everything reads the state the step found
// (before or after its decay), so a cut is needed where an op reads what the
// step has written. It is also needed at every state that a read, a map or the
// end of the token uses, for those have to exist. An erase may read any
// earlier cut; if it reads a state in the middle of a step, that state becomes
// a cut and the chain is cut again.
//
//===----------------------------------------------------------------------===//

#include "DecayRange.h"
#include "plum/Transforms/Passes.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

#define DEBUG_TYPE "assoc-normalize"

namespace plum {
#define GEN_PASS_DEF_NORMALIZEPASS
#include "plum/Transforms/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::assoc;

namespace {

/// A run of ops of the chain that makes one step.
struct StepOps {
  Value input;   ///< The state the step finds.
  Value decayed; ///< The state after its decay (`input` without one).
  SmallVector<Operation *> ops;
  bool writes = false;
};

bool isUpdate(Operation *op) {
  return isa<GateOp, DecayOp, AddOp, DeltaOp, EraseOp>(op);
}

/// The op that makes the next state out of `state`, if there is one. A state
/// that feeds two chains (plum-opt input only) has no single next op.
Operation *nextUpdate(Value state) {
  Operation *next = nullptr;
  for (OpOperand &use : state.getUses()) {
    bool continues =
        (isUpdate(use.getOwner()) || isa<MapOp, StepOp>(use.getOwner())) &&
        use.getOperandNumber() == 0;
    if (continues)
      next = next ? nullptr : use.getOwner();
  }
  return next;
}

/// True when something other than the chain itself and its erases uses the
/// state.
bool isUsedApart(Value state) {
  return llvm::any_of(state.getUsers(),
                      [](Operation *user) { return !isUpdate(user); });
}

class Cutter {
public:
  /// Cuts the chain that begins at `start`; false when it has to be cut again
  /// because `forced` grew.
  bool cut(Value start, SmallVectorImpl<StepOps> &steps);

private:
  void begin(Value input, SmallVectorImpl<StepOps> &steps) {
    steps.push_back({input, input, {}, false});
    cuts.insert(input);
  }

  llvm::DenseSet<Value> forced, cuts;
};

bool Cutter::cut(Value start, SmallVectorImpl<StepOps> &steps) {
  cuts.clear();
  steps.clear();
  begin(start, steps);
  for (Value state = start;;) {
    Operation *op = nextUpdate(state);
    if (!op || !isUpdate(op))
      return true;
    StepOps *step = &steps.back();
    bool decays = isa<GateOp, DecayOp>(op);
    bool fresh = step->ops.empty();
    bool mustCut =
        !fresh && (decays || isUsedApart(state) || forced.contains(state) ||
                   (isa<DeltaOp>(op) && step->writes));
    if (auto erase = dyn_cast<EraseOp>(op); erase && !mustCut) {
      Value of = erase.getOf();
      if (of == state && step->writes) {
        mustCut = true;
      } else if (of != step->input && of != step->decayed &&
                 !cuts.contains(of)) {
        forced.insert(of);
        return false;
      }
    }
    if (mustCut) {
      begin(state, steps);
      step = &steps.back();
    }
    step->ops.push_back(op);
    if (decays)
      step->decayed = op->getResult(0);
    else
      step->writes = true;
    state = op->getResult(0);
  }
}

struct NormalizePass : public plum::impl::NormalizePassBase<NormalizePass> {
  void runOnOperation() override;

private:
  void buildStep(StepOps step);
  BoundsAttr boundsOf(Value decay, Domain domain, Value state, Location loc);

  /// What became of the cuts.
  DenseMap<Value, Value> renamed;
};

StringRef nameOf(Value state) {
  Location loc = state.getLoc();
  if (auto named = dyn_cast<NameLoc>(loc))
    return named.getName().getValue();
  return "the state";
}

/// -5, 0.5, -inf: as one would write it.
std::string text(double bound) {
  std::string digits;
  llvm::raw_string_ostream(digits) << llvm::format("%g", bound);
  return digits;
}

/// Proves what can be proven about a decay and says so.
BoundsAttr NormalizePass::boundsOf(Value decay, Domain domain, Value state,
                                   Location loc) {
  Interval range = intervalOf(decay);
  bool log = domain == Domain::Log;
  Value source = decay;
  while (Operation *op = source.getDefiningOp()) {
    if (!isa<arith::ExtFOp, vector::BroadcastOp>(op))
      break;
    source = op->getOperand(0);
  }
  bool plain = log && isa<BlockArgument>(source);
  if (plain)
    range.high = 0;
  range = {range.low + 0.0, range.high + 0.0}; // no -0
  double largest =
      log ? range.high : std::max(std::fabs(range.low), range.high);
  bool shrinks = largest <= (log ? 0 : 1);
  bool bounded = shrinks && log && std::isfinite(range.low);
  std::string message;
  llvm::raw_string_ostream out(message);
  out << (log ? "log decay" : "decay") << " of '" << nameOf(state)
      << "' lies in [" << text(range.low) << ", " << text(range.high) << "]";
  if (plain)
    out << " (an input used as a log decay is taken to be <= 0; 'plum check' "
           "verifies it)";
  if (bounded)
    out << ": bounded, a sub-block of 16 tokens may be factored through one "
           "anchor";
  else if (shrinks && log)
    out << ": unbounded, factors within a sub-block are formed only as "
           "products that never exceed 1";
  else if (shrinks)
    out << ": factors are used as they are, without a logarithm";
  else
    out << ": it may grow, nothing is assumed";
  emitRemark(loc) << message;
  return BoundsAttr::get(&getContext(), range.low, range.high, plain);
}

void NormalizePass::buildStep(StepOps step) {
  if (Value now = renamed.lookup(step.input)) {
    if (step.decayed == step.input)
      step.decayed = now;
    step.input = now;
  }
  Operation *last = step.ops.back();
  OpBuilder b(last);
  Location loc = last->getLoc();
  Value decay;
  DomainAttr domain;
  BoundsAttr bounds;
  SmallVector<Value> along, by, at, of, keys, values;
  SmallVector<bool> decayed;
  auto erase = [&](Value e, Value c, Value f, Value state) {
    bool afterDecay = state == step.decayed && step.decayed != step.input;
    along.push_back(e);
    by.push_back(c);
    at.push_back(f);
    of.push_back(afterDecay ? step.input : state);
    decayed.push_back(afterDecay);
  };
  auto write = [&](Value k, Value u) {
    keys.push_back(k);
    values.push_back(u);
  };
  for (Operation *op : step.ops) {
    TypeSwitch<Operation *>(op)
        .Case<GateOp, DecayOp>([&](auto gate) {
          decay = gate.getDecay();
          domain = gate.getDomainAttr();
          bounds = boundsOf(decay, domain.getValue(), gate.getState(),
                            gate.getLoc());
        })
        .Case<AddOp>([&](AddOp add) { write(add.getKey(), add.getValue()); })
        .Case<EraseOp>([&](EraseOp op) {
          erase(op.getAlong(), op.getBy(), op.getAt(), op.getOf());
        })
        .Case<DeltaOp>([&](DeltaOp delta) {
          // These have no name in the spec, only a place.
          Location loc = delta.getLoc();
          if (auto named = dyn_cast<NameLoc>(loc))
            loc = named.getChildLoc();
          Value minus = arith::NegFOp::create(b, loc, delta.getBeta());
          Value beta = vector::BroadcastOp::create(
              b, loc, delta.getValue().getType(), delta.getBeta());
          erase(delta.getKey(), minus, delta.getKey(), delta.getState());
          write(delta.getKey(),
                arith::MulFOp::create(b, loc, beta, delta.getValue()));
        });
  }
  auto made =
      StepOp::create(b, loc, step.input.getType(), step.input, decay, domain,
                     bounds, along, by, at, of, decayed, keys, values);
  last->getResult(0).replaceAllUsesWith(made.getResult());
  renamed[last->getResult(0)] = made.getResult();
  ++numSteps;
}

void NormalizePass::runOnOperation() {
  LayerOp layer = getOperation();
  renamed.clear();
  SmallVector<Value> starts;
  for (BlockArgument state : layer.argumentsOf(Role::State))
    starts.push_back(state);
  layer.walk([&](MapOp map) { starts.push_back(map.getResult()); });
  SmallVector<Operation *> dead;
  for (Value start : starts) {
    SmallVector<StepOps> steps;
    Cutter cutter;
    while (!cutter.cut(start, steps)) {
    }
    for (StepOps &step : steps) {
      if (step.ops.empty())
        continue;
      buildStep(step);
      dead.append(step.ops);
    }
  }
  // Steps reference only cuts, so what is left of the chain is unused.
  for (Operation *op : llvm::reverse(dead))
    op->erase();
}

} // namespace
