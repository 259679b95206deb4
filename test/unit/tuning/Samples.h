//===- Samples.h - Results that nobody measured -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_TUNING_SAMPLES_H
#define PLUM_TEST_UNIT_TUNING_SAMPLES_H

#include "plum/Pipelines/Compiler.h"
#include "runtime/TuningRecord.h"

namespace plum::tuning {

inline runtime::TuningKey sampleKey(int64_t tokens = 4096) {
  runtime::TuningKey key;
  key.layer = "kda";
  key.signature = "0123456789abcdef";
  key.target = "cpu";
  key.precision = "default";
  key.device = "x86-64-v4, 2 threads";
  key.compiler = "0.1.0-abc";
  key.bucket = runtime::TuningBucket::of({1, tokens, 8});
  return key;
}

inline runtime::TuningResult sampleResult(int64_t chunk, double ms,
                                          int64_t tokens = 4096) {
  runtime::TuningResult result;
  result.schedule.form = chunk ? "chunk" : "step";
  result.schedule.chunk = chunk;
  result.shape = {1, tokens, 8};
  result.estimateMs = ms;
  result.date = "2026-11-29";
  result.ms = ms;
  result.spread = 0.02;
  result.reps = 30;
  result.errors = {1e-3, 2e-3, 3e-3, 1e-6, 5e-3, 1e-2, 2e-2, 5e-3};
  return result;
}

/// A layer with one erased and one written direction, of state [K, V].
inline LayerFacts sampleFacts(int64_t K, int64_t V, const char *target) {
  LayerFacts facts;
  facts.manifest.layer = "kda";
  facts.manifest.target = target;
  facts.manifest.inputs = {{"q", {K}, DType::BF16, DType::BF16}};
  facts.manifest.states = {{"S", {K, V}, DType::F32, DType::F32}};
  facts.signature = "0123456789abcdef";
  facts.chunked = true;
  facts.erases = facts.writes = 1;
  return facts;
}

} // namespace plum::tuning

#endif // PLUM_TEST_UNIT_TUNING_SAMPLES_H
