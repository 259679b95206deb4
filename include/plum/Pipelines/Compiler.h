//===- Compiler.h - A spec in, a phase's IR or a bundle out -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The whole compiler as two calls, for `plum`, the tests and anyone who links
// it. Everything happens in memory; only `compileBundle` touches the disk, and
// the bundle directory appears complete or not at all.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_PIPELINES_COMPILER_H
#define PLUM_PIPELINES_COMPILER_H

#include "plum/Frontend/Frontend.h"
#include "plum/Support/Result.h"
#include "runtime/Manifest.h"

#include <atomic>
#include <string>
#include <vector>

namespace plum {

enum class Form : uint8_t { Auto, Step, Chunk };
enum class Precision : uint8_t { Default, Robust, F32 };

struct CompileOptions {
  frontend::SpecOptions spec;
  /// Auto: step and chunk kernels; Step: only the step kernel.
  Form form = Form::Auto;
  /// Chunk sizes C (powers of two, 1 to 256) to make kernels for; none: 64, and
  /// on a GPU, where each update of a token is a row, fewer for several
  /// updates.
  std::vector<int64_t> chunks;
  Precision precision = Precision::Default;
  std::string target = "cpu"; ///< Or a GPU: "sm_80", "sm_90a".
  /// Of chunk kernels for a GPU, see ToTilePass; 0: as the passes decide.
  int64_t slice = 0, stages = 0;
  /// What chose chunk, slice and stages, for the manifest.
  std::optional<runtime::ManifestTuning> tuning;
  /// LLVM CPU name; "native" is this machine.
  std::string cpu = "native";
  /// Program that makes cubins; empty: whichever is found, see findPtxas.
  std::string ptxas;
  bool timing = false; ///< Measure each phase, see CompileReport.
  /// Keep a bundle that is there by the time this one is done: in a cache it is
  /// the same one, and somebody may be using it.
  bool keepExisting = false;
  /// Counted up after each phase, for whoever shows progress.
  std::atomic<int64_t> *phasesDone = nullptr;
};

/// What ptxas says of one kernel of a GPU.
struct KernelUse {
  std::string symbol;
  int64_t registers = 0, spilledBytes = 0; ///< A thread.
};

/// The compiler's output besides files, rendered.
struct CompileReport {
  std::string messages; ///< Warnings about the spec.
  std::string remarks;  ///< The same with remarks: what was proven and chosen.
  std::string timing;   ///< A line per phase, with options.timing.
  std::vector<KernelUse> kernels; ///< Where ptxas assembled a cubin.
};

/// `where` of an Error whose message is rendered diagnostics, places and all.
constexpr const char *kRendered = "<rendered>";

/// Compiles one layer up to `phase` (see Pipelines/Phases.h) and returns the
/// IR as text (for `obj`, the bytes of the object or cubin). Errors carry the
/// rendered diagnostics as their message.
Result<std::string> compileToPhase(const Source &source,
                                   const CompileOptions &options,
                                   std::string_view phase,
                                   CompileReport &report);

/// Compiles one layer into the bundle directory `dir` (created or replaced).
Status compileBundle(const Source &source, const CompileOptions &options,
                     const std::string &dir, CompileReport &report);

/// What a caller of the layer has to know: its manifest, without kernels.
Result<runtime::Manifest> describeLayer(const Source &source,
                                        const CompileOptions &options,
                                        CompileReport &report);

/// What times of a layer depend on, beside shape, machine and schedule.
struct LayerFacts {
  runtime::Manifest manifest; ///< Without kernels.
  /// Hash of the normal form: 16 hex digits. Dims and dtypes are in it,
  /// comments and names of locals are not.
  std::string signature;
  bool chunked = false; ///< Has a chunkwise form.
  int64_t erases = 0;   ///< Erased directions, all states and steps together.
  int64_t writes = 0;   ///< Written ones.
  int64_t steps = 1;    ///< Updates of a state that a token makes in turn.
  /// Lowest log decay that is proven; nothing: there is a decay without one.
  /// 0 without decays.
  std::optional<double> lowestLogDecay = 0;
};
Result<LayerFacts> layerFacts(const Source &source,
                              const CompileOptions &options,
                              CompileReport &report);

/// Version and content of this program and, for a GPU, of ptxas: the same text
/// means the same kernels.
std::string compilerIdentity(const CompileOptions &options);

} // namespace plum

#endif // PLUM_PIPELINES_COMPILER_H
