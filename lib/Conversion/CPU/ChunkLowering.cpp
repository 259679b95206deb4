//===- ChunkLowering.cpp - A planned chunk loop as a kernel -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks the ops of a chunk in order. Every tensor gets a buffer when it is made
// and loses it after its last use; states stay in the caller's memory and are
// updated in place by `chunk.carry`.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "Attend.h"
#include "Matmul.h"
#include "Scores.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum;
using namespace plum::cpu;
using namespace plum::chunk;

func::FuncOp plum::cpu::createKernel(Operation *before, StringRef name) {
  OpBuilder b(before->getContext());
  b.setInsertionPointAfter(before);
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  return func::FuncOp::create(b, before->getLoc(), name,
                              b.getFunctionType({pointer}, {}));
}

namespace {

RowPlaces placesOf(ArrayAttr rows) {
  return llvm::map_to_vector<4>(
      rows, [](Attribute attr) { return cast<AtAttr>(attr); });
}

class ChunkLowering {
public:
  ChunkLowering(func::FuncOp source, func::FuncOp kernel, Machine machine)
      : source(source), kernel(kernel), b(kernel, machine),
        chunk(source->getAttrOfType<IntegerAttr>(kChunkAttr).getInt()) {}

  void run();

private:
  void bindArguments();
  void lowerBlock(Block &block);
  void lowerOp(Operation &op);
  void lowerMap(chunk::MapOp op);
  void lowerOutput(OutputOp op);
  void lowerScores(ScoresOp op);
  void lowerRead(ReadOp op);
  void lowerScale(ScaleOp op);
  void lowerAdd(arith::AddFOp op);
  void lowerMatmul(MatmulOp op);
  void lowerCarry(CarryOp op);
  void lowerAppend(AppendOp op);
  void lowerAttend(AttendOp op);
  void lowerRowRegion(ValueRange ins, Region &body, Value i, IRMapping &map);
  void flatten(Block &block, SmallVectorImpl<Operation *> &ops);
  void note(StringRef what, int64_t m, int64_t n, int64_t k);

  /// The buffer behind a tensor.
  Value resolve(Value value);
  const Buffer &bufferOf(Value value) {
    return buffers.find(resolve(value))->second;
  }
  Buffer &newBuffer(Value value);
  /// The buffer of `from` when this is its last use, else a new one.
  Buffer &reuseOrNew(Value result, Value from);
  void releaseDead(Operation *op);
  const DecayTables *decayOf(Value value);

  func::FuncOp source, kernel;
  KernelBuilder b;
  int64_t chunk;
  Value token;                    ///< First token of the chunk.
  Value valid;                    ///< Tokens of it that exist.
  DenseMap<Value, Value> aliases; ///< Stage results -> what they yield.
  DenseMap<Value, Buffer> buffers;
  DenseMap<Value, DecayTables> decays;
  DenseMap<Value, KernelBuilder::Rows> sequences; ///< Inputs and outputs.
  DenseMap<Value, GrowingRows> lists;
  IRMapping perLayer; ///< Params and what was hoisted.
  DenseMap<Value, unsigned> lastUse;
  DenseMap<Operation *, unsigned> position;
  SmallVector<Attribute> matmuls;
};

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

Value ChunkLowering::resolve(Value value) {
  while (Value inner = aliases.lookup(value))
    value = inner;
  return value;
}

Buffer &ChunkLowering::newBuffer(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  int64_t cols = type.getRank() == 2 ? type.getDimSize(1) : 1;
  return buffers[value] = b.allocate(type.getDimSize(0), cols);
}

Buffer &ChunkLowering::reuseOrNew(Value result, Value from) {
  Value source = resolve(from);
  Operation *op = result.getDefiningOp();
  Buffer buffer = buffers[source];
  if (buffer.offset < 0 || lastUse[source] != position[op] ||
      source.getType() != result.getType())
    return newBuffer(result);
  // `from` is given up; its memory lives on under the result's name.
  buffers.erase(source);
  return buffers[result] = buffer;
}

void ChunkLowering::releaseDead(Operation *op) {
  SmallVector<Value> dead;
  for (auto &[value, buffer] : buffers)
    if (buffer.offset >= 0 && lastUse.lookup(value) == position[op])
      dead.push_back(value);
  for (Value value : dead) {
    b.release(buffers[value]);
    buffers.erase(value);
  }
  dead.clear();
  for (auto &[value, tables] : decays)
    if (lastUse.lookup(value) == position[op])
      dead.push_back(value);
  for (Value value : dead) {
    releaseDecayTables(b, decays[value]);
    decays.erase(value);
  }
}

const DecayTables *ChunkLowering::decayOf(Value value) {
  return value ? &decays.find(resolve(value))->second : nullptr;
}

void ChunkLowering::note(StringRef what, int64_t m, int64_t n, int64_t k) {
  auto number = [&](int64_t x) { return b.getI64IntegerAttr(x); };
  matmuls.push_back(b.getDictionaryAttr(
      {b.getNamedAttr("what", b.getStringAttr(what)),
       b.getNamedAttr("m", number(m)), b.getNamedAttr("n", number(n)),
       b.getNamedAttr("k", number(k))}));
}

//===----------------------------------------------------------------------===//
// Per-token regions
//===----------------------------------------------------------------------===//

/// Loads the rows of token i of the chunk and clones the region's ops.
void ChunkLowering::lowerRowRegion(ValueRange ins, Region &body, Value i,
                                   IRMapping &map) {
  for (auto [input, arg] : llvm::zip(ins, body.getArguments())) {
    Value pointer;
    auto sequence = sequences.find(resolve(input));
    if (sequence != sequences.end()) {
      Value offset =
          arith::MulIOp::create(b, b.add(token, i), sequence->second.stride);
      pointer = b.atByte(sequence->second.data, offset);
    } else {
      pointer = b.at(bufferOf(input), i);
    }
    map.map(arg, b.load(arg.getType(), pointer));
  }
  for (Operation &op : body.front().without_terminator())
    b.clone(op, map);
}

void ChunkLowering::lowerMap(chunk::MapOp op) {
  SmallVector<Buffer> results;
  for (Value result : op.getResults())
    results.push_back(newBuffer(result));
  auto *yield = op.getBody().front().getTerminator();
  b.loop(b.i64(0), valid, 1, [&](Value i) {
    IRMapping map = perLayer;
    lowerRowRegion(op.getIns(), op.getBody(), i, map);
    unsigned next = 0;
    for (auto [buffer, rows] : llvm::zip(results, op.getPerToken()))
      for (int64_t slot = 0; slot < rows; ++slot) {
        Value row = map.lookupOrDefault(yield->getOperand(next++));
        b.store(row, b.at(buffer, b.add(b.mul(i, rows), slot)));
      }
  });
  // Rows past the end of the sequence change nothing.
  b.loop(valid, b.i64(chunk), 1, [&](Value i) {
    for (auto [buffer, rows, fill] :
         llvm::zip(results, op.getPerToken(), op.getFill()))
      for (int64_t slot = 0; slot < rows; ++slot) {
        Value row = b.at(buffer, b.add(b.mul(i, rows), slot));
        double value = fill;
        b.columns(buffer.cols, [&](Value c, int64_t lanes) {
          b.store(b.constant(value, lanes), b.at(row, c));
        });
      }
  });
}

void ChunkLowering::lowerOutput(OutputOp op) {
  for (auto [result, out] : llvm::zip(op.getResults(), op.getOuts()))
    sequences[result] = sequences.find(resolve(out))->second;
  auto *yield = op.getBody().front().getTerminator();
  b.loop(b.i64(0), valid, 1, [&](Value i) {
    IRMapping map = perLayer;
    lowerRowRegion(op.getIns(), op.getBody(), i, map);
    for (auto [value, out] : llvm::zip(yield->getOperands(), op.getResults())) {
      KernelBuilder::Rows &rows = sequences.find(out)->second;
      Value offset = arith::MulIOp::create(b, b.add(token, i), rows.stride);
      b.store(map.lookupOrDefault(value), b.atByte(rows.data, offset));
    }
  });
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

/// All scores of one y and one decay are made at once: they share its copy.
void ChunkLowering::lowerScores(ScoresOp op) {
  if (buffers.count(op.getResult()))
    return;
  SmallVector<ScoresOp> group;
  for (Operation *user : op.getY().getUsers()) {
    auto other = dyn_cast<ScoresOp>(user);
    if (!other || other.getY() != op.getY() ||
        other.getDecay() != op.getDecay() ||
        other.getYRows() != op.getYRows() ||
        other.getSteps() != op.getSteps() ||
        other->getBlock() != op->getBlock() ||
        !buffers.count(resolve(other.getX())) ||
        buffers.count(other.getResult()) || llvm::is_contained(group, other))
      continue;
    group.push_back(other);
  }
  llvm::sort(group,
             [&](ScoresOp x, ScoresOp y) { return position[x] < position[y]; });
  SmallVector<ScoresJob> jobs;
  for (ScoresOp each : group) {
    Buffer result = newBuffer(each.getResult());
    jobs.push_back({bufferOf(each.getX()), result, placesOf(each.getXRows())});
    note("scores", result.rows, result.cols, jobs.back().x.cols);
  }
  emitScores(b, jobs, bufferOf(op.getY()), placesOf(op.getYRows()),
             decayOf(op.getDecay()), chunk, op.getSteps());
}

void ChunkLowering::lowerRead(ReadOp op) {
  Buffer x = bufferOf(op.getX()), state = bufferOf(op.getState());
  Buffer result = newBuffer(op.getResult());
  Buffer scaled = x;
  if (const DecayTables *decay = decayOf(op.getDecay())) {
    scaled = b.allocate(x.rows, x.cols);
    emitDecayedRows(b, x, placesOf(op.getRows()), *decay, chunk, op.getSteps(),
                    scaled);
  }
  Matmul product{scaled.base, x.cols,     1,      state.base, state.cols,
                 result.base, state.cols, x.rows, state.cols, x.cols,
                 {},          {},         0,      false,      {}};
  emitMatmul(b, product);
  note("read", x.rows, state.cols, x.cols);
  if (scaled.offset != x.offset)
    b.release(scaled);
}

void ChunkLowering::lowerScale(ScaleOp op) {
  Buffer by = bufferOf(op.getBy()), rows = bufferOf(op.getRows());
  Buffer result = reuseOrNew(op.getResult(), op.getRows());
  b.loop(0, rows.rows, 1, [&](Value i) {
    Value factor = b.loadF32(b.at(by.base, i));
    Value from = b.at(rows, i), to = b.at(result, i);
    b.columns(rows.cols, [&](Value c, int64_t lanes) {
      b.store(b.times(b.splat(factor, lanes), b.loadVec(b.at(from, c), lanes)),
              b.at(to, c));
    });
  });
}

void ChunkLowering::lowerAdd(arith::AddFOp op) {
  Buffer lhs = bufferOf(op.getLhs()), rhs = bufferOf(op.getRhs());
  Buffer result = reuseOrNew(op.getResult(), op.getRhs());
  b.columns(lhs.rows * lhs.cols, [&](Value i, int64_t lanes) {
    Value x = b.loadVec(b.at(lhs.base, i), lanes);
    Value y = b.loadVec(b.at(rhs.base, i), lanes);
    b.store(arith::AddFOp::create(b, x, y), b.at(result.base, i));
  });
}

void ChunkLowering::lowerMatmul(MatmulOp op) {
  Buffer matrix = bufferOf(op.getMatrix()), rows = bufferOf(op.getRows());
  Buffer result;
  if (op.getOnto()) {
    Buffer onto = bufferOf(op.getOnto());
    result = reuseOrNew(op.getResult(), op.getOnto());
    if (result.offset != onto.offset)
      b.columns(onto.rows * onto.cols, [&](Value i, int64_t lanes) {
        b.store(b.loadVec(b.at(onto.base, i), lanes), b.at(result.base, i));
      });
  } else {
    result = newBuffer(op.getResult());
  }
  int64_t px = matrix.rows / chunk, py = matrix.cols / chunk;
  Matmul product{matrix.base, matrix.cols,        1,         rows.base,
                 rows.cols,   result.base,        rows.cols, matrix.rows,
                 rows.cols,   matrix.cols,        {},        {},
                 0,           bool(op.getOnto()), {}};
  // Rows see nothing beyond their own token.
  product.kEnd = [&](Value m0, int64_t mr) -> Value {
    Value last = b.add(m0, mr - 1);
    if (px != 1)
      last = arith::DivSIOp::create(b, last, b.i64(px));
    return b.mul(b.add(last, 1), py);
  };
  emitMatmul(b, product);
  note("matmul", matrix.rows, rows.cols, matrix.cols);
}

void ChunkLowering::lowerCarry(CarryOp op) {
  Buffer state = bufferOf(op.getState());
  buffers[op.getResult()] = state;
  const DecayTables *decay = decayOf(op.getDecay());
  std::function<Value(Value)> rowScale;
  if (decay)
    rowScale = [&](Value row) {
      Value last = b.at(decay->full, b.i64(decay->steps));
      return b.loadF32(decay->channel ? b.at(last, row) : last);
    };
  if (op.getKeys().empty() && decay) {
    b.loop(0, state.rows, 1, [&](Value row) {
      Value factor = rowScale(row), pointer = b.at(state, row);
      b.columns(state.cols, [&](Value c, int64_t lanes) {
        Value at = b.at(pointer, c);
        b.store(b.times(b.splat(factor, lanes), b.loadVec(at, lanes)), at);
      });
    });
  }
  for (auto [key, value, rows] :
       llvm::zip(op.getKeys(), op.getValues(), op.getKeyRows())) {
    Buffer k = bufferOf(key), u = bufferOf(value), toEnd = k;
    if (decay) {
      toEnd = b.allocate(k.rows, k.cols);
      emitRowsToEnd(b, k, placesOf(cast<ArrayAttr>(rows)), *decay, chunk,
                    op.getSteps(), toEnd);
    }
    Matmul product{toEnd.base, 1,          k.cols,     u.base,     u.cols,
                   state.base, state.cols, state.rows, state.cols, k.rows,
                   {},         {},         0,          true,       rowScale};
    emitMatmul(b, product);
    note("carry", state.rows, state.cols, k.rows);
    rowScale = {}; // the decay is applied once
    if (decay)
      b.release(toEnd);
  }
}

void ChunkLowering::lowerAppend(AppendOp op) {
  GrowingRows list = lists.lookup(resolve(op.getList()));
  lists[op.getResult()] = list;
  Buffer rows = bufferOf(op.getRows());
  Value first = arith::AddIOp::create(b, b.past(), token);
  b.loop(b.i64(0), b.appended(valid), 1, [&](Value i) {
    Value from = b.at(rows, i);
    Value to = list.at(b, arith::AddIOp::create(b, first, i));
    b.columns(rows.cols, [&](Value c, int64_t lanes) {
      b.store(b.loadVec(b.at(from, c), lanes), b.at(to, c));
    });
  });
}

void ChunkLowering::lowerAttend(AttendOp op) {
  AttendJob job;
  auto listOf = [&](Value list) { return lists.lookup(resolve(list)); };
  for (auto [query, keys] : llvm::zip(op.getQueries(), op.getKeys()))
    job.pairs.push_back({bufferOf(query), listOf(keys)});
  job.values = listOf(op.getValues());
  job.row = token;
  job.count = valid;
  job.own = op.getOwn();
  job.out = newBuffer(op.getResult());
  emitAttend(b, job);
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

void ChunkLowering::lowerOp(Operation &op) {
  b.setLoc(op.getLoc());
  TypeSwitch<Operation *>(&op)
      .Case<chunk::MapOp>([&](auto op) { lowerMap(op); })
      .Case<OutputOp>([&](auto op) { lowerOutput(op); })
      .Case<CumsumOp>([&](CumsumOp op) {
        bool scores =
            llvm::any_of(op.getResult().getUsers(), [](Operation *user) {
              return isa<ScoresOp, chunk::YieldOp>(user);
            });
        Buffer decay = bufferOf(op.getDecay());
        decays[op.getResult()] = emitDecayTables(
            b, decay, op.getDomain() == assoc::Domain::Log,
            decay.rows / chunk * subBlock(chunk), scores && decay.cols > 1);
      })
      .Case<ScoresOp>([&](auto op) { lowerScores(op); })
      .Case<InverseOp>([&](InverseOp op) {
        Buffer scale = op.getScale() ? bufferOf(op.getScale()) : Buffer();
        Buffer scores = bufferOf(op.getScores());
        emitInverse(b, scores, scale, newBuffer(op.getResult()));
      })
      .Case<ReadOp>([&](auto op) { lowerRead(op); })
      .Case<ScaleOp>([&](auto op) { lowerScale(op); })
      .Case<arith::AddFOp>([&](auto op) { lowerAdd(op); })
      .Case<MatmulOp>([&](auto op) { lowerMatmul(op); })
      .Case<CarryOp>([&](auto op) { lowerCarry(op); })
      .Case<AppendOp>([&](auto op) { lowerAppend(op); })
      .Case<AttendOp>([&](auto op) { lowerAttend(op); });
  releaseDead(&op);
}

/// The ops of a block with stages opened, in order.
void ChunkLowering::flatten(Block &block, SmallVectorImpl<Operation *> &ops) {
  for (Operation &op : block) {
    if (auto stage = dyn_cast<StageOp>(op)) {
      flatten(stage.getBody().front(), ops);
      Operation *yield = stage.getBody().front().getTerminator();
      for (auto [result, value] :
           llvm::zip(stage.getResults(), yield->getOperands()))
        aliases[result] = value;
    } else if (!op.hasTrait<OpTrait::IsTerminator>()) {
      ops.push_back(&op);
    }
  }
}

void ChunkLowering::lowerBlock(Block &block) {
  SmallVector<Operation *> ops;
  flatten(block, ops);
  for (auto [i, op] : llvm::enumerate(ops)) {
    position[op] = i + 1;
    op->walk([&, i = i](Operation *inner) {
      for (Value operand : inner->getOperands())
        lastUse[resolve(operand)] = i + 1;
    });
  }
  // The tables keep a linear decay's own memory as their factors.
  for (Operation *op : ops)
    if (auto cumsum = dyn_cast<CumsumOp>(op))
      if (cumsum.getDomain() == assoc::Domain::Linear)
        lastUse[resolve(cumsum.getDecay())] = 0;
  for (Operation *op : ops)
    lowerOp(*op);
}

void ChunkLowering::bindArguments() {
  unsigned params = 0, inputs = 0, outputs = 0, states = 0, growing = 0;
  for (BlockArgument arg : source.getArguments().drop_front()) {
    StringRef role =
        source.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kRoleAttr)
            .getValue();
    b.setLoc(arg.getLoc());
    if (role == "param") {
      perLayer.map(arg, b.load(arg.getType(), b.param(params++)));
    } else if (role == "input") {
      sequences[arg] = b.input(inputs++);
    } else if (role == "output") {
      sequences[arg] = b.output(outputs++);
    } else if (auto list = dyn_cast<assoc::ListType>(arg.getType())) {
      lists[arg] = {b.growing(growing++), list.getWidth()};
    } else {
      auto type = cast<RankedTensorType>(arg.getType());
      buffers[arg] = {b.state(states++), type.getDimSize(0), type.getDimSize(1),
                      -1};
    }
  }
}

void ChunkLowering::run() {
  bindArguments();
  scf::ForOp loop;
  for (Operation &op : source.getBody().front().without_terminator()) {
    if ((loop = dyn_cast<scf::ForOp>(op)))
      break;
    b.clone(op, perLayer);
  }
  for (auto [init, arg] :
       llvm::zip(loop.getInitArgs(), loop.getRegionIterArgs()))
    aliases[arg] = init;
  b.setLoc(loop.getLoc());
  b.loop(b.i64(0), b.tokens(), chunk, [&](Value t) {
    token = t;
    valid = b.minimum(b.i64(chunk), arith::SubIOp::create(b, b.tokens(), t));
    lowerBlock(*loop.getBody());
  });
  kernel->setAttr(kWorkspaceAttr, b.getI64IntegerAttr(b.workspaceBytes()));
  kernel->setAttr(kMatmulsAttr, b.getArrayAttr(matmuls));
  kernel->setAttr(kLayerAttr, source->getAttr(kLayerAttr));
  kernel->setAttr(kChunkAttr, source->getAttr(kChunkAttr));
}

} // namespace

func::FuncOp plum::cpu::lowerChunkFunction(func::FuncOp source,
                                           Machine machine) {
  func::FuncOp kernel =
      createKernel(source, ("plum_" + source.getName()).str());
  ChunkLowering(source, kernel, machine).run();
  return kernel;
}
