//===- Cta.h - Device kernels, thread by thread on a CPU --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block's threads are fibers of one thread: each runs until it waits for
// others (a barrier, a shuffle) and the next goes on. So a run is
// deterministic, a thread that others wait for in vain is found, and a
// sanitizer sees every access. What is in flight on a GPU is late here too: a
// write that no barrier orders before a read comes after it in one of the two
// orders, first to last thread and last to first, which alternate from block to
// block and from launch to launch.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_KERNELS_CTA_H
#define PLUM_TEST_UNIT_KERNELS_CTA_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/cuda/kernels/VocabularyCpu.h"

namespace plum::kernels {

/// By symbol; null when there is none.
const Entry *findKernel(const std::string &symbol);

/// Runs every block, one after the other. "" or what went wrong.
std::string runGrid(const Entry &kernel, int64_t gridX, int gridY,
                    int sharedBytes, const void *args);

} // namespace plum::kernels

#endif // PLUM_TEST_UNIT_KERNELS_CTA_H
