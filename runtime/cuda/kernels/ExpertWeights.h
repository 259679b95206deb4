//===- ExpertWeights.h - Weights as tensor cores take them ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights in memory are packed: in blocks of 16 rows by kColumns columns, in
// the order in which a warp uses them, with zeros where a matrix ends. A block
// is what one step of a product reads. The order of k inside a step is free, as
// long as weights and inputs have the same, and the packing is made for it:
//
//   unit       8 columns of a step; a lane 4 g + t has kUnits of them, of rows
//   g
//              and g + 8, and of token g
//   expand     a unit to two left operands of multiplyAdd: columns (0, 1) (2,
//   3),
//              then (4, 5) (6, 7)
//
// BF16: a lane's 16 bytes are an operand, and so a warp's 512 are two units of
// 4 lanes: lane t has units t and 4 + t of 8.
//
// MXFP4: a lane's 4 units are 32 columns in a row, which share a scale; a block
// is 1024 bytes of nibbles and 64 of scales.
//
// E2M1's bits s eem as bits 15, 8, 7 and 6 of a bf16 are the number times
// 2^-126, subnormals included, so one product with a power of two makes the
// weight. The 8 numbers of a word are interleaved so that three of its four
// pairs take one rotation and one mask, and the last two of each:
//
//   bits modulo 16   15, 8 7 6   pair 0, in place
//                     5, 14 13 12   pair 1, rotated by 10
//                     9, 2 1 0   pair 2, rotated by 6
//                     3, 4 11 10   pair 3, rotated by 12, and by 20 for the 4
//
// That power is 2^(s - 127 - 48 + 126) for the scale s: weights come out
// smaller by 2^48, which keeps it in the range of a bf16 for scales from 2^-77
// to 2^49; the accumulators make up for it. Larger scales are infinite.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_EXPERTWEIGHTS_H
#define PLUM_RUNTIME_CUDA_KERNELS_EXPERTWEIGHTS_H

#include "runtime/cuda/kernels/MoeArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {

inline Bytes16 readShared(const char *from) {
  return *reinterpret_cast<const Bytes16 *>(from);
}

/// Blocks of 16 rows in memory as a lane copies them: `at` is its first byte of
/// the first block; `there`: the matrix has such rows.
template <typename Format>
PLUM_INLINE void copyBlock(char *stage, const char *at, bool there) {
  constexpr int whole = Format::kBytes / 512 * 512;
  stage += lane() * 16;
#pragma unroll
  for (int i = 0; i < whole; i += 512)
    copyAsync(stage + i, at + i, there);
  if (Format::kBytes > whole && lane() < (Format::kBytes - whole) / 16)
    copyAsync(stage + whole, at + whole, there);
}

struct Mxfp4 {
  static constexpr int kColumns = kMxfp4Columns, kUnits = 4,
                       kBytes = kMxfp4Bytes;
  static constexpr float kScale = 0x1p48f;
  static constexpr int kExponent = 126 - 48; ///< Added to a scale's byte.

  /// Where in a step unit `i` of lane 4 g + t is.
  static constexpr int unit(int i, int t) { return 4 * t + i; }
  /// Units of inputs in shared memory: a lane's neighbours t read neighbours.
  static int place(int unit) { return unit % 4 * 4 + unit / 4; }

  /// Of 8 blocks of rows, those of a warpgroup's warps: as columns of the next
  /// product, they are a panel there (Panels.h).
  static int blockOf(int group, int warp) { return 2 * warp + group; }

  /// Where in a step's bytes unit i of a lane is, rows g and g + 8, a word
  /// each; and the scales of both, a byte each.
  static int wordAt(int i, int lane) { return i * 256 + lane * 8; }
  static int scaleAt(int lane) { return 1024 + lane * 2; }

  struct Scales {
    uint32_t power[2];
  };
  PLUM_INLINE static Scales scales(const char *stage) {
    const uint32_t both =
        *reinterpret_cast<const uint16_t *>(stage + scaleAt(lane()));
    return {{(both & 255) * 0x00800080u, (both >> 8) * 0x00800080u}};
  }

  /// What `spread` returns is not yet an operand: ptxas lets it be written
  /// while products are under way.
  static constexpr bool kSpread = true;
  /// A unit as it is packed, to be expanded by halves: the two rows.
  using Unit = uint64_t;
  PLUM_INLINE static Unit read(const char *stage, int i) {
    return *reinterpret_cast<const uint64_t *>(stage + wordAt(i, lane()));
  }
  /// Bits of a half in their places, and what is left to do.
  PLUM_INLINE static Bytes16 spread(Unit rows, int half) {
    constexpr uint32_t mask = 0x81c081c0u;
    const uint32_t x = uint32_t(rows >> 32 * half);
    return {{x & mask, __builtin_rotateleft32(x, 10) & mask,
             __builtin_rotateleft32(x, 6) & mask,
             (__builtin_rotateleft32(x, 12) & 0x80c080c0u) |
                 (__builtin_rotateleft32(x, 20) & 0x01000100u)}};
  }
  PLUM_INLINE static void finish(const Bytes16 &spread, const Scales &scales,
                                 int half, uint32_t (&a)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i / 2][half + i % 2 * 2] =
          multiplyPairs(spread.word[i], scales.power[half]);
  }

  /// 8 numbers of a checkpoint, lowest nibble first, as a word to expand.
  static uint32_t interleave(uint32_t nibbles) {
    constexpr int rotated[4] = {0, 10, 6, 12};
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int bit = 0; bit < 4; ++bit) {
        const int pair = i / 2;
        int to = 16 * (i % 2) + (bit == 3 ? 15 : 6 + bit);
        to -= pair == 3 && bit == 2 ? 20 : rotated[pair];
        word |= (nibbles >> (4 * i + bit) & 1) << (to & 31);
      }
    return word;
  }
};

struct Bf16 {
  static constexpr int kColumns = kBf16Columns, kUnits = 2, kBytes = kBf16Bytes;
  static constexpr float kScale = 1;

  static constexpr int unit(int i, int t) { return 4 * i + t; }
  static int place(int unit) { return unit; }

  static int blockOf(int group, int warp) { return 4 * group + warp; }

  /// Where in a step's bytes operand j of unit i of a lane is: 16 bytes.
  static int operandAt(int i, int j, int lane) {
    return (2 * i + j) * 512 + lane * 16;
  }

  struct Scales {};
  PLUM_INLINE static Scales scales(const char *) { return {}; }
  static constexpr bool kSpread = false;
  /// Halves of a unit are its two operands.
  struct Unit {
    Bytes16 operand[2];
  };
  PLUM_INLINE static Unit read(const char *stage, int i) {
    return {{readShared(stage + operandAt(i, 0, lane())),
             readShared(stage + operandAt(i, 1, lane()))}};
  }
  PLUM_INLINE static Bytes16 spread(const Unit &unit, int j) {
    return unit.operand[j];
  }
  PLUM_INLINE static void finish(const Bytes16 &spread, Scales, int j,
                                 uint32_t (&a)[2][4]) {
#pragma unroll
    for (int word = 0; word < 4; ++word)
      a[j][word] = spread.word[word];
  }
};

template <typename Format>
PLUM_INLINE void expand(const char *stage,
                        const typename Format::Scales &scales, int i,
                        uint32_t (&a)[2][4]) {
  const typename Format::Unit unit = Format::read(stage, i);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    Format::finish(Format::spread(unit, half), scales, half, a);
}

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_EXPERTWEIGHTS_H
