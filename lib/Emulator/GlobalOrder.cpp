//===- GlobalOrder.cpp - Who touched global memory in a launch --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GlobalOrder.h"

using namespace plum;
using namespace plum::emulator;

GlobalOrder::Cell &GlobalOrder::cell(uint64_t index) {
  if (uint64_t page = index / kPage; page != lastPage) {
    std::unique_ptr<Page> &found = pages[page];
    if (!found)
      found = std::make_unique<Page>();
    lastPage = page;
    last = found.get();
  }
  return (*last)[index % kPage];
}

static std::string writeOf(uint32_t writer, int64_t cta, Epoch written) {
  if (int64_t(writer) - 1 != cta)
    return "the write of cta " + std::to_string(writer - 1) +
           " of the same launch";
  return "the write of warp " + std::to_string(written >> kTimeBits) +
         ": no barrier is in between";
}

bool GlobalOrder::load(int64_t cta, const Actor &who, uint64_t address,
                       uint32_t bytes) {
  const uint32_t me = uint32_t(cta) + 1;
  for (uint64_t i = address / kCellBytes; i < (address + bytes) / kCellBytes;
       ++i) {
    Cell &c = cell(i);
    if (c.writer && (c.writer != me || !covers(*who.seen, c.written))) {
      why = "which races with " + writeOf(c.writer, cta, c.written);
      return false;
    }
    c.reader = c.reader == 0 || c.reader == me ? me : kSeveral;
  }
  return true;
}

bool GlobalOrder::store(int64_t cta, const Actor &who, uint64_t address,
                        uint32_t bytes) {
  const uint32_t me = uint32_t(cta) + 1;
  for (uint64_t i = address / kCellBytes; i < (address + bytes) / kCellBytes;
       ++i) {
    Cell &c = cell(i);
    if (c.writer && (c.writer != me || !covers(*who.seen, c.written))) {
      why = "which races with " + writeOf(c.writer, cta, c.written);
      return false;
    }
    if (c.reader && c.reader != me) {
      why = "which races with the read of " +
            (c.reader == kSeveral ? std::string("other CTAs")
                                  : "cta " + std::to_string(c.reader - 1)) +
            " of the same launch";
      return false;
    }
    c.writer = me;
    c.written = who.epoch();
  }
  return true;
}
