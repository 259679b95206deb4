//===- TileStates.cpp - Where states come from and go to --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A matrix is cut in slices: a team reads its own at the start and writes it at
// the end, so final states may lie where initial ones did. A vector state is
// read by every slice's team and written by one; what the others read is
// therefore a copy, which `prepare` (or, of segments, `summary`) made.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

#include "plum/ABI/GpuABI.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using tile::LayoutKind;

#define FIELD(NAME) int64_t(offsetof(plum_gpu_tensor, NAME))

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

/// Runs body(address, register) for the elements of S^T [V slice, K].
static void forState(Ptx &p, int64_t count, Value base, Value rowStride,
                     Value columnStride, Value firstColumn, Value firstRow,
                     function_ref<void(Value, int64_t)> body) {
  Value at = p.add(base, p.add(p.mul(p.toI64(firstColumn), columnStride),
                               p.mul(p.toI64(firstRow), rowStride)));
  Value eight = p.shl(columnStride, 3);
  Value step = p.shl(rowStride, 3);
  for (int64_t j = 0; j < count / 4; ++j) {
    Value next = p.add(at, rowStride);
    body(at, 4 * j);
    body(next, 4 * j + 1);
    body(p.add(at, eight), 4 * j + 2);
    body(p.add(next, eight), 4 * j + 3);
    at = p.add(at, step);
  }
}

/// Runs body(address, register) for pairs of rows of S^T [V, K], f32, at
/// `base`; registers 0 and 2 of a quad are in columns g and g + 8.
static void forSegment(Ptx &p, int64_t count, int64_t K, Value base,
                       Value column, Value t,
                       function_ref<void(Value, int64_t)> body) {
  Value at =
      p.global(p.add(base, p.toI64(p.add(p.mul(column, K * 4), p.shl(t, 3)))));
  for (int64_t i = 0; i < count; i += 2)
    body(p.at(at, i / 4 * 32 + i % 4 / 2 * 8 * K * 4), i);
}

Value TileEmitter::stateAddress(StringRef name, Value slot) {
  Value base = p.add(field64(name, FIELD(data)),
                     p.mul(p.toI64(slot), field64(name, FIELD(sequence))));
  return p.add(base, p.mul(p.toI64(head), field64(name, FIELD(head))));
}

void TileEmitter::loadState(tile::LoadStateOp op) {
  if (tensorOf(op.getResult()).getRank() == 1)
    return loadVectorState(op);
  const int64_t count = registerCount(tensorOf(op.getResult()), threads);
  SmallVector<Type> types(count, p.getF32Type());
  Value column =
      p.add(p.mul(slice, kernel.getSlice()), p.add(p.shl(warp, 4), g));
  Value segments =
      p.argument(int64_t(offsetof(plum_gpu_args, segments)), p.getI32Type());
  // Where sequences are split, the last segment's scan may overwrite the
  // initial state before the first has read it: the summary keeps a copy.
  Value elsewhere =
      summary ? p.lt(p.i32(0), segment) : p.lt(p.i32(1), segments);
  set(op.getResult(),
      p.ifElse(
          elsewhere, types,
          [&] {
            Values out(count);
            if (summary) {
              // Rows of the identity, or zeros.
              Value one = p.select(followsIdentity, p.f32(1), p.f32(0));
              for (int64_t i = 0; i < count; ++i) {
                Value k = p.add(p.shl(t, 1), i / 4 * 8 + i % 2);
                Value on = p.eq(k, p.add(column, i % 4 / 2 * 8));
                out[i] = p.select(on, one, p.f32(0));
              }
              return out;
            }
            forSegment(p, count, scratch.K,
                       p.add(segmentStart, scratch.matrixBytes()), column, t,
                       [&](Value at, int64_t i) {
                         Value pair = p.load(p.vec(p.getF32Type(), 2), at);
                         out[i] = p.element(pair, 0);
                         out[i + 1] = p.element(pair, 1);
                       });
            return out;
          },
          [&] {
            Values out = loadInitial(op, count);
            if (summary) {
              Value last = p.mul(p.toI64(p.sub(segments, p.i32(1))),
                                 p.i64(scratch.bytes()));
              forSegment(
                  p, count, scratch.K,
                  p.add(p.add(segmentStart, last), scratch.matrixBytes()),
                  column, t, [&](Value at, int64_t i) {
                    p.store(p.vector({out[i], out[i + 1]}), at);
                  });
            }
            return out;
          }));
}

Values TileEmitter::loadInitial(tile::LoadStateOp op, int64_t count) {
  StringRef name = op.getName();
  Value data = field64(name, FIELD(data));
  SmallVector<Type> types(count, p.getF32Type());
  Value column =
      p.add(p.mul(slice, kernel.getSlice()), p.add(p.shl(warp, 4), g));
  Value base = stateAddress(name, sequence);
  auto loads = [&](bool half) -> Values {
    Values out(count);
    forState(p, count, base, field64(name, FIELD(row)),
             field64(name, FIELD(column)), column, p.shl(t, 1),
             [&](Value at, int64_t i) {
               out[i] = half ? p.loadHalf(p.global(at), true)
                             : p.load(p.getF32Type(), p.global(at));
             });
    return out;
  };
  return p.ifElse(
      p.cmp(arith::CmpIPredicate::ne, data, p.i64(0)), types,
      [&] {
        return p.ifElse(
            p.eq(field32(name, FIELD(dtype)), p.i32(PLUM_GPU_F32)), types,
            [&] { return loads(false); }, [&] { return loads(true); });
      },
      [&] { return Values(count, p.f32(0)); });
}

void TileEmitter::storeState(tile::StoreStateOp op) {
  if (tensorOf(op.getValue()).getRank() == 1)
    return storeVectorState(op);
  Values v = use(op.getValue());
  std::string name = (op.getName() + ".final").str();
  Value data = field64(name, FIELD(data));
  Value column =
      p.add(p.mul(slice, kernel.getSlice()), p.add(p.shl(warp, 4), g));
  if (summary) {
    Value end = p.select(followsIdentity, p.i32(scratch.K), p.i32(scratch.V));
    p.ifThen(p.lt(column, end), [&] {
      Value skip =
          p.select(followsIdentity, p.i32(0), p.i32(scratch.matrixBytes()));
      forSegment(p, v.size(), scratch.K, p.add(segmentStart, p.toI64(skip)),
                 column, t, [&](Value at, int64_t i) {
                   p.store(p.vector({v[i], v[i + 1]}), at);
                 });
    });
    return;
  }
  Value wanted = p.cmp(arith::CmpIPredicate::ne, data, p.i64(0));
  p.ifThen(p.both(lastSegment, wanted), [&] {
    Value base = stateAddress(name, sequence);
    writeMatrix(name, base, v);
  });
}

void TileEmitter::writeMatrix(StringRef name, Value base, ArrayRef<Value> v) {
  Value column =
      p.add(p.mul(slice, kernel.getSlice()), p.add(p.shl(warp, 4), g));
  auto stores = [&](bool half) -> Values {
    forState(p, v.size(), base, field64(name, FIELD(row)),
             field64(name, FIELD(column)), column, p.shl(t, 1),
             [&](Value at, int64_t i) {
               if (half)
                 p.storeHalf(v[i], p.global(at), true);
               else
                 p.store(v[i], p.global(at));
             });
    return {};
  };
  p.ifElse(
      p.eq(field32(name, FIELD(dtype)), p.i32(PLUM_GPU_F32)), {},
      [&] { return stores(false); }, [&] { return stores(true); });
}

/// Those of the packed sequences before this one, if the run wants any.
Value TileEmitter::snapshotsBefore() {
  Type i32 = p.getI32Type(), i64 = p.getI64Type();
  Value cu = p.argument(int64_t(offsetof(plum_gpu_args, cu_seqlens)), i64);
  Value every =
      p.argument(int64_t(offsetof(plum_gpu_args, snapshot_every)), i32);
  Value packed = p.cmp(arith::CmpIPredicate::ne, cu, p.i64(0));
  return p.ifElse(
      p.both(packed, p.lt(p.i32(0), every)), i32,
      [&]() -> Values {
        Value offsets =
            p.argument(int64_t(offsetof(plum_gpu_args, chunk_offsets)), i64);
        Value count =
            p.argument(int64_t(offsetof(plum_gpu_args, sequences)), i32);
        Value i = p.add(p.add(count, 1), sequenceNumber);
        return {p.load(i32, p.global(p.add(offsets, p.shl(p.toI64(i), 2))))};
      },
      [&]() -> Values { return {p.i32(0)}; })[0];
}

void TileEmitter::storeSnapshot(StringRef state, ArrayRef<Value> v,
                                bool vector) {
  std::string name = (state + ".snapshot").str();
  if (!kernel.elementOf(name))
    return;
  Value every = p.argument(int64_t(offsetof(plum_gpu_args, snapshot_every)),
                           p.getI32Type());
  Value given =
      p.cmp(arith::CmpIPredicate::ne, field64(name, FIELD(data)), p.i64(0));
  Value wanted =
      p.both(p.both(p.lt(p.i32(0), every), given), p.eq(rows, p.i32(C)));
  p.ifThen(wanted, [&] {
    Value done = p.add(p.add(firstChunk, chunkIndex), 1);
    Value number = p.divu(done, every);
    p.ifThen(p.eq(p.mul(number, every), done), [&] {
      // By the sequence's number: only states before and after have slots.
      Value base = stateAddress(name, inputSequence);
      Value before = p.load(p.getI32Type(), p.shared(snapshotsPlace));
      Value place = p.add(before, p.sub(number, p.i32(1)));
      base = p.add(base, p.mul(p.toI64(place), field64(name, FIELD(token))));
      if (vector)
        writeVector(name, base, v);
      else
        writeMatrix(name, base, v);
    });
  });
}

//===----------------------------------------------------------------------===//
// Vector states
//===----------------------------------------------------------------------===//

Value TileEmitter::loadStateElement(StringRef name, Value base, Value index) {
  Type f32 = p.getF32Type();
  Value at =
      p.global(p.add(base, p.mul(p.toI64(index), field64(name, FIELD(row)))));
  Value data = field64(name, FIELD(data));
  return p.ifElse(
      p.cmp(arith::CmpIPredicate::ne, data, p.i64(0)), f32,
      [&] {
        return p.ifElse(
            p.eq(field32(name, FIELD(dtype)), p.i32(PLUM_GPU_F32)), f32,
            [&]() -> Values { return {p.load(f32, at)}; },
            [&]() -> Values { return {p.loadHalf(at, true)}; });
      },
      [&]() -> Values { return {p.f32(0)}; })[0];
}

void TileEmitter::keepState(tile::KeepStateOp op) {
  const int64_t columns = op.getColumns();
  Value slot = slotOf(p, sequence);
  Value to = p.at(blob, op.getBlob());
  p.ifThen(p.both(startsSequence, p.ge(slot, p.i32(0))), [&] {
    Value base = stateAddress(op.getName(), slot);
    for (int64_t i = 0; i < columns; i += threads) {
      Value index = p.add(tid, i);
      p.ifThen(p.lt(index, p.i32(columns)), [&] {
        p.store(loadStateElement(op.getName(), base, index),
                p.at(to, p.toI64(p.shl(index, 2))));
      });
    }
  });
}

void TileEmitter::loadVectorState(tile::LoadStateOp op) {
  const int64_t count = registerCount(tensorOf(op.getResult()), threads);
  SmallVector<Type> types(count, p.getF32Type());
  StringRef name = op.getName();
  Value segments =
      p.argument(int64_t(offsetof(plum_gpu_args, segments)), p.getI32Type());
  // Threads beyond the vector read its last element; of the initial state none:
  // where there are no chunks, another warp may already write it as the final.
  auto place = [&](int64_t i) {
    return p.minimum(elementIndex(LayoutKind::Linear, i), p.i32(scratch.K - 1));
  };
  auto initial = [&] {
    Values out;
    Value base = stateAddress(name, sequence);
    for (int64_t i = 0; i < count; ++i) {
      Value index = elementIndex(LayoutKind::Linear, i);
      out.push_back(p.ifElse(
          p.lt(index, p.i32(scratch.K)), p.getF32Type(),
          [&]() -> Values { return {loadStateElement(name, base, index)}; },
          [&]() -> Values { return {p.f32(0)}; })[0]);
    }
    return out;
  };
  auto zeros = [&] { return Values(count, p.f32(0)); };
  /// Numbers side by side.
  auto row = [&](Value from) {
    Values out;
    for (int64_t i = 0; i < count; ++i)
      out.push_back(p.load(p.getF32Type(), p.at(from, p.shl(place(i), 2))));
    return out;
  };
  if (summary) {
    set(op.getResult(), p.ifElse(p.lt(p.i32(0), segment), types, zeros, [&] {
      Values out = initial();
      Value last =
          p.mul(p.toI64(p.sub(segments, p.i32(1))), p.i64(scratch.bytes()));
      storeRow(out, vectorRow(p.add(segmentStart, last)));
      return out;
    }));
    return;
  }
  // See tile.keep_state. Without a chunk there is no copy, and only the team
  // that writes the state needs it.
  set(op.getResult(),
      p.ifElse(
          p.lt(p.i32(1), segments), types,
          [&] { return row(p.global(vectorRow(segmentStart))); },
          [&] {
            return p.ifElse(
                p.lt(p.i32(0), chunkCount), types,
                [&] { return row(p.at(blob, *op.getKept())); },
                [&] {
                  return p.ifElse(p.eq(slice, p.i32(0)), types, initial, zeros);
                });
          }));
}

/// Runs body(index, register) for the elements that this thread writes.
void TileEmitter::forVector(ArrayRef<Value> v,
                            function_ref<void(Value, Value)> body) {
  p.ifThen(p.eq(slice, p.i32(0)), [&] {
    for (auto [i, value] : llvm::enumerate(v)) {
      Value index = elementIndex(LayoutKind::Linear, i);
      p.ifThen(p.lt(index, p.i32(scratch.K)),
               [&, value = value] { body(index, value); });
    }
  });
}

void TileEmitter::storeRow(ArrayRef<Value> v, Value address) {
  forVector(v, [&](Value index, Value value) {
    p.store(value, p.global(p.add(address, p.toI64(p.shl(index, 2)))));
  });
}

void TileEmitter::storeDecay(tile::StoreDecayOp op) {
  storeRow(use(op.getValue()), segmentStart);
}

void TileEmitter::writeVector(StringRef name, Value base, ArrayRef<Value> v) {
  Value stride = field64(name, FIELD(row));
  auto stores = [&](bool half) -> Values {
    forVector(v, [&](Value index, Value value) {
      Value at = p.global(p.add(base, p.mul(p.toI64(index), stride)));
      if (half)
        p.storeHalf(value, at, true);
      else
        p.store(value, at);
    });
    return {};
  };
  p.ifElse(
      p.eq(field32(name, FIELD(dtype)), p.i32(PLUM_GPU_F32)), {},
      [&] { return stores(false); }, [&] { return stores(true); });
}

void TileEmitter::storeVectorState(tile::StoreStateOp op) {
  Values v = use(op.getValue());
  if (summary)
    return storeRow(v, vectorRow(segmentStart));
  std::string name = (op.getName() + ".final").str();
  Value wanted =
      p.cmp(arith::CmpIPredicate::ne, field64(name, FIELD(data)), p.i64(0));
  p.ifThen(p.both(lastSegment, wanted), [&] {
    Value base = stateAddress(name, sequence);
    writeVector(name, base, v);
  });
}
