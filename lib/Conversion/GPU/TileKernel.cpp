//===- TileKernel.cpp - The frame of tile kernels ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where tiles lie in shared memory, where a CTA finds its work, and which
// threads do what.
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
