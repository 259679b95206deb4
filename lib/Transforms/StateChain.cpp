//===- StateChain.cpp - What a layer says about one state -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StateChain.h"

using namespace mlir;
using namespace plum;
using namespace plum::assoc;
using plum::chunk::AtAttr;
using plum::chunk::Moment;

namespace {

/// Reads the chain of one state.
class ChainReader {
public:
  explicit ChainReader(LayerOp layer) : layer(layer) {}
  FailureOr<StateChain> read(BlockArgument start);

private:
  AtAttr at(int64_t step, Moment moment) {
    return AtAttr::get(layer.getContext(), step, moment);
  }
  void readDecays(StateChain &chain);
  void readWrites(StateChain &chain, StepOp step, int64_t index);

  LayerOp layer;
  DenseMap<Value, AtAttr> places; ///< When each state of the chain is current.
};

void ChainReader::readDecays(StateChain &chain) {
  bool allLog = true, bounded = true, assumed = false;
  double low = 0, high = 0;
  for (StepOp step : chain.steps) {
    if (!step.getDecay())
      continue;
    chain.decays = true;
    allLog &= *step.getDomain() == Domain::Log;
    if (BoundsAttr bounds = step.getBoundsAttr()) {
      low = std::min(low, bounds.getLow().convertToDouble());
      high = std::max(high, bounds.getHigh().convertToDouble());
      assumed |= bounds.getAssumed();
    } else {
      bounded = false;
    }
  }
  chain.domain = allLog ? Domain::Log : Domain::Linear;
  if (chain.decays && bounded && allLog)
    chain.bounds = BoundsAttr::get(layer.getContext(), low, high, assumed);
}

void ChainReader::readWrites(StateChain &chain, StepOp step, int64_t index) {
  SmallVector<bool> joined(step.getKeys().size(), false);
  for (unsigned i = 0; i < step.getAlong().size(); ++i) {
    Value key = step.getAlong()[i], u0;
    for (unsigned j = 0; j < joined.size() && !u0; ++j)
      if (!joined[j] && step.getKeys()[j] == key) {
        joined[j] = true;
        u0 = step.getValues()[j];
      }
    AtAttr read = step.getDecayed()[i] ? at(index, Moment::Decayed)
                                       : places.lookup(step.getOf()[i]);
    chain.along.push_back({key, at(index, Moment::After)});
    chain.at.push_back({step.getAt()[i], read});
    chain.by.push_back(step.getBy()[i]);
    chain.u0.push_back(u0);
  }
  for (unsigned j = 0; j < joined.size(); ++j)
    if (!joined[j]) {
      chain.keys.push_back({step.getKeys()[j], at(index, Moment::After)});
      chain.values.push_back(step.getValues()[j]);
    }
}

FailureOr<StateChain> ChainReader::read(BlockArgument start) {
  StateChain chain;
  chain.start = start;
  Value state = start;
  places[state] = at(0, Moment::Before);
  while (true) {
    StepOp next;
    for (Operation *user : state.getUsers()) {
      if (auto step = dyn_cast<StepOp>(user); step && step.getState() == state)
        next = step;
      else if (!isa<StepOp, ReadOp, YieldOp>(user)) {
        user->emitWarning()
            << "layer '" << layer.getSymName()
            << "' has no chunkwise form: this is neither a step nor a read; it "
               "runs in the step form";
        return failure();
      }
    }
    if (!next)
      break;
    int64_t index = chain.steps.size();
    chain.steps.push_back(next);
    readWrites(chain, next, index);
    state = next.getResult();
    places[state] = at(index, Moment::After);
  }
  readDecays(chain);
  for (ReadOp read : layer.getBlock().getOps<ReadOp>())
    if (AtAttr place = places.lookup(read.getState()))
      chain.reads.push_back({read, place});
  return chain;
}

/// Gives every chain and read the level at which it can be computed.
class Leveller {
public:
  explicit Leveller(StateChains &chains) : chains(chains) {}

  /// False when some chain or read has none.
  bool run();

private:
  static constexpr int kNone = 1 << 20;

  int levelOf(Value value) {
    auto found = levels.find(value);
    if (found != levels.end())
      return found->second;
    int level = 0;
    if (Operation *op = value.getDefiningOp()) {
      if (auto read = dyn_cast<ReadOp>(op)) {
        auto placed = reads.find(read);
        return placed == reads.end() ? kNone : placed->second;
      }
      for (Value operand : op->getOperands())
        level = std::max(level, levelOf(operand));
    }
    return levels[value] = level;
  }
  bool place(StateChain &chain);

  StateChains &chains;
  DenseMap<Operation *, int> reads; ///< Level of a read's result.
  DenseMap<Value, int> levels;      ///< Cache for one round.
  llvm::SmallPtrSet<void *, 4> done;
};

/// Places what can be placed of one chain; true when something was.
bool Leveller::place(StateChain &chain) {
  void *id = chain.start.getAsOpaquePointer();
  bool progress = false;
  if (!done.contains(id)) {
    int level = 0;
    for (StepOp step : chain.steps)
      for (Value operand : step->getOperands())
        if (!isa<StateType>(operand.getType()))
          level = std::max(level, levelOf(operand));
    if (level >= kNone)
      return false;
    chain.level = level;
    done.insert(id);
    progress = true;
  }
  for (ChainRead &read : chain.reads) {
    if (reads.count(read.op))
      continue;
    levels.clear(); // a key may depend on the read before it
    int level = std::max(chain.level, levelOf(read.op.getKey()));
    if (level >= kNone)
      continue;
    read.level = level;
    reads[read.op] = level + 1;
    progress = true;
  }
  return progress;
}

bool Leveller::run() {
  for (bool progress = true; progress;) {
    progress = false;
    for (StateChain &chain : chains) {
      levels.clear();
      progress |= place(chain);
    }
  }
  size_t all = 0;
  for (StateChain &chain : chains)
    all += chain.reads.size();
  return done.size() == chains.size() && reads.size() == all;
}

} // namespace

FailureOr<StateChains> plum::readStateChains(LayerOp layer) {
  StateChains chains;
  for (BlockArgument start : layer.argumentsOf(Role::State)) {
    FailureOr<StateChain> chain = ChainReader(layer).read(start);
    if (failed(chain))
      return failure();
    chains.push_back(std::move(*chain));
  }
  if (!Leveller(chains).run()) {
    layer.emitWarning()
        << "layer '" << layer.getSymName()
        << "' has no chunkwise form: what a state writes depends on what it "
           "reads other than by an erase; it runs in the step form";
    return failure();
  }
  return chains;
}
