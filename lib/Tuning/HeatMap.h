//===- HeatMap.h - Results as a picture -------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TUNING_HEATMAP_H
#define PLUM_LIB_TUNING_HEATMAP_H

#include "runtime/TuningRecord.h"

namespace plum::tuning {

/// Two maps of chunk size over T as one SVG: time, coloured by how many times
/// the best of its column it is, and error R, coloured by its part of the
/// limit. Columns are the shape buckets of the entries of `key`'s layer,
/// target, precision, device and compiler; a cell is the best of its chunk
/// size, the best of a column has a frame, and what is above a limit is crossed
/// out.
std::string heatMap(const runtime::TuningDatabase &database,
                    const runtime::TuningKey &key);

/// The same as a table of text.
std::string table(const runtime::TuningDatabase &database,
                  const runtime::TuningKey &key);

} // namespace plum::tuning

#endif // PLUM_LIB_TUNING_HEATMAP_H
