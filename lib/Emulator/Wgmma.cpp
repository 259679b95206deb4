//===- Wgmma.cpp - Products of a warpgroup ----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// D[64, n] (+)= A[64, 16] B[16, n]. Warp w of an aligned group of four has rows
// 16w to 16w + 15 of A and D, as fragments like those of m16n8k16; d[4j] to
// d[4j + 3] are columns 8j to 8j + 7. B lies in shared memory as the descriptor
// says, in pieces of 16 bytes:
//
//   K-major    rows of n, k contiguous; 8 rows of the swizzle's width (128, 64
//              or 32 bytes) make a group, groups lie SBO apart
//   MN-major   rows of k, n contiguous for the swizzle's width, the next such n
//              LBO further; 8 rows make a group, groups lie SBO apart
//
// and bits 4 to 6 of a byte's address are then XORed with bits 7 to 9 (two bits
// or one for 64 and 32). A may lie there too, K-major, its rows in the place of
// n.
//
// The four warps meet here. Each keeps a list of what it issued and computes
// its own rows when it waits; no other warp's wait counts for it.
//
//===----------------------------------------------------------------------===//

#include "Cta.h"
#include "Floats.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

bool Cta::findPieces(uint32_t columns, bool transposed, uint64_t descriptor,
                     std::vector<uint32_t> &pieces, std::string &why) {
  uint32_t start = (descriptor & 0x3fff) << 4;
  uint32_t leading = (descriptor >> 16 & 0x3fff) << 4;
  uint32_t stride = (descriptor >> 32 & 0x3fff) << 4;
  uint32_t swizzle = descriptor >> 62;
  if (swizzle == 0) {
    why = "descriptors without a swizzle are not supported";
    return false;
  }
  if (descriptor >> 49 & 7) {
    why = "descriptors with a base offset are not supported";
    return false;
  }
  if (descriptor & 0x3ff1'c000'c000'c000) {
    why = "a descriptor has bits set that mean nothing";
    return false;
  }
  uint32_t width = 256 >> swizzle; // 128, 64, 32 bytes.
  auto swizzled = [&](uint32_t address) {
    return address ^ ((address >> 7 & (width / 16 - 1)) << 4);
  };
  pieces.clear();
  if (!transposed) {
    // Piece 2n + h: k = 8h to 8h + 7 of column n.
    for (uint32_t n = 0; n < columns; ++n)
      for (uint32_t half = 0; half < 2; ++half)
        pieces.push_back(
            swizzled(start + n / 8 * stride + n % 8 * width + 16 * half));
    return true;
  }
  // Piece k * n / 8 + o: columns 8o to 8o + 7 of row k.
  for (uint32_t k = 0; k < 16; ++k)
    for (uint32_t octet = 0; octet < columns / 8; ++octet)
      pieces.push_back(swizzled(start + octet / (width / 16) * leading +
                                k / 8 * stride + k % 8 * width +
                                octet % (width / 16) * 16));
  return true;
}

/// The meeting of the four warps.
Step Cta::wgmma(Warp &warp, const Inst &inst) {
  if (!converged(warp))
    return diverged(warp);
  const WgmmaShape &shape = program.wgmmas[inst.a];
  uint32_t first = warp.index / 4 * 4;
  if (first + 4 > warps.size())
    return fail(warp, -1, "wgmma in a warpgroup of fewer than four warps");
  if (warp.wgmmaReached == ~0ull) {
    warp.wgmmaReached = warp.pc;
    ++warp.wgmmaCount;
    warp.wgmmaDescriptors = {};
    SmallVector<Slot, 2> slots{shape.descriptor};
    if (shape.shared)
      slots.push_back(shape.a[0]);
    for (auto [i, slot] : llvm::enumerate(slots)) {
      const uint64_t *each = warp.u64(slot);
      warp.wgmmaDescriptors[i] = each[0];
      for (uint32_t lane = 1; lane < kLanes; ++lane)
        if (each[lane] != each[0])
          return fail(warp, lane,
                      "the lanes of a warp give wgmma different "
                      "descriptors");
    }
  }
  for (uint32_t w = first; w < first + 4; ++w) {
    const Warp &other = warps[w];
    if (other.wgmmaCount < warp.wgmmaCount)
      return Step::Block;
    // Those that went on already met this warp here.
    if (other.wgmmaCount > warp.wgmmaCount || other.wgmmaReached == ~0ull)
      continue;
    if (other.wgmmaReached != warp.pc)
      return fail(warp, -1,
                  "the warps of a warpgroup execute different wgmma; warp " +
                      Twine(w) + " is at " + opText(other.pc));
    if (other.wgmmaDescriptors != warp.wgmmaDescriptors)
      return fail(warp, -1,
                  "warp " + Twine(w) +
                      " of the warpgroup gives "
                      "wgmma another descriptor");
  }
  warp.wgmmaReached = ~0ull;
  return issueWgmma(warp, inst);
}

Step Cta::issueWgmma(Warp &warp, const Inst &inst) {
  const WgmmaShape &shape = program.wgmmas[inst.a];
  if (options.checkWgmmaFences) {
    bool fenced = warp.wgmmaFences > 0;
    for (Slot slot : shape.fenced)
      fenced &= warp.writtenAt[slot] <= warp.wgmmaFences;
    if (!fenced)
      return fail(warp, -1,
                  "wgmma reads registers that were written with no "
                  "wgmma.fence since");
  }
  PendingWgmma pending;
  pending.shape = inst.a;
  pending.inst = warp.pc;
  pending.group = -1;
  std::string why;
  if (!findPieces(shape.n, shape.transposed, warp.u64(shape.descriptor)[0],
                  pending.pieces, why))
    return fail(warp, -1, why);
  for (uint32_t piece : pending.pieces)
    if (!shared.beginRead(actor(warp), piece, kGranule))
      return badShared(warp, -1, "wgmma's read of B", piece);
  if (shape.shared) {
    std::vector<uint32_t> all;
    if (!findPieces(64, false, warp.u64(shape.a[0])[0], all, why))
      return fail(warp, -1, why);
    auto own = all.begin() + warp.index % 4 * 32; // 16 rows, two pieces each.
    pending.left.assign(own, own + 32);
    for (uint32_t piece : pending.left)
      if (!shared.beginRead(actor(warp), piece, kGranule))
        return badShared(warp, -1, "wgmma's read of A", piece);
  } else {
    for (uint32_t part = 0; part < 4; ++part)
      pending.a[part] = warp.frame[shape.a[part]];
  }
  for (uint32_t i = 0; i < shape.d.size(); ++i) {
    if (shape.inPlace) {
      ++warp.inFlight[shape.result[i]];
      continue;
    }
    if (warp.inFlight[shape.result[i]])
      return fail(warp, -1,
                  "wgmma again before its last results were waited "
                  "for");
    if (warp.inFlight[shape.d[i]])
      return fail(warp, -1,
                  "wgmma adds to an accumulator in flight that is needed "
                  "elsewhere too: its registers would have to be copied");
    warp.frame[shape.result[i]] = warp.frame[shape.d[i]];
    ++warp.inFlight[shape.result[i]];
  }
  warp.wgmmas.push_back(std::move(pending));
  return Step::Next;
}

void Cta::performWgmma(Warp &warp, PendingWgmma &pending) {
  const WgmmaShape &shape = program.wgmmas[pending.shape];
  const uint32_t n = shape.n;
  float a[16][16];
  auto eightAt = [&](uint32_t piece, float *to, uint32_t step) {
    uint16_t halves[8];
    std::memcpy(halves, shared.bytes(piece), 16);
    for (uint32_t i = 0; i < 8; ++i)
      to[i * step] = fromBFloat(halves[i]);
  };
  for (uint32_t i = 0; i < pending.left.size(); ++i)
    eightAt(pending.left[i], &a[i / 2][i % 2 * 8], 1);
  for (uint32_t lane = 0; lane < kLanes && !shape.shared; ++lane)
    for (uint32_t part = 0; part < 4; ++part)
      for (uint32_t k = 0; k < 2; ++k)
        a[lane / 4 + 8 * (part & 1)][2 * (lane % 4) + k + 8 * (part >> 1)] =
            fromBFloat(pending.a[part].v[lane] >> 16 * k & 0xffff);
  float b[16][256], d[16][256];
  for (uint32_t piece = 0; piece < pending.pieces.size(); ++piece) {
    if (shape.transposed)
      eightAt(pending.pieces[piece], &b[piece / (n / 8)][piece % (n / 8) * 8],
              1);
    else
      eightAt(pending.pieces[piece], &b[piece % 2 * 8][piece / 2], 256);
  }
  for (uint32_t i = 0; i < n / 2; ++i) {
    const float *from = warp.f32(shape.result[i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      d[lane / 4 + 8 * (i / 2 % 2)][i / 4 * 8 + 2 * (lane % 4) + i % 2] =
          shape.zero ? 0.0f : from[lane];
  }
  for (uint32_t i = 0; i < 16; ++i)
    for (uint32_t k = 0; k < 16; ++k) {
      float scale = a[i][k];
      for (uint32_t j = 0; j < n; ++j)
        d[i][j] += scale * b[k][j];
    }
  for (uint32_t i = 0; i < n / 2; ++i) {
    float *to = warp.f32(shape.result[i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      to[lane] =
          d[lane / 4 + 8 * (i / 2 % 2)][i / 4 * 8 + 2 * (lane % 4) + i % 2];
    --warp.inFlight[shape.result[i]];
  }
  for (const auto *pieces : {&pending.pieces, &pending.left})
    for (uint32_t piece : *pieces)
      shared.endRead(actor(warp), piece, kGranule);
}

Step Cta::wgmmaWait(Warp &warp, const Inst &inst) {
  if (!converged(warp))
    return diverged(warp);
  int64_t complete = warp.wgmmaGroups - inst.imm;
  auto rest = llvm::find_if(warp.wgmmas, [&](const PendingWgmma &pending) {
    return pending.group < 0 || pending.group >= complete;
  });
  for (auto it = warp.wgmmas.begin(); it != rest; ++it)
    performWgmma(warp, *it);
  warp.wgmmas.erase(warp.wgmmas.begin(), rest);
  return Step::Next;
}

Step Cta::checkReady(Warp &warp, const Inst &inst) {
  if (!warp.inFlight[inst.a])
    return Step::Next;
  const auto &pending = llvm::find_if(warp.wgmmas, [&](const auto &p) {
    return llvm::is_contained(program.wgmmas[p.shape].result, inst.a);
  });
  return fail(warp, -1,
              Twine("an accumulator is read while the wgmma that writes it is "
                    "in flight: ") +
                  (pending->group < 0
                       ? "its group was not committed"
                       : "no wgmma.wait_group has waited for its group"));
}
