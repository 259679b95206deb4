//===- Access.cpp - Loads, stores and fragments -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A fragment of 8x8 halves: lane l holds row l / 4, columns 2 (l % 4) and one
// more. With g = l / 4 and t = l % 4, m16n8k16 has
//
//   A  a0 (g, 2t)  a1 (g + 8, 2t)  a2 (g, 2t + 8)  a3 (g + 8, 2t + 8)
//   B  b0 (k = 2t, n = g)          b1 (k = 2t + 8, n = g)
//   C  c0, c1 (g, 2t), (g, 2t + 1) c2, c3 (g + 8, ...)
//
//===----------------------------------------------------------------------===//

#include "Cta.h"
#include "Floats.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

constexpr uint32_t kMostBytes = 64; ///< Of an access: a vector of 8 i64.

static std::string sized(uint32_t bytes, StringRef what) {
  return std::to_string(bytes) + "-byte " + what.str();
}

Step Cta::misaligned(Warp &warp, int lane, StringRef what, StringRef where,
                     uint32_t alignment) {
  return fail(warp, lane,
              what + " at " + where + ", which is not a multiple of " +
                  Twine(alignment));
}

Step Cta::badShared(Warp &warp, int lane, StringRef what, uint32_t address) {
  return fail(warp, lane,
              what + " at " + Shared::describe(address) + ", " +
                  shared.problem());
}

const uint8_t *Cta::globalSource(Warp &warp, int lane, const char *what,
                                 uint64_t address, uint32_t bytes) {
  const uint8_t *from = memory.source(address, bytes);
  bool good = !from || !options.checkGlobalRaces ||
              global.load(index, actor(warp), address, bytes);
  if (from && good)
    return from;
  fail(warp, lane,
       sized(bytes, what) + " at " + memory.describe(address) + ", " +
           (from ? global.problem() : memory.problem()));
  return nullptr;
}

uint8_t *Cta::globalTarget(Warp &warp, int lane, const char *what,
                           uint64_t address, uint32_t bytes) {
  uint8_t *to = memory.destination(address, bytes);
  bool good = !to || !options.checkGlobalRaces ||
              global.store(index, actor(warp), address, bytes);
  if (to && good)
    return to;
  fail(warp, lane,
       sized(bytes, what) + " at " + memory.describe(address) + ", " +
           (to ? global.problem() : memory.problem()));
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Loads and stores
//===----------------------------------------------------------------------===//

/// Takes the elements of a vector apart.
static void unpack(Warp &warp, const Program &program, const Inst &inst,
                   uint32_t lane, const uint8_t *from) {
  const Slot *slots = &program.lists[inst.dst];
  for (uint32_t k = 0; k < inst.count; ++k, from += inst.flags) {
    if (inst.flags == 8) {
      std::memcpy(&warp.u64(slots[k])[lane], from, 8);
      continue;
    }
    uint32_t value = 0;
    std::memcpy(&value, from, inst.flags);
    warp.u32(slots[k])[lane] = value;
  }
}

static void pack(Warp &warp, const Program &program, const Inst &inst,
                 uint32_t lane, uint8_t *to) {
  const Slot *slots = &program.lists[inst.b];
  for (uint32_t k = 0; k < inst.count; ++k, to += inst.flags) {
    if (inst.flags == 8)
      std::memcpy(to, &warp.u64(slots[k])[lane], 8);
    else
      std::memcpy(to, &warp.u32(slots[k])[lane], inst.flags);
  }
}

Step Cta::loadArgument(Warp &warp, const Inst &inst) {
  uint32_t bytes = inst.count * inst.flags;
  Step step = Step::Next;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint64_t offset = warp.u64(inst.a)[lane] + inst.imm - kArgumentBase;
    if (offset > arguments.size() || bytes > arguments.size() - offset)
      step = fail(warp, lane,
                  Twine(bytes) + "-byte load of an argument at " +
                      Twine(int64_t(offset)) + ", outside the " +
                      Twine(arguments.size()) + " bytes of arguments");
    else if (offset % bytes)
      step = misaligned(warp, lane, sized(bytes, "load of an argument"),
                        std::to_string(offset), bytes);
    else
      unpack(warp, program, inst, lane, arguments.data() + offset);
    return step == Step::Next;
  });
  return step;
}

Step Cta::loadGlobal(Warp &warp, const Inst &inst) {
  uint32_t bytes = inst.count * inst.flags;
  Step step = Step::Next;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint64_t address = warp.u64(inst.a)[lane] + uint64_t(inst.imm);
    if (address % bytes)
      step = misaligned(warp, lane, sized(bytes, "global load"),
                        memory.describe(address), bytes);
    else if (const uint8_t *from =
                 globalSource(warp, lane, "global load", address, bytes))
      unpack(warp, program, inst, lane, from);
    else
      step = Step::Fail;
    return step == Step::Next;
  });
  return step;
}

Step Cta::storeGlobal(Warp &warp, const Inst &inst) {
  uint32_t bytes = inst.count * inst.flags;
  Step step = Step::Next;
  uint8_t values[kLanes][kMostBytes];
  uint8_t *targets[kLanes];
  forLanes(warp.mask, [&](uint32_t lane) {
    uint64_t address = warp.u64(inst.a)[lane] + uint64_t(inst.imm);
    if (address % bytes) {
      step = misaligned(warp, lane, sized(bytes, "global store"),
                        memory.describe(address), bytes);
    } else if (uint8_t *to =
                   globalTarget(warp, lane, "global store", address, bytes)) {
      pack(warp, program, inst, lane, values[lane]);
      std::memcpy(to, values[lane], bytes);
      targets[lane] = to;
    } else {
      step = Step::Fail;
    }
    return step == Step::Next;
  });
  if (step != Step::Next)
    return step;
  forLanes(warp.mask, [&](uint32_t lane) {
    if (std::memcmp(targets[lane], values[lane], bytes))
      step = fail(
          warp, lane,
          sized(bytes, "global store") + " at " +
              memory.describe(warp.u64(inst.a)[lane] + uint64_t(inst.imm)) +
              ", where another lane stores another value in the same "
              "instruction");
    return step == Step::Next;
  });
  return step;
}

Step Cta::loadShared(Warp &warp, const Inst &inst) {
  warp.touched |= warp.mask;
  uint32_t bytes = inst.count * inst.flags;
  Actor who = actor(warp);
  Step step = Step::Next;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    who.lane = lane;
    if (address % bytes)
      step = misaligned(warp, lane, sized(bytes, "shared load"),
                        Shared::describe(address), bytes);
    else if (const uint8_t *from = shared.read(who, address, bytes))
      unpack(warp, program, inst, lane, from);
    else
      step = badShared(warp, lane, sized(bytes, "shared load"), address);
    return step == Step::Next;
  });
  return step;
}

Step Cta::storeShared(Warp &warp, const Inst &inst) {
  warp.touched |= warp.mask;
  uint32_t bytes = inst.count * inst.flags;
  Actor who = writer(warp);
  Step step = Step::Next;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    uint8_t value[kMostBytes];
    who.lane = lane;
    pack(warp, program, inst, lane, value);
    if (address % bytes)
      step = misaligned(warp, lane, sized(bytes, "shared store"),
                        Shared::describe(address), bytes);
    else if (shared.write(who, address, value, bytes))
      shared.stored(warp.index, lane, address, bytes);
    else
      step = badShared(warp, lane, sized(bytes, "shared store"), address);
    return step == Step::Next;
  });
  return step;
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

Step Cta::loadMatrix(Warp &warp, const Inst &inst, bool transposed) {
  if (!converged(warp))
    return diverged(warp);
  Actor who = actor(warp);
  warp.touched = ~0u;
  uint16_t rows[kLanes][8]; // By lane: the row that it points to.
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    if (address % 16)
      return misaligned(warp, lane, "row of ldmatrix",
                        Shared::describe(address), 16);
    const uint8_t *row = shared.read(who, address, 16);
    if (!row)
      return badShared(warp, lane, "row of ldmatrix", address);
    std::memcpy(rows[lane], row, 16);
  }
  const Slot *dst = &program.lists[inst.dst];
  for (uint32_t tile = 0; tile < 4; ++tile)
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      auto at = [&](uint32_t r, uint32_t c) -> uint32_t {
        return transposed ? rows[8 * tile + c][r] : rows[8 * tile + r][c];
      };
      uint32_t row = lane / 4, column = 2 * (lane % 4);
      warp.u32(dst[tile])[lane] = at(row, column) | at(row, column + 1) << 16;
    }
  return Step::Next;
}

Step Cta::storeMatrix(Warp &warp, const Inst &inst, bool transposed) {
  if (!converged(warp))
    return diverged(warp);
  warp.touched = ~0u;
  uint16_t rows[kLanes][8];
  const Slot *tiles = &program.lists[inst.b];
  for (uint32_t tile = 0; tile < 4; ++tile)
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      for (uint32_t k = 0; k < 2; ++k) {
        uint32_t row = lane / 4, column = 2 * (lane % 4) + k;
        if (transposed)
          std::swap(row, column);
        rows[8 * tile + row][column] =
            uint16_t(warp.u32(tiles[tile])[lane] >> 16 * k);
      }
  Actor who = writer(warp);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    const auto *row = reinterpret_cast<const uint8_t *>(rows[lane]);
    who.lane = lane;
    if (address % 16)
      return misaligned(warp, lane, "row of stmatrix",
                        Shared::describe(address), 16);
    if (!shared.write(who, address, row, 16))
      return badShared(warp, lane, "row of stmatrix", address);
    shared.stored(warp.index, lane, address, 16);
  }
  return Step::Next;
}

Step Cta::mma(Warp &warp, const Inst &inst) {
  if (!converged(warp))
    return diverged(warp);
  const Slot *in = &program.lists[inst.a], *out = &program.lists[inst.dst];
  float a[16][16], b[16][8], c[16][8];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t k = 0; k < 2; ++k) {
      auto half = [&](uint32_t operand) {
        return fromBFloat(warp.u32(in[operand])[lane] >> 16 * k & 0xffff);
      };
      for (uint32_t part = 0; part < 4; ++part)
        a[g + 8 * (part & 1)][2 * t + k + 8 * (part >> 1)] = half(part);
      b[2 * t + k][g] = half(4);
      b[2 * t + k + 8][g] = half(5);
      c[g][2 * t + k] = warp.f32(in[6 + k])[lane];
      c[g + 8][2 * t + k] = warp.f32(in[8 + k])[lane];
    }
  }
  for (uint32_t i = 0; i < 16; ++i)
    for (uint32_t k = 0; k < 16; ++k)
      for (uint32_t j = 0; j < 8; ++j)
        c[i][j] += a[i][k] * b[k][j];
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    for (uint32_t k = 0; k < 2; ++k) {
      warp.f32(out[k])[lane] = c[lane / 4][2 * (lane % 4) + k];
      warp.f32(out[2 + k])[lane] = c[lane / 4 + 8][2 * (lane % 4) + k];
    }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Shuffles
//===----------------------------------------------------------------------===//

Step Cta::shuffle(Warp &warp, const Inst &inst) {
  uint32_t members = warp.u32(inst.imm)[__builtin_ctz(warp.mask)];
  if (members != warp.mask)
    return diverged(warp);
  uint32_t result[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t by = warp.u32(inst.b)[lane] & 31, clamp = warp.u32(inst.c)[lane];
    uint32_t segment = clamp >> 8 & 31, first = lane & segment;
    uint32_t last = first | (clamp & 31 & ~segment);
    uint32_t from = lane;
    bool inside = true;
    switch (static_cast<NVVM::ShflKind>(inst.flags)) {
    case NVVM::ShflKind::up:
      from = lane - by;
      inside = int32_t(from) >= int32_t(last);
      break;
    case NVVM::ShflKind::down:
      from = lane + by;
      inside = from <= last;
      break;
    case NVVM::ShflKind::bfly:
      from = lane ^ by;
      inside = from <= last;
      break;
    case NVVM::ShflKind::idx:
      from = first | (by & ~segment);
      inside = from <= last;
      break;
    }
    if (!inside)
      from = lane;
    if ((warp.mask >> lane & 1) && !(members >> from & 1))
      return fail(warp, lane,
                  "shuffle from lane " + Twine(from) + ", which is inactive");
    result[lane] = warp.u32(inst.a)[from & 31];
  }
  std::copy_n(result, kLanes, warp.u32(inst.dst));
  return Step::Next;
}
