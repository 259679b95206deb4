//===- Panels.h - Inputs of experts as wgmma reads them ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product by wgmma reads the tokens of a tile, for a step of weights, with
// one bulk copy: a step is one or two panels (Warpgroup.h) of the tile's
// tokens, rounded up with rows of zeros, and a tile's steps follow each other.
//
// Columns of a step are in the order in which lanes have weights. Unit i of
// lane t (ExpertWeights.h) is 8 columns, left operands 2 i and 2 i + 1; in
// each, the lane has four, which are elements 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of
// the product's 16. So piece 4 i + c of a row has columns 2 c, 2 c + 1 of unit
// i of all four lanes.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_PANELS_H
#define PLUM_RUNTIME_CUDA_KERNELS_PANELS_H

#include "runtime/cuda/kernels/ExpertWeights.h"
#include "runtime/cuda/kernels/Warpgroup.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {

template <typename Format> struct Panels {
  static constexpr int kEach = Format::kColumns / kPanelColumns; ///< In a step.
  static constexpr int kPieces = kPanelColumns / 8;

  static int64_t bytes(int64_t rows, int columns) {
    return rows * ceilDiv(columns, Format::kColumns) * Format::kColumns * 2;
  }
  /// Of a step's piece, in the bytes of the step.
  static int at(int rows, int row, int piece) {
    return piece / kPieces * rows * kPanelRowBytes +
           pieceAt(row, piece % kPieces);
  }

  struct Position {
    int piece, element;
  };
  /// Of a column of a step, as lane t has it.
  static Position position(int column) {
    const int unit = column / 8;
    const int i = Format::kUnits == 4 ? unit % 4 : unit / 4;
    const int t = Format::kUnits == 4 ? unit / 4 : unit % 4;
    return {4 * i + column % 8 / 2, 2 * t + column % 2};
  }
};

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_PANELS_H
