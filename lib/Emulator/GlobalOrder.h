//===- GlobalOrder.h - Who touched global memory in a launch ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// CTAs of a launch run in any order, and nothing orders their accesses; warps
// of a CTA are ordered by barriers, as in shared memory (Shared.h). Two bytes
// keep the CTA and the epoch of their last store, and which CTA has loaded
// them. A launch starts with none of that: the one before it has ended.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_EMULATOR_GLOBALORDER_H
#define PLUM_LIB_EMULATOR_GLOBALORDER_H

#include "Shared.h"

#include <memory>
#include <unordered_map>

namespace plum::emulator {

class GlobalOrder {
public:
  /// False, and problem(), if CTA `cta` must not load or store there now.
  bool load(int64_t cta, const Actor &who, uint64_t address, uint32_t bytes);
  bool store(int64_t cta, const Actor &who, uint64_t address, uint32_t bytes);
  const std::string &problem() const { return why; }

private:
  struct Cell {
    uint32_t writer = 0; ///< CTA + 1.
    Epoch written = 0;
    uint32_t reader = 0; ///< CTA + 1, or kSeveral.
  };
  static constexpr uint32_t kSeveral = ~0u;
  static constexpr uint64_t kCellBytes = 2, kPage = 2048; ///< Cells of a page.
  using Page = std::array<Cell, kPage>;

  Cell &cell(uint64_t index);

  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
  uint64_t lastPage = ~0ull;
  Page *last = nullptr;
  std::string why;
};

} // namespace plum::emulator

#endif // PLUM_LIB_EMULATOR_GLOBALORDER_H
