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

/// Gives every chain, list and read the level at which it can be computed.
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
      if (isa<ReadOp, AttendOp, AppendOp>(op)) {
        auto placed = known.find(op);
        return placed == known.end() ? kNone : placed->second;
      }
      for (Value operand : op->getOperands())
        level = std::max(level, levelOf(operand));
    }
    return levels[value] = level;
  }
  int levelOf(ValueRange values) {
    levels.clear(); // what was unknown may be known by now
    int level = 0;
    for (Value value : values)
      level = std::max(level, levelOf(value));
    return level;
  }
  bool place(StateChain &chain);
  /// Places an op whose level is that of `needs`; its result is known at
  /// `above` levels more.
  bool place(Operation *op, ValueRange needs, int above, int &level) {
    if (known.count(op) || levelOf(needs) >= kNone)
      return false;
    level = std::max(level, levelOf(needs));
    known[op] = level + above;
    return true;
  }

  StateChains &chains;
  DenseMap<Operation *, int>
      known;                   ///< Level of the result of a read or append.
  DenseMap<Value, int> levels; ///< Cache of one question.
  llvm::SmallPtrSet<void *, 4> done;
};

/// Places what can be placed of one chain; true when something was.
bool Leveller::place(StateChain &chain) {
  void *id = chain.start.getAsOpaquePointer();
  bool progress = false;
  if (!done.contains(id)) {
    SmallVector<Value> needs;
    for (StepOp step : chain.steps)
      for (Value operand : step->getOperands())
        if (!isa<StateType>(operand.getType()))
          needs.push_back(operand);
    int level = levelOf(needs);
    if (level >= kNone)
      return false;
    chain.level = level;
    done.insert(id);
    progress = true;
  }
  for (ChainRead &read : chain.reads) {
    if (!known.count(read.op))
      read.level = chain.level;
    progress |= place(read.op, read.op.getKey(), 1, read.level);
  }
  return progress;
}

bool Leveller::run() {
  for (bool progress = true; progress;) {
    progress = false;
    for (StateChain &chain : chains.states)
      progress |= place(chain);
    for (ListChain &list : chains.lists)
      progress |= place(list.append, list.append.getRow(), 0, list.level);
    for (ListRead &read : chains.attends) {
      // Without this token's row, too, the rows of the chunk are appended
      // first.
      SmallVector<Value> needs(read.op.getQueries());
      for (Value list : read.op->getOperands().drop_front(needs.size()))
        needs.push_back(appendTo(list).getResult());
      progress |= place(read.op, needs, 1, read.level);
    }
  }
  size_t all = chains.lists.size() + chains.attends.size();
  for (StateChain &chain : chains.states)
    all += chain.reads.size();
  return done.size() == chains.states.size() && known.size() == all;
}

} // namespace

AppendOp plum::appendTo(Value list) {
  if (auto append = list.getDefiningOp<AppendOp>())
    return append;
  for (Operation *user : list.getUsers())
    if (auto append = dyn_cast<AppendOp>(user))
      return append;
  llvm_unreachable("a layer appends to each of its lists");
}

FailureOr<StateChains> plum::readStateChains(LayerOp layer) {
  StateChains chains;
  for (BlockArgument start : layer.argumentsOf(Role::State)) {
    if (isa<ListType>(start.getType())) {
      chains.lists.push_back({appendTo(start)});
      continue;
    }
    FailureOr<StateChain> chain = ChainReader(layer).read(start);
    if (failed(chain))
      return failure();
    chains.states.push_back(std::move(*chain));
  }
  for (AttendOp attend : layer.getBlock().getOps<AttendOp>())
    chains.attends.push_back({attend});
  if (!Leveller(chains).run()) {
    layer.emitWarning()
        << "layer '" << layer.getSymName()
        << "' has no chunkwise form: what a state writes depends on what it "
           "reads other than by an erase; it runs in the step form";
    return failure();
  }
  return chains;
}
