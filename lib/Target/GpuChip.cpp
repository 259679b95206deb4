//===- GpuChip.cpp - The GPUs there is code for -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Target/GpuChip.h"

using namespace plum;

const std::vector<GpuChip> &plum::gpuChips() {
  // 7.8: arguments can be read from where they are (from 7.7 on); drivers from
  // CUDA 11.8 on take it. 8.0: wgmma; drivers from CUDA 12.0 on.
  static const std::vector<GpuChip> chips = {
      {"sm_80", 80, "+ptx78", 163 * 1024, true},
      {"sm_90a", 90, "+ptx80", 227 * 1024, false},
  };
  return chips;
}

const GpuChip *plum::findGpuChip(std::string_view name) {
  for (const GpuChip &chip : gpuChips())
    if (chip.name == name)
      return &chip;
  return nullptr;
}

const GpuChip &plum::gpuChipOf(int64_t sm) {
  for (const GpuChip &chip : gpuChips())
    if (chip.sm == sm)
      return chip;
  return gpuChips().back(); // plum-opt's options: any number may come.
}

const GpuChip *plum::gpuChipFor(int major, int minor) {
  const GpuChip *best = nullptr;
  int64_t sm = 10 * major + minor;
  for (const GpuChip &chip : gpuChips())
    if (chip.forward ? chip.sm <= sm : chip.sm == sm)
      best = &chip;
  return best;
}

std::string plum::gpuChipNames() {
  std::string names;
  for (const GpuChip &chip : gpuChips())
    names += (names.empty() ? "" : ", ") + std::string(chip.name);
  return names;
}
