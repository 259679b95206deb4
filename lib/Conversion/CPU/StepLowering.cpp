//===- StepLowering.cpp - The step form of a layer as a kernel --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One loop over tokens, the state updated in place. A step costs two passes
// over the state: one that reads it (y_i = f_i P) and one that decays it and
// writes e^T (c y) + k^T u; reads of the new state ride along with the second,
// and without erases the first is not there.
//
// In place means that whatever needs a state value must have been computed
// before the next step overwrites it. Ops are therefore lowered on demand: a
// step first demands every read of the state it consumes.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "Attend.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum;
using namespace plum::cpu;
using namespace plum::assoc;

namespace {

class StepLowering {
public:
  StepLowering(LayerOp layer, func::FuncOp kernel, Machine machine)
      : layer(layer), kernel(kernel), b(kernel, machine) {}

  LogicalResult run();

private:
  LogicalResult ensure(Value value);
  LogicalResult lowerOp(Operation *op);
  LogicalResult lowerStep(StepOp op);
  void lowerRead(ReadOp op);
  LogicalResult lowerMap(MapOp op);
  void lowerAppend(AppendOp op);
  void lowerAttend(AttendOp op);
  LogicalResult demandReadsOf(Value state, Operation *by);
  SmallVector<ReadOp> ridingReads(StepOp op);
  bool dependsOn(Value value, Value state);

  Value memoryOf(Value state) { return memory.lookup(state); }
  /// A row in memory, so that a loop can take its elements one by one.
  Value spilled(Value row);
  Value element(Value spilledRow, Value index) {
    return b.loadF32(b.at(spilledRow, index));
  }
  StateType typeOf(Value state) { return cast<StateType>(state.getType()); }
  /// Adds `factor * row` terms to a row of V lanes.
  Value addScaled(Value row, Value factor, Value other) {
    return b.fma(b.splat(factor, cast<VectorType>(row.getType()).getDimSize(0)),
                 other, row);
  }

  LayerOp layer;
  func::FuncOp kernel;
  KernelBuilder b;
  IRMapping map;
  DenseMap<Value, Value> memory; ///< State value -> its memory.
  DenseMap<Value, GrowingRows> lists;
  Value token;
  DenseMap<Value, Value> spills;                            ///< Row -> scratch.
  DenseMap<std::pair<Operation *, unsigned>, Value> erased; ///< y of (step, i).
  llvm::DenseSet<Operation *> active, done;
  int64_t flops = 0; ///< Of one token, on the states.
};

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

LogicalResult StepLowering::ensure(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || done.contains(op))
    return success();
  return lowerOp(op);
}

bool StepLowering::dependsOn(Value value, Value state) {
  if (value == state)
    return true;
  Operation *op = value.getDefiningOp();
  return op && llvm::any_of(op->getOperands(),
                            [&](Value v) { return dependsOn(v, state); });
}

/// Everything that looks at `state` before `by` overwrites it.
LogicalResult StepLowering::demandReadsOf(Value state, Operation *by) {
  for (Operation *user : state.getUsers()) {
    if (user == by || done.contains(user))
      continue;
    if (isa<ReadOp, WholeOp>(user)) {
      if (failed(ensure(user->getResult(0))))
        return failure();
      continue;
    }
    auto later = dyn_cast<StepOp>(user);
    if (!later)
      continue;
    for (unsigned i = 0; i < later.getOf().size(); ++i) {
      if (later.getOf()[i] != state || later.getDecayed()[i] ||
          later.getState() == state)
        continue;
      // A later step reads this state: keep what it will read.
      Value at = later.getAt()[i];
      if (failed(ensure(at)))
        return failure();
      ReadOp read;
      {
        OpBuilder builder(later);
        read = ReadOp::create(builder, later.getLoc(), state, at);
      }
      lowerRead(read);
      erased[{later, i}] = map.lookup(read.getResult());
      map.erase(read.getResult());
      read.erase();
    }
  }
  return success();
}

/// Reads of the step's result whose keys are known before it.
SmallVector<ReadOp> StepLowering::ridingReads(StepOp op) {
  SmallVector<ReadOp> reads;
  for (Operation *user : op.getResult().getUsers())
    if (auto read = dyn_cast<ReadOp>(user))
      if (!done.contains(read) && !dependsOn(read.getKey(), op.getResult()))
        reads.push_back(read);
  return reads;
}

Value StepLowering::spilled(Value row) {
  Value &place = spills[row];
  if (!place) {
    Buffer buffer =
        b.allocate(1, cast<VectorType>(row.getType()).getDimSize(0));
    place = buffer.base;
    b.store(map.lookupOrDefault(row), place);
  }
  return place;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

void StepLowering::lowerRead(ReadOp op) {
  StateType type = typeOf(op.getState());
  Value state = memoryOf(op.getState());
  int64_t K = type.getKeyDim(), V = type.getValueDim();
  flops += 2 * K * V;
  Value result;
  if (V == 1) {
    Value key = map.lookupOrDefault(op.getKey());
    result = b.splat(b.sum(b.times(key, b.loadVec(state, K))), 1);
  } else {
    Value key = spilled(op.getKey());
    result = b.loop(
        b.i64(0), b.i64(K), 1, b.constant(0, V), [&](Value c, ValueRange acc) {
          Value row = b.loadVec(b.at(state, b.mul(c, V)), V);
          return KernelBuilder::Carry{addScaled(acc[0], element(key, c), row)};
        })[0];
  }
  map.map(op.getResult(), result);
  done.insert(op);
}

LogicalResult StepLowering::lowerStep(StepOp op) {
  if (failed(demandReadsOf(op.getState(), op)))
    return failure();
  SmallVector<ReadOp> riding = ridingReads(op);
  for (ReadOp read : riding)
    if (failed(ensure(read.getKey())))
      return failure();
  StateType type = typeOf(op.getState());
  int64_t K = type.getKeyDim(), V = type.getValueDim();
  Value state = memoryOf(op.getState());
  memory[op.getResult()] = state;
  auto value = [&](Value v) { return map.lookupOrDefault(v); };

  Value w;
  if (op.getDecay()) {
    w = value(op.getDecay());
    if (*op.getDomain() == Domain::Log)
      w = math::ExpOp::create(b, w);
  }
  bool perChannel = w && isa<VectorType>(w.getType());
  SmallVector<unsigned> own; // erases that read this step's input
  for (unsigned i = 0; i < op.getAlong().size(); ++i)
    if (op.getOf()[i] == op.getState())
      own.push_back(i);

  if (V == 1) {
    // A vector state: everything is a row of K.
    Value s = b.loadVec(state, K);
    Value before = s;
    if (w)
      s = b.times(s, perChannel ? w : b.splat(w, K));
    Value decayed = s;
    for (unsigned i = 0; i < op.getAlong().size(); ++i) {
      Value y;
      if (Value kept = erased.lookup({op, i}))
        y = vector::ExtractOp::create(b, kept, ArrayRef<int64_t>{0});
      else
        y = b.sum(b.times(value(op.getAt()[i]),
                          op.getDecayed()[i] ? decayed : before));
      Value scaled = b.times(value(op.getBy()[i]), y);
      s = b.fma(b.splat(scaled, K), value(op.getAlong()[i]), s);
    }
    for (auto [key, u] : llvm::zip(op.getKeys(), op.getValues())) {
      Value scalar =
          vector::ExtractOp::create(b, value(u), ArrayRef<int64_t>{0});
      s = b.fma(b.splat(scalar, K), value(key), s);
    }
    b.store(s, state);
    flops += K * (w ? 1 : 0) +
             2 * K * int64_t(2 * op.getAlong().size() + op.getKeys().size());
    for (ReadOp read : riding)
      lowerRead(read);
    return success();
  }

  Value wMemory;
  if (perChannel) {
    wMemory = b.allocate(1, K).base;
    b.store(w, wMemory);
  }
  auto decayed = [&](Value row, Value c) {
    if (!w)
      return row;
    Value factor = perChannel ? element(wMemory, c) : w;
    return b.times(row, b.splat(factor, V));
  };

  // First pass: y_i = f_i P_i.
  SmallVector<Value> u(op.getAlong().size());
  if (!own.empty()) {
    SmallVector<Value> init(own.size(), b.constant(0, V)), keys;
    for (unsigned i : own)
      keys.push_back(spilled(op.getAt()[i]));
    auto sums =
        b.loop(b.i64(0), b.i64(K), 1, init, [&](Value c, ValueRange acc) {
          Value row = b.loadVec(b.at(state, b.mul(c, V)), V);
          Value after = decayed(row, c);
          KernelBuilder::Carry next;
          for (auto [n, i] : llvm::enumerate(own))
            next.push_back(addScaled(acc[n], element(keys[n], c),
                                     op.getDecayed()[i] ? after : row));
          return next;
        });
    for (auto [n, i] : llvm::enumerate(own))
      u[i] = sums[n];
  }
  for (unsigned i = 0; i < u.size(); ++i) {
    if (!u[i])
      u[i] = erased.lookup({op, i});
    u[i] = b.times(b.splat(value(op.getBy()[i]), V), u[i]);
  }

  // What is written, one row per distinct key.
  SmallVector<std::pair<Value, Value>> writes;
  auto write = [&](Value key, Value row) {
    for (auto &[known, sum] : writes)
      if (known == key) {
        sum = arith::AddFOp::create(b, sum, row);
        return;
      }
    writes.push_back({key, row});
  };
  for (auto [key, row] : llvm::zip(op.getKeys(), op.getValues()))
    write(key, value(row));
  for (auto [key, row] : llvm::zip(op.getAlong(), u))
    write(key, row);

  // A decay multiplies; everything else multiplies and adds.
  flops += K * V * (w ? 1 : 0) +
           2 * K * V * int64_t(own.size() + writes.size() + riding.size());

  // Second pass: decay, write, and the reads that ride along.
  SmallVector<Value> keys, queries, init;
  for (auto &[key, row] : writes)
    keys.push_back(spilled(key));
  for (ReadOp read : riding) {
    queries.push_back(spilled(read.getKey()));
    init.push_back(b.constant(0, V));
  }
  auto reads =
      b.loop(b.i64(0), b.i64(K), 1, init, [&](Value c, ValueRange acc) {
        Value pointer = b.at(state, b.mul(c, V));
        Value row = decayed(b.loadVec(pointer, V), c);
        for (unsigned i = 0; i < writes.size(); ++i)
          row = addScaled(row, element(keys[i], c), writes[i].second);
        b.store(row, pointer);
        KernelBuilder::Carry next;
        for (unsigned i = 0; i < queries.size(); ++i)
          next.push_back(addScaled(acc[i], element(queries[i], c), row));
        return next;
      });
  for (auto [read, row] : llvm::zip(riding, reads)) {
    map.map(read.getResult(), row);
    done.insert(read);
  }
  return success();
}

/// Every row of the new state from rows of old ones; through scratch, since the
/// region may read whole states.
LogicalResult StepLowering::lowerMap(MapOp op) {
  if (failed(demandReadsOf(op.getState(), op)))
    return failure();
  for (Value source : op.getSources())
    if (failed(ensure(source)))
      return failure();
  StateType type = typeOf(op.getState());
  int64_t K = type.getKeyDim(), V = type.getValueDim();
  Value state = memoryOf(op.getState());
  Buffer scratch = b.allocate(K, V);
  SmallVector<Value> columns;
  for (Value column : op.getColumns())
    columns.push_back(spilled(column));
  b.loop(0, K, 1, [&](Value c) {
    IRMapping inner = map;
    unsigned next = 0;
    Block &body = op.getBody().front();
    for (Value source : op.getSources()) {
      int64_t width = typeOf(source).getValueDim();
      inner.map(body.getArgument(next++),
                b.loadVec(b.at(memoryOf(source), b.mul(c, width)), width));
    }
    for (Value column : columns)
      inner.map(body.getArgument(next++), element(column, c));
    for (Operation &each : body.without_terminator()) {
      if (auto read = dyn_cast<ReadOp>(each)) {
        // The key is a row of this iteration: read through its own scratch.
        StateType other = typeOf(read.getState());
        Value key = b.allocate(1, other.getKeyDim()).base;
        b.store(inner.lookupOrDefault(read.getKey()), key);
        int64_t width = other.getValueDim();
        Value memory = memoryOf(read.getState());
        Value sum = b.loop(b.i64(0), b.i64(other.getKeyDim()), 1,
                           b.constant(0, width), [&](Value j, ValueRange acc) {
                             Value row = b.loadVec(
                                 b.at(memory, b.mul(j, width)), width);
                             return KernelBuilder::Carry{
                                 addScaled(acc[0], element(key, j), row)};
                           })[0];
        inner.map(read.getResult(), sum);
      } else {
        b.clone(each, inner);
      }
    }
    Value row = inner.lookupOrDefault(body.getTerminator()->getOperand(0));
    b.store(row, b.at(scratch, c));
  });
  b.columns(K * V, [&](Value i, int64_t lanes) {
    b.store(b.loadVec(b.at(scratch.base, i), lanes), b.at(state, i));
  });
  b.release(scratch);
  memory[op.getResult()] = state;
  return success();
}

void StepLowering::lowerAppend(AppendOp op) {
  GrowingRows list = lists.lookup(op.getList());
  lists[op.getResult()] = list;
  Value row = map.lookupOrDefault(op.getRow());
  b.loop(b.i64(0), b.appended(b.i64(1)), 1, [&](Value) {
    b.store(row, list.at(b, arith::AddIOp::create(b, b.past(), token)));
  });
}

void StepLowering::lowerAttend(AttendOp op) {
  int64_t width = op.getType().getDimSize(0);
  Buffer out = b.allocate(1, width);
  AttendJob job;
  for (auto [query, keys] : llvm::zip(op.getQueries(), op.getKeys()))
    job.pairs.push_back(
        {{spilled(query), 1, cast<VectorType>(query.getType()).getDimSize(0)},
         lists.lookup(keys)});
  job.values = lists.lookup(op.getValues());
  job.row = token;
  job.count = b.i64(1);
  job.own = op.seesOwn();
  job.out = out;
  emitAttend(b, job);
  map.map(op.getResult(), b.loadVec(out.base, width));
  b.release(out);
}

LogicalResult StepLowering::lowerOp(Operation *op) {
  if (!active.insert(op).second)
    return op->emitOpError() << "needs a state that a later update overwrites";
  for (Value operand : op->getOperands())
    if (!isa<StateType>(operand.getType()) && failed(ensure(operand)))
      return failure();
  if (op->getNumRegions())
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!isa<StateType>(operand.getType()) &&
            operand.getParentBlock() == &layer.getBlock())
          (void)ensure(operand);
    });
  for (Value operand : op->getOperands())
    if (isa<StateType>(operand.getType()) && !memoryOf(operand) &&
        failed(ensure(operand)))
      return failure();
  b.setLoc(op->getLoc());
  LogicalResult result =
      TypeSwitch<Operation *, LogicalResult>(op)
          .Case<StepOp>([&](auto op) { return lowerStep(op); })
          .Case<MapOp>([&](auto op) { return lowerMap(op); })
          .Case<ReadOp>([&](ReadOp op) {
            lowerRead(op);
            return success();
          })
          .Case<WholeOp>([&](WholeOp op) {
            map.map(op.getResult(),
                    b.loadVec(memoryOf(op.getState()),
                              typeOf(op.getState()).getKeyDim()));
            return success();
          })
          .Case<AppendOp>([&](AppendOp op) {
            lowerAppend(op);
            return success();
          })
          .Case<AttendOp>([&](AttendOp op) {
            lowerAttend(op);
            return success();
          })
          .Case<YieldOp>([](auto) { return success(); })
          .Default([&](Operation *op) -> LogicalResult {
            if (isa<AssocDialect>(op->getDialect()))
              return op->emitOpError() << "is not in normal form";
            b.clone(*op, map);
            return success();
          });
  active.erase(op);
  done.insert(op);
  return result;
}

LogicalResult StepLowering::run() {
  unsigned params = 0, inputs = 0, states = 0, growing = 0;
  SmallVector<std::pair<BlockArgument, KernelBuilder::Rows>> rows;
  for (BlockArgument arg : layer.getBody().getArguments()) {
    b.setLoc(arg.getLoc());
    switch (cast<ArgAttr>(layer.getArgs()[arg.getArgNumber()]).getRole()) {
    case Role::Param:
      map.map(arg, b.load(arg.getType(), b.param(params++)));
      break;
    case Role::Input:
      rows.push_back({arg, b.input(inputs++)});
      break;
    case Role::State:
      if (auto list = dyn_cast<ListType>(arg.getType()))
        lists[arg] = {b.growing(growing++), list.getWidth()};
      else
        memory[arg] = b.state(states++);
      break;
    }
  }
  SmallVector<KernelBuilder::Rows> outputs;
  for (unsigned i = 0; i < layer.getOutputs().size(); ++i)
    outputs.push_back(b.output(i));
  LogicalResult result = success();
  b.setLoc(layer.getLoc());
  b.loop(b.i64(0), b.tokens(), 1, [&](Value index) {
    token = index;
    for (auto &[arg, row] : rows) {
      Value offset = arith::MulIOp::create(b, token, row.stride);
      map.map(arg, b.load(arg.getType(), b.atByte(row.data, offset)));
    }
    // Reads may be created while lowering; the snapshot is what the layer says.
    SmallVector<Operation *> ops;
    for (Operation &op : layer.getBlock())
      ops.push_back(&op);
    for (Operation *op : ops)
      if (succeeded(result) && !done.contains(op))
        result = lowerOp(op);
    if (failed(result))
      return;
    for (auto [row, value] : llvm::zip(outputs, layer.yieldedOutputs())) {
      Value offset = arith::MulIOp::create(b, token, row.stride);
      b.store(map.lookupOrDefault(value), b.atByte(row.data, offset));
    }
  });
  kernel->setAttr(kWorkspaceAttr, b.getI64IntegerAttr(b.workspaceBytes()));
  kernel->setAttr(kMatmulsAttr, b.getArrayAttr({}));
  kernel->setAttr(kFlopsAttr, b.getI64IntegerAttr(flops));
  kernel->setAttr(kLayerAttr, FlatSymbolRefAttr::get(layer.getSymNameAttr()));
  return result;
}

} // namespace

func::FuncOp plum::cpu::lowerStepLayer(LayerOp layer, Machine machine) {
  func::FuncOp kernel =
      createKernel(layer, ("plum_" + layer.getSymName() + "_step").str());
  if (succeeded(StepLowering(layer, kernel, machine).run()))
    return kernel;
  kernel.erase();
  return nullptr;
}
