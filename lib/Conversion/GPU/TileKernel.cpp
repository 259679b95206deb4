//===- TileKernel.cpp - The frame of tile kernels ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a CTA finds its work, and how a scan is fed. A scan's team is followed
// by producer warps: on sm_90a the first issues, from one thread, the bulk
// copies of the blobs, the second copies rows of inputs; on sm_80 one warp
// copies everything. A ring has two barriers per stage: `full` completes when
// all parts have arrived, `empty` when every warp of the team has let go.
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"
#include "TileEmitter.h"

#include "plum/ABI/GpuABI.h"
#include "plum/Conversion/Passes.h"
#include "plum/Target/GpuChip.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

/// Of a multiprocessor: registers, and bytes of shared memory that it keeps for
/// itself with each block.
static constexpr int64_t kRegisters = 65536, kReservedBytes = 1024;

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

int64_t plum::gpu::planShared(tile::KernelOp kernel) {
  Block &body = kernel.getBody().front();
  DenseMap<Operation *, int64_t> order;
  SmallVector<int64_t> barriers;
  int64_t n = 0;
  for (Operation &op : body) {
    order[&op] = ++n;
    if (isa<tile::BarrierOp, tile::CumulateOp, tile::ArrivedOp,
            tile::SumTeamsOp>(op))
      barriers.push_back(n);
  }
  struct Life {
    tile::AllocOp op;
    int64_t begin, end, bytes, offset;
  };
  SmallVector<Life> lives;
  for (auto alloc : body.getOps<tile::AllocOp>()) {
    Life life{alloc, n, 0,
              (alloc.getTile().getType().bytes() + 1023) / 1024 * 1024, 0};
    SmallVector<Value> names{alloc.getTile()};
    while (!names.empty())
      for (Operation *user : names.pop_back_val().getUsers()) {
        Operation *top = body.findAncestorOpInBlock(*user);
        life.begin = std::min(life.begin, order[top]);
        // A bulk copy reads its tile until the kernel's end.
        life.end =
            std::max(life.end, isa<tile::ExportOp>(user) ? n : order[top]);
        if (auto reuse = dyn_cast<tile::ReuseOp>(user))
          names.push_back(reuse.getTile());
      }
    lives.push_back(life);
  }
  auto apart = [&](const Life &a, const Life &b) {
    const Life &first = a.end < b.begin ? a : b,
               &second = a.end < b.begin ? b : a;
    return first.end < second.begin &&
           llvm::any_of(
               barriers,
               [&](int64_t at) { return at > first.end && at < second.begin; });
  };
  int64_t total = 0;
  // Large tiles first; each at the lowest place where nobody lives.
  SmallVector<unsigned> bySize(lives.size());
  std::iota(bySize.begin(), bySize.end(), 0);
  llvm::sort(bySize, [&](unsigned a, unsigned b) {
    return std::pair(-lives[a].bytes, a) < std::pair(-lives[b].bytes, b);
  });
  SmallVector<unsigned> placed;
  for (unsigned i : bySize) {
    Life &life = lives[i];
    int64_t at = 0;
    bool moved = true;
    while (moved) {
      moved = false;
      for (unsigned j : placed)
        if (at < lives[j].offset + lives[j].bytes &&
            lives[j].offset < at + life.bytes && !apart(life, lives[j])) {
          at = lives[j].offset + lives[j].bytes;
          moved = true;
        }
    }
    life.offset = at;
    life.op.setOffset(at);
    placed.push_back(i);
    total = std::max(total, at + life.bytes);
  }
  return total;
}

//===----------------------------------------------------------------------===//
// Frame
//===----------------------------------------------------------------------===//

TileEmitter::TileEmitter(Ptx &p, tile::KernelOp kernel)
    : p(p), kernel(kernel), warps(kernel.getWarps()), teams(kernel.getTeams()),
      threads(warps * teams * 32), C(kernel.getChunk()),
      steps(kernel.getSteps()), scan(kernel.getRole() != "prepare"),
      wide(scan && p.chip.hopper() && warps % 4 == 0),
      summary(kernel.getRole() == "summary") {
  scratch.V = kernel.getSlice() * kernel.getSlices();
  scratch.diagonal = kernel.getDiagonal();
  kernel.walk([&](tile::LoadStateOp op) {
    auto type = cast<RankedTensorType>(op.getResult().getType());
    scratch.K = type.getShape().back();
    scratch.vectors += type.getRank() == 1;
  });
}

int64_t TileEmitter::slices() {
  const int64_t slices = kernel.getSlices(), slice = kernel.getSlice();
  return summary && !scratch.diagonal
             ? std::max(slices, (scratch.K + slice - 1) / slice)
             : slices;
}

void TileEmitter::teamBarrier() {
  p.fenceAsync(); // What was written may be copied out by the bulk engine.
  p.barrier(within ? p.i32(1 + *within) : p.i32(0), threads);
}

int64_t TileEmitter::stripCount(Value strip) {
  auto argument = cast<BlockArgument>(strip);
  return cast<tile::StripsOp>(argument.getOwner()->getParentOp()).getCount();
}

SharedTile TileEmitter::teamPart(const SharedTile &tile, Value strip) {
  if (teams == 1 || !strip)
    return tile;
  const int64_t columns = 16 * stripCount(strip);
  assert((!tile.type.swizzled() || columns % 64 == 0) &&
         "teams share a tile by panels");
  const int64_t bytes = tile.type.swizzled()
                            ? columns / 64 * tile.type.getRows() * 128
                            : columns * 4;
  return {p.at(tile.base, p.mul(team, bytes)), tile.type};
}

void TileEmitter::once(Value condition, function_ref<void()> body) {
  if (teams > 1 && !within)
    condition = p.both(condition, p.eq(team, p.i32(0)));
  p.ifThen(condition, body);
}

void TileEmitter::coordinatesPrepare(function_ref<void()> body) {
  Type i32 = p.getI32Type();
  Value id = p.ctaid(), heads = p.argument(ARG(heads), i32);
  head = p.remu(id, heads);
  Value chunk = p.divu(id, heads);
  const TokenPlace at = chunkAt(p, chunk, C);
  inputSequence = at.inputSequence;
  firstToken = at.firstToken;
  rows = at.rows;
  sequence = at.sequence;
  startsSequence = p.eq(at.begin, p.i32(0));
  Value blobs = p.argument(ARG(blobs), p.getI64Type());
  Value number = p.add(p.mul(p.toI64(chunk), p.toI64(heads)), p.toI64(head));
  blob = p.global(p.add(blobs, p.mul(number, p.i64(kernel.getBlob()))));
  slice = p.i32(0);
  // Rows of padding keep even those outputs that need no state.
  Value works = p.ge(slotOf(p, sequence), p.i32(0));
  p.ifThen(p.both(works, p.lt(p.i32(0), rows)), body);
}

void TileEmitter::coordinatesScan(function_ref<void()> body) {
  Type i32 = p.getI32Type();
  Value id = p.ctaid(), heads = p.argument(ARG(heads), i32);
  slice = p.remu(id, slices());
  Value pair = p.divu(id, slices());
  head = p.remu(pair, heads);
  Value rest = p.divu(pair, heads);
  Value sequences = p.argument(ARG(sequences), i32);
  sequence = p.remu(rest, sequences);
  Value part = p.divu(rest, sequences);
  Value cu = p.argument(ARG(cu_seqlens), p.getI64Type());
  Value packed = p.cmp(arith::CmpIPredicate::ne, cu, p.i64(0));
  Value tokens = p.argument(ARG(tokens), i32);
  Values where = p.ifElse(
      packed, {i32, i32, i32, i32},
      [&]() -> Values {
        Value start = sequenceStart(p, cu, sequence);
        Value stop = sequenceStart(p, cu, p.add(sequence, 1));
        Value offsets = p.argument(ARG(chunk_offsets), p.getI64Type());
        Value first =
            p.load(i32, p.global(p.add(offsets, p.shl(p.toI64(sequence), 2))));
        return {p.i32(0), start, p.sub(stop, start), first};
      },
      [&]() -> Values {
        Value chunks = p.argument(ARG(chunks), i32);
        return {sequence, p.i32(0), tokens, p.mul(sequence, chunks)};
      });
  inputSequence = where[0];
  firstToken = where[1];
  length = where[2];
  chunkCount = p.divu(p.add(length, C - 1), C);
  Value blobs = p.argument(ARG(blobs), p.getI64Type());
  Value number = p.add(p.mul(p.toI64(where[3]), p.toI64(heads)), p.toI64(head));
  blob = p.global(p.add(blobs, p.mul(number, p.i64(kernel.getBlob()))));
  blobStep = p.mul(p.toI64(heads), p.i64(kernel.getBlob()));
  coordinatesSegment(part);
  // The pool's slot, or a row that is padding and leaves everything alone.
  sequenceNumber = sequence;
  sequence = slotOf(p, sequence);
  Value works = p.ge(sequence, p.i32(0));
  if (scratch.diagonal && summary) // Nobody follows the identity.
    works = p.both(works,
                   p.lt(part, p.sub(p.argument(ARG(segments), i32), p.i32(1))));
  else if (summary) // M and B may have different numbers of slices.
    works = p.both(works, p.lt(p.mul(slice, kernel.getSlice()),
                               p.select(followsIdentity, p.i32(scratch.K),
                                        p.i32(scratch.V))));
  p.ifThen(works, body);
}

/// Cuts the sequence to one of its segments. Parts of a summary: B of all
/// segments but the last, then M of these but the first.
void TileEmitter::coordinatesSegment(Value part) {
  Value segments = p.argument(ARG(segments), p.getI32Type());
  Value last = p.sub(segments, p.i32(1));
  segment = part;
  valueSlice = slice;
  if (summary && scratch.diagonal) {
    followsIdentity = p.boolean(false);
  } else if (summary) {
    followsIdentity = p.ge(part, last);
    segment = p.select(followsIdentity, p.add(p.sub(part, last), 1), part);
    valueSlice = p.select(followsIdentity, p.i32(0), slice);
  } else {
    lastSegment = p.eq(part, last);
  }
  Value begin = p.divu(p.mul(segment, chunkCount), segments);
  firstChunk = begin;
  Value end = p.divu(p.mul(p.add(segment, 1), chunkCount), segments);
  Value firstRow = p.mul(begin, C);
  firstToken = p.add(firstToken, firstRow);
  length = p.sub(length, firstRow);
  chunkCount = p.sub(end, begin);
  blob = p.at(blob, p.mul(p.toI64(begin), blobStep));
  // A scan starts where the segment before ended; before the first lies the
  // initial state, with the last.
  Value before =
      p.sub(p.select(p.eq(segment, p.i32(0)), segments, segment), p.i32(1));
  segmentStart = scratch.address(p, sequence, head, summary ? segment : before);
}

KernelShape TileEmitter::emit() {
  Block &body = kernel.getBody().front();
  sharedBytes = planShared(kernel);
  planRings();
  planTriangles();
  tid = p.tid();
  lane = p.bitAnd(tid, 31);
  warp = p.shr(tid, 5);
  if (teams > 1) {
    team = p.divu(warp, warps);
    warp = p.sub(warp, p.mul(team, warps));
  }
  g = p.shr(lane, 2);
  t = p.bitAnd(lane, 3);
  KernelShape shape;
  shape.sharedBytes = sharedBytes;
  const bool roomForTwo = 2 * (sharedBytes + kReservedBytes) <=
                          gpuChipOf(p.chip.sm).sharedBytes + kReservedBytes;
  if (!scan) {
    coordinatesPrepare([&] {
      storeTriangles();
      emitBlock(body);
      if (exports) // A copy is waited for by the thread that issued it.
        p.ifThen(p.both(p.eq(warp, p.i32(0)), p.eq(lane, p.i32(0))),
                 [&] { p.bulkWaitRead(0); });
    });
    shape.threads = threads;
    // A second block hides the waits of the first: worth the registers that it
    // takes, where shared memory has room for both and each keeps 128.
    const int64_t half = kRegisters / (2 * threads);
    if (roomForTwo && half == 128)
      shape.registers = half;
    return shape;
  }
  // Registers of a thread at the launch; then those of the producers' warpgroup
  // go to the one or two of the team.
  struct {
    int64_t launch, team, producer;
  } shares{152, 256, 40};
  if (warps > 4)
    shares = {168, 240, 24};
  else if (scratch.K > 128) // An accumulator of 64 x 256 and its addresses.
    shares.launch = 168;
  coordinatesScan([&] {
    initBarriers();
    const int64_t producers = !p.chip.hopper() ? 1 : wide ? 4 : 2;
    shape.threads = threads + producers * 32;
    p.barrier(15, shape.threads);
    p.ifElse(
        p.ge(warp, p.i32(warps)), {},
        [&]() -> Values {
          if (wide)
            p.setMaxRegisters(false, shares.producer);
          produce();
          return {};
        },
        [&]() -> Values {
          if (wide)
            p.setMaxRegisters(true, shares.team);
          emitBlock(body);
          return {};
        });
  });
  if (wide)
    shape.registers = shares.launch;
  else if (!roomForTwo) // ptxas spills rather than use what nobody else wants.
    shape.registers = 255;
  return shape;
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

void TileEmitter::planRings() {
  for (auto op : kernel.getBody().front().getOps<tile::RingOp>()) {
    RingState ring;
    ring.op = op;
    int64_t at = 0;
    for (Attribute attr : op.getParts()) {
      auto part = cast<tile::PartAttr>(attr);
      ring.offsets.push_back(at);
      at += part.getType().bytes();
      if (part.getRows())
        ++ring.rows;
      else
        ring.blobs = true;
      if (!part.getRows())
        ring.blobBytes += part.getType().bytes();
    }
    ring.usedBytes = (at + 15) / 16 * 16;
    ring.stageBytes = (at + 1023) / 1024 * 1024;
    ring.base = sharedBytes;
    sharedBytes += ring.stageBytes * op.getStages();
    rings[op.getRing()] = ring;
    ringOrder.push_back(op.getRing());
  }
  // Barriers fit behind the parts of some stage, as a rule; then one number.
  int64_t bytes = scan && !summary ? 16 : 0, at = -1;
  for (Value name : ringOrder)
    bytes += 16 * rings[name].op.getStages();
  for (Value name : ringOrder) {
    RingState &ring = rings[name];
    if (ring.stageBytes - ring.usedBytes >= bytes)
      at = ring.base + ring.usedBytes;
  }
  if (at < 0) {
    at = sharedBytes;
    sharedBytes += bytes;
  }
  for (Value name : ringOrder) {
    rings[name].barriers = at;
    at += 16 * rings[name].op.getStages();
  }
  snapshotsPlace = at;
}

Value TileEmitter::stageBase(RingState &ring, Value index) {
  return p.at(p.shared(ring.base), p.mul(index, ring.stageBytes));
}
Value TileEmitter::fullBarrier(RingState &ring, Value index) {
  return p.at(p.shared(ring.barriers), p.shl(index, 3));
}
Value TileEmitter::emptyBarrier(RingState &ring, Value index) {
  return p.at(fullBarrier(ring, index), int64_t(ring.op.getStages()) * 8);
}
std::pair<Value, Value> TileEmitter::nextStage(RingState &ring, Value index,
                                               Value parity) {
  Value next = p.add(index, 1);
  Value wraps = p.eq(next, p.i32(ring.op.getStages()));
  return {p.select(wraps, p.i32(0), next),
          p.select(wraps, p.bitXor(parity, p.i32(1)), parity)};
}

void TileEmitter::initBarriers() {
  p.ifThen(p.eq(tid, p.i32(0)), [&] {
    for (Value name : ringOrder) {
      RingState &ring = rings[name];
      // Whoever fills: one thread that expects bytes, a warp that copies rows.
      int64_t arrivals = !p.chip.hopper()
                             ? 32
                             : (ring.blobs ? 1 : 0) +
                                   32 * std::min<int64_t>(ring.rows, copiers());
      for (int64_t s = 0; s < int64_t(ring.op.getStages()); ++s) {
        p.barrierInit(fullBarrier(ring, p.i32(s)), arrivals);
        p.barrierInit(emptyBarrier(ring, p.i32(s)), warps);
      }
    }
    p.fenceBarrierInit();
    if (!summary)
      p.store(snapshotsBefore(), p.shared(snapshotsPlace));
  });
}

void TileEmitter::produce() {
  if (!p.chip.hopper())
    return produceAll();
  p.ifThen(p.eq(warp, p.i32(warps)),
           [&] { p.ifThen(p.eq(lane, p.i32(0)), [&] { produceBlobs(); }); });
  for (int64_t w = 0; w < copiers(); ++w)
    if (llvm::any_of(ringOrder, [&](Value r) { return rings[r].rows > w; }))
      p.ifThen(p.eq(warp, p.i32(warps + 1 + w)), [&] { produceRows(w); });
}

/// State of a producer's loop: stage and parity of each ring it fills.
void TileEmitter::produceBlobs() {
  Values init{p.i64(0)};
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(1)});
  p.loop(p.i32(0), chunkCount, 1, init, [&](Value, ValueRange state) -> Values {
    Value from = p.at(blob, state[0]);
    Values next{p.add(state[0], blobStep)};
    for (auto [i, name] : llvm::enumerate(ringOrder)) {
      RingState &ring = rings[name];
      Value index = state[1 + 2 * i], parity = state[2 + 2 * i];
      if (ring.blobs) {
        p.wait(emptyBarrier(ring, index), parity);
        Value full = fullBarrier(ring, index), stage = stageBase(ring, index);
        p.arriveExpect(full, p.i32(ring.blobBytes));
        // Parts that lie side by side on both sides are one copy.
        int64_t run = -1, runFrom = 0, runTo = 0;
        Value runSlice;
        auto flush = [&] {
          if (run > 0) {
            Value source = p.at(from, runFrom);
            if (runSlice)
              source = p.at(source, p.toI64(runSlice));
            p.bulkLoad(p.at(stage, runTo), source, run, full);
          }
          run = -1;
          runSlice = Value();
        };
        for (auto [k, attr] : llvm::enumerate(ring.op.getParts())) {
          auto part = cast<tile::PartAttr>(attr);
          if (part.getRows()) {
            flush();
            continue;
          }
          int64_t bytes = part.getType().bytes();
          bool joins = run > 0 && !part.getSliced() && !runSlice &&
                       part.getBlob() == runFrom + run &&
                       ring.offsets[k] == runTo + run;
          if (joins) {
            run += bytes;
            continue;
          }
          flush();
          run = bytes;
          runFrom = part.getBlob();
          runTo = ring.offsets[k];
          if (part.getSliced())
            runSlice = p.mul(valueSlice, bytes);
        }
        flush();
      }
      auto [n, par] = nextStage(ring, index, parity);
      next.append({n, par});
    }
    return next;
  });
}

/// Warp `copier` of those that copy rows: every copiers()-th part of a ring.
void TileEmitter::produceRows(int64_t copier) {
  Values init;
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(1)});
  p.loop(p.i32(0), chunkCount, 1, init,
         [&](Value n, ValueRange state) -> Values {
           Values next;
           for (auto [i, name] : llvm::enumerate(ringOrder)) {
             RingState &ring = rings[name];
             Value index = state[2 * i], parity = state[2 * i + 1];
             if (ring.rows > copier) {
               p.wait(emptyBarrier(ring, index), parity);
               Value row0 = p.mul(n, C);
               int64_t number = 0;
               for (auto [k, attr] : llvm::enumerate(ring.op.getParts())) {
                 auto part = cast<tile::PartAttr>(attr);
                 if (!part.getRows() || number++ % copiers() != copier)
                   continue;
                 SharedTile to{p.at(stageBase(ring, index), ring.offsets[k]),
                               part.getType()};
                 copyRows(RowCopy{part.getRows(), to,
                                  part.getSliced()
                                      ? p.mul(valueSlice, kernel.getSlice() * 2)
                                      : Value()},
                          lane, 32, p.add(firstToken, row0),
                          p.sub(length, row0), /*rolled=*/true);
               }
               p.copyArrive(fullBarrier(ring, index));
             }
             auto [nx, par] = nextStage(ring, index, parity);
             next.append({nx, par});
           }
           return next;
         });
}

/// sm_80: one warp, 16 bytes a lane and turn.
void TileEmitter::produceAll() {
  Values init{p.i64(0)};
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(1)});
  p.loop(
      p.i32(0), chunkCount, 1, init, [&](Value n, ValueRange state) -> Values {
        Value from = p.at(blob, state[0]);
        Values next{p.add(state[0], blobStep)};
        Value mine = p.shl(lane, 4);
        for (auto [i, name] : llvm::enumerate(ringOrder)) {
          RingState &ring = rings[name];
          Value index = state[1 + 2 * i], parity = state[2 + 2 * i];
          p.wait(emptyBarrier(ring, index), parity);
          Value stage = stageBase(ring, index);
          Value row0 = p.mul(n, C);
          for (auto [k, attr] : llvm::enumerate(ring.op.getParts())) {
            auto part = cast<tile::PartAttr>(attr);
            SharedTile to{p.at(stage, ring.offsets[k]), part.getType()};
            if (part.getRows()) {
              copyRows(RowCopy{part.getRows(), to,
                               part.getSliced()
                                   ? p.mul(valueSlice, kernel.getSlice() * 2)
                                   : Value()},
                       lane, 32, p.add(firstToken, row0), p.sub(length, row0));
              continue;
            }
            const int64_t bytes = part.getType().bytes();
            Value source = p.at(from, part.getBlob());
            if (part.getSliced())
              source = p.at(source, p.toI64(p.mul(valueSlice, bytes)));
            auto copy = [&](Value offset) {
              p.copy16(p.at(to.base, offset), p.at(source, p.toI64(offset)),
                       p.i32(16));
            };
            const int64_t whole = bytes / 2048 * 2048;
            p.loop(p.i32(0), p.i32(whole), 2048, [&](Value at) {
              Value base = p.add(at, mine);
              for (int64_t u = 0; u < 4; ++u)
                copy(p.add(base, u * 512));
            });
            for (int64_t at = whole; at < bytes; at += 512)
              p.ifThen(p.lt(mine, p.i32(bytes - at)),
                       [&] { copy(p.add(mine, at)); });
          }
          p.copyArrive(fullBarrier(ring, index));
          auto [nx, par] = nextStage(ring, index, parity);
          next.append({nx, par});
        }
        return next;
      });
}

//===----------------------------------------------------------------------===//
// Structure
//===----------------------------------------------------------------------===//

void TileEmitter::emitBlock(Block &block) {
  for (Operation &op : block)
    emitOp(&op);
}

void TileEmitter::emitStrips(tile::StripsOp op) {
  Block &body = op.getBody().front();
  auto yield = cast<tile::YieldOp>(body.getTerminator());
  const size_t carried = op.getInit().size();
  SmallVector<Values> state, pieces(op.getNumResults() - carried);
  for (Value v : op.getInit())
    state.push_back(use(v));
  for (int64_t s = 0; s < int64_t(op.getCount()); ++s) {
    strips[body.getArgument(0)] = s;
    for (size_t i = 0; i < carried; ++i)
      set(body.getArgument(1 + i), state[i]);
    for (Operation &inner : body.without_terminator())
      emitOp(&inner);
    if (!triangles.empty())
      p.syncWarp();
    for (size_t i = 0; i < carried; ++i)
      state[i] = use(yield.getValues()[i]);
    for (size_t i = 0; i < pieces.size(); ++i)
      pieces[i].append(use(yield.getValues()[carried + i]));
  }
  for (size_t i = 0; i < carried; ++i)
    set(op.getResult(i), state[i]);
  for (size_t i = 0; i < pieces.size(); ++i)
    set(op.getResult(carried + i), pieces[i]);
}

void TileEmitter::emitChunks(tile::ChunksOp op) {
  Block &body = op.getBody().front();
  auto yield = cast<tile::YieldOp>(body.getTerminator());
  // Stage and parity of each ring, the previous stage, then the registers.
  Values init;
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(0), p.i32(0)});
  const size_t first = init.size();
  SmallVector<size_t> counts;
  for (Value v : op.getInit()) {
    Values &r = use(v);
    counts.push_back(r.size());
    init.append(r);
  }
  Values results = p.loop(
      p.i32(0), chunkCount, 1, init, [&](Value n, ValueRange state) -> Values {
        chunkIndex = n;
        rows = p.minimum(p.sub(length, p.mul(n, C)), p.i32(C));
        for (auto [i, name] : llvm::enumerate(ringOrder)) {
          RingState &ring = rings[name];
          ring.index = state[3 * i];
          ring.parity = state[3 * i + 1];
          ring.lastIndex = state[3 * i + 2];
        }
        size_t at = first;
        for (auto [arg, count] : llvm::zip(body.getArguments(), counts)) {
          set(arg, Values(state.slice(at, count)));
          at += count;
        }
        for (Operation &inner : body.without_terminator())
          emitOp(&inner);
        awaitAll();
        committed = 0;
        Values next;
        for (Value name : ringOrder) {
          RingState &ring = rings[name];
          auto [index, parity] = nextStage(ring, ring.index, ring.parity);
          next.append({index, parity, ring.index});
        }
        for (Value v : yield.getValues())
          next.append(use(v));
        // What a tile.store_state takes at the end, at the end of this turn.
        for (auto [result, value] :
             llvm::zip(op.getResults(), yield.getValues()))
          for (Operation *user : result.getUsers())
            if (auto store = dyn_cast<tile::StoreStateOp>(user);
                store && !summary)
              storeSnapshot(store.getName(), use(value),
                            cast<RankedTensorType>(value.getType()).getRank() ==
                                1);
        return next;
      });
  for (auto [i, name] : llvm::enumerate(ringOrder))
    rings[name].lastIndex = results[3 * i + 2];
  size_t at = first;
  for (auto [result, count] : llvm::zip(op.getResults(), counts)) {
    set(result, Values(ArrayRef(results).slice(at, count)));
    at += count;
  }
  chunkIndex = chunkCount; // What is left belongs to the chunk before the end.
}

/// Elementwise maths, register by register; the same operands give the same
/// register, so a broadcast row costs what a row costs.
void TileEmitter::elementwise(Operation *op) {
  Value result = op->getResult(0);
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto type = dyn_cast<RankedTensorType>(result.getType());
    if (!type)
      return set(
          result,
          {p.f32(cast<FloatAttr>(constant.getValue()).getValueAsDouble())});
    auto splat = cast<DenseElementsAttr>(constant.getValue());
    double number = splat.getSplatValue<APFloat>().convertToDouble();
    assert((type.getElementType().isF32() || number == 0) &&
           "a bf16 constant is 0");
    Value v = type.getElementType().isF32() ? p.f32(number) : p.i32(0);
    return set(result, Values(registerCount(type, threads), v));
  }
  if (isa<arith::TruncFOp>(op)) {
    Values &v = use(op->getOperand(0));
    Values out;
    for (size_t i = 0; i < v.size(); i += 2)
      out.push_back(p.pack(v[i], v[i + 1]));
    return set(result, out);
  }
  if (isa<arith::ExtFOp>(op)) {
    Values out;
    for (Value pair : use(op->getOperand(0)))
      out.append({p.low(pair), p.high(pair)});
    return set(result, out);
  }
  SmallVector<Values> operands;
  for (Value v : op->getOperands())
    operands.push_back(use(v));
  Values out;
  for (size_t i = 0; i < operands[0].size(); ++i) {
    Values scalars;
    for (Values &v : operands)
      scalars.push_back(v[i]);
    Value known;
    for (size_t j = i; j-- > 0 && !known && i - j <= 4;)
      if (llvm::all_of(operands, [&](Values &v) { return v[j] == v[i]; }))
        known = out[j];
    if (!known)
      known = isa<math::Exp2Op>(op)   ? p.ex2(scalars[0])
              : isa<math::Log2Op>(op) ? p.lg2(scalars[0])
                                      : emitScalar(p, op, scalars, Exp::Fast);
    out.push_back(known);
  }
  set(result, out);
}

void TileEmitter::emitOp(Operation *op) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](tile::AllocOp o) {
        tiles[o.getTile()] = {p.shared(*o.getOffset()), o.getTile().getType()};
      })
      .Case([&](tile::ReuseOp o) {
        tiles[o.getTile()] = {
            p.at(tiles.find(o.getFrom())->second.base, int64_t(o.getOffset())),
            o.getTile().getType()};
      })
      .Case([&](tile::RingOp) {})
      .Case([&](tile::AcquireOp o) {
        RingState &ring = rings[o.getRing()];
        p.wait(fullBarrier(ring, ring.index), ring.parity);
        Value stage = stageBase(ring, ring.index);
        for (auto [i, part] : llvm::enumerate(o.getParts()))
          tiles[part] = {p.at(stage, ring.offsets[i]),
                         cast<tile::SharedType>(part.getType())};
      })
      .Case([&](tile::PreviousOp o) {
        RingState &ring = rings[o.getRing()];
        Value stage = stageBase(ring, ring.lastIndex);
        for (auto [i, part] : llvm::enumerate(o.getParts()))
          tiles[part] = {p.at(stage, ring.offsets[i]),
                         cast<tile::SharedType>(part.getType())};
      })
      .Case([&](tile::ReleaseOp o) {
        RingState &ring = rings[o.getRing()];
        Value first = p.eq(lane, p.i32(0));
        if (o.getPrevious()) {
          first = p.both(first, p.lt(p.i32(0), chunkIndex));
        } else {
          awaitAll();
        }
        p.syncWarp();
        p.ifThen(first, [&] {
          p.arrive(emptyBarrier(ring,
                                o.getPrevious() ? ring.lastIndex : ring.index));
        });
      })
      .Case([&](tile::BarrierOp) { teamBarrier(); })
      .Case([&](tile::ArrivedOp) {
        p.copyCommit();
        askForNumbers();
        p.copyWait(0);
        p.barrier(0, threads);
      })
      .Case([&](tile::StripsOp o) { emitStrips(o); })
      .Case([&](tile::ChunksOp o) { emitChunks(o); })
      .Case([&](tile::TeamOp o) {
        const int64_t number = o.getNumber();
        p.ifThen(p.eq(team ? team : p.i32(0), p.i32(number)), [&] {
          auto all = std::pair(tid, threads);
          within = number;
          threads = warps * 32;
          tid = p.sub(tid, p.i32(number * threads));
          emitBlock(o.getBody().front());
          std::tie(tid, threads) = all;
          within.reset();
        });
      })
      .Case([&](tile::TailOp o) {
        p.ifThen(p.lt(p.i32(0), chunkCount), [&] {
          emitBlock(o.getBody().front());
          awaitAll();
        });
      })
      .Case([&](tile::LoadOp o) { load(o); })
      .Case([&](tile::StoreOp o) { store(o); })
      .Case([&](tile::StashOp o) { stash(o); })
      .Case([&](tile::UnstashOp o) { unstash(o); })
      .Case([&](tile::ElementOp o) { element(o); })
      .Case([&](tile::ParamOp o) { param(o); })
      .Case([&](tile::ColumnOp o) { column(o); })
      .Case([&](tile::StepOp o) { step(o); })
      .Case([&](tile::ValidOp o) { valid(o); })
      .Case([&](tile::FetchOp o) { fetch(o); })
      .Case([&](tile::ExportOp o) { exportTile(o); })
      .Case([&](tile::ExportVectorOp o) { exportVector(o); })
      .Case([&](tile::ExportMatrixOp o) { exportMatrix(o); })
      .Case([&](tile::ExportRowsOp o) { exportRows(o); })
      .Case([&](tile::WriteRowsOp o) { writeRows(o); })
      .Case([&](tile::ValuesOp o) { values(o); })
      .Case([&](tile::LoadStateOp o) { loadState(o); })
      .Case([&](tile::StoreStateOp o) { storeState(o); })
      .Case([&](tile::StoreDecayOp o) { storeDecay(o); })
      .Case([&](tile::KeepStateOp o) { keepState(o); })
      .Case([&](tile::StripOp o) {
        Values &v = use(o.getValue());
        int64_t n =
            v.size() * 16 /
            cast<RankedTensorType>(o.getValue().getType()).getDimSize(1);
        set(o.getResult(),
            Values(ArrayRef(v).slice(constantIndex(o.getStrip()) * n, n)));
      })
      .Case([&](tile::BroadcastOp o) { broadcast(o); })
      .Case([&](tile::ReduceOp o) { reduce(o); })
      .Case([&](tile::ReduceRowsOp o) { reduceRows(o); })
      .Case([&](tile::DiagonalOp o) { diagonal(o); })
      .Case([&](tile::ColumnSumsOp o) { columnSums(o); })
      .Case([&](tile::RowDotsOp o) { rowDots(o); })
      .Case([&](tile::SumTeamsOp o) { sumTeams(o); })
      .Case([&](tile::CumsumOp o) { cumsum(o); })
      .Case([&](tile::BlockSumOp o) { blockSum(o); })
      .Case([&](tile::CumulateOp o) { cumulate(o); })
      .Case([&](tile::DotOp o) { dot(o); })
      .Case([&](tile::DotDiagOp o) { dotDiag(o); })
      .Case([&](tile::DotBlocksOp o) { dotBlocks(o); })
      .Case([&](tile::PlaceDiagOp o) { placeDiag(o); })
      .Case([&](tile::MaskOp o) { mask(o); })
      .Case([&](tile::JoinHalvesOp o) { joinHalves(o); })
      .Case([&](tile::InverseOp o) { inverse(o); })
      .Default([&](Operation *o) { elementwise(o); });
}
