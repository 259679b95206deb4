//===- Decay.h - Running products of a chunk's decay ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CPU keeps exp(G_i - G_j) as products of the factors w_t between j and i,
// never as a difference of sums: the product of 64 factors has a relative error
// of a few ulp where the difference of two sums of -1400 has lost four digits,
// nothing can overflow, and w = 0 or w < 0 need no logarithm. Tables, R = C n
// steps, w one factor or K of them:
//
//   full[r]    w_0 .. w_{r-1}              exp(G_{r-1}), r = 0 .. R
//   suffix[s]  w_{s+1} .. w_{R-1}          exp(G_C - G_s)
//   in[s]      w_b .. w_s                  from the start b of s's sub-block
//   out[s]     w_{s+1} .. w_e              to the end e of s's sub-block
//
// A sub-block is 16 tokens; in[e] is its total.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_CPU_DECAY_H
#define PLUM_LIB_CONVERSION_CPU_DECAY_H

#include "KernelBuilder.h"

namespace plum::cpu {

struct DecayTables {
  bool channel = false; ///< One factor per key channel, else one per step.
  int64_t steps = 0;    ///< R
  int64_t width = 1;    ///< K or 1
  Buffer factor, full, suffix, in, out;

  /// `width`-wide factor of a step as `lanes` lanes at `column`.
  mlir::Value at(KernelBuilder &b, const Buffer &table, mlir::Value step,
                 mlir::Value column, int64_t lanes) const;
};

/// Tokens of a sub-block of a chunk of `chunk` tokens.
inline int64_t subBlock(int64_t chunk) { return std::min<int64_t>(chunk, 16); }

/// Fills the tables from `decay` [R] or [R, K] (log or linear).
DecayTables emitDecayTables(KernelBuilder &b, const Buffer &decay, bool log,
                            int64_t blockSteps, bool blocks);
void releaseDecayTables(KernelBuilder &b, const DecayTables &tables);

} // namespace plum::cpu

#endif // PLUM_LIB_CONVERSION_CPU_DECAY_H
