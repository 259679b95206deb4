//===- GpuChip.h - The GPUs there is code for -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TARGET_GPUCHIP_H
#define PLUM_TARGET_GPUCHIP_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plum {

/// A GPU to compile for, and what its PTX is written in.
struct GpuChip {
  std::string_view name; ///< "sm_80", also ptxas's name for it.
  int64_t sm;            ///< 80.
  /// PTX version, as an LLVM feature: the oldest that has what kernels use, so
  /// that the oldest drivers can load them.
  std::string_view ptx;
  int64_t sharedBytes; ///< Shared memory that a CTA can have.
  /// PTX runs on every later GPU; false for an "a" chip: only on that one.
  bool forward;
};

/// sm_80 and sm_90a, in order.
const std::vector<GpuChip> &gpuChips();
/// Null for anything else.
const GpuChip *findGpuChip(std::string_view name);
/// The one whose `sm` it is.
const GpuChip &gpuChipOf(int64_t sm);
/// The best one for a GPU of compute capability MAJOR.MINOR; null: too old.
const GpuChip *gpuChipFor(int major, int minor);
/// "sm_80, sm_90a", for messages.
std::string gpuChipNames();

/// The most rows (updates) of a chunk for a key dim K: beside a long state,
/// registers and shared memory have room for half as many.
constexpr int64_t gpuChunkRows(int64_t keyDim) {
  return keyDim > 128 ? 32 : 64;
}

/// Tokens of a chunk that is compared with a list of such rows: two warpgroups
/// share each tile of a list, where there is wgmma and a row is not too long.
constexpr int64_t gpuTokensOfList(const GpuChip &chip, int64_t width) {
  return chip.sm >= 90 && width <= 256 ? 128 : 64;
}

} // namespace plum

#endif // PLUM_TARGET_GPUCHIP_H
