//===- ToTile.cpp - From a planned chunk to tile kernels --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToTile.h"

#include "plum/Conversion/Passes.h"
#include "plum/Target/GpuChip.h"

#include "mlir/Dialect/Math/IR/Math.h"

#define DEBUG_TYPE "chunk-to-tile"

namespace plum {
#define GEN_PASS_DEF_TOTILEPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::totile;

BlobLayout plum::totile::layoutBlob(const Graph &graph, int64_t terms) {
  BlobLayout out;
  const int64_t R = graph.rows(), K = graph.K;
  auto place = [&](int64_t bytes) {
    int64_t at = out.bytes;
    out.bytes += (bytes + 127) / 128 * 128; // Bulk copies are of 16 bytes.
    return at;
  };
  // Tiles with two terms: errors of what meets an input do not add up.
  auto meetsSolved = [&](ArrayRef<std::pair<unsigned, unsigned>> products,
                         unsigned tile) {
    return terms > 1 && llvm::any_of(products, [&](auto pair) {
             return pair.first == tile &&
                    graph.blocks[pair.second].kind == RowBlock::Solve;
           });
  };
  for (const ReadTile &tile : graph.readTiles)
    out.reads.push_back(tile.isRaw() ? -1 : place(tileBytes(R, K)));
  for (const RowBlock &block : graph.blocks)
    out.stored.push_back(
        block.kind == RowBlock::Stored ? place(tileBytes(R, graph.V)) : -1);
  for (const KeyTile &key : graph.keyTiles) {
    int64_t shared = -1;
    if (graph.decay == Graph::Decay::None && !key.isRaw())
      for (auto [i, read] : llvm::enumerate(graph.readTiles))
        if (read.x.value == key.k.value && read.scale == key.scale)
          shared = i;
    out.sharedWith.push_back(shared);
    out.keys.push_back(key.isRaw()   ? -1
                       : shared >= 0 ? out.reads[shared]
                                     : place(tileBytes(R, K)));
    bool low = !key.isRaw() && meetsSolved(graph.carry, out.keysLow.size());
    out.keysLow.push_back(low ? place(tileBytes(R, K)) : -1);
  }
  for (size_t i = 0; i < graph.solveTiles.size(); ++i) {
    out.solves.push_back(place(tileBytes(R, R)));
    out.solvesLow.push_back(terms > 1 ? place(tileBytes(R, R)) : -1);
  }
  for (size_t i = 0; i < graph.scoreTiles.size(); ++i) {
    out.scores.push_back(place(tileBytes(R, R)));
    auto low = [&](const Sum &s) { return meetsSolved(s.products, i); };
    const bool any = llvm::any_of(graph.reads, low) ||
                     llvm::any_of(graph.solves,
                                  [&](const Solve &s) { return low(s.right); });
    out.scoresLow.push_back(any ? place(tileBytes(R, R)) : -1);
  }
  for (const TokenVector &vector : graph.vectors)
    out.vectors.push_back(vector.isOne() ? -1 : place(R * 4));
  for (size_t i = 0; i < graph.rowSums.size(); ++i)
    out.rowSums.push_back(place(R * 4));
  if (graph.decay != Graph::Decay::None)
    out.decay = place(K * 4);
  if (graph.vectorState) {
    out.keySum = place(K * 4);
    out.kept = place(K * 4);
  }
  return out;
}

tile::KernelOp plum::totile::makeKernel(TileBuilder &b, const Graph &graph,
                                        StringRef role, int64_t warps,
                                        const BlobLayout &blob) {
  // The order of plum_gpu_args: params, inputs, initial states, final states,
  // outputs.
  SmallVector<Attribute> arguments;
  auto add = [&](StringRef role, StringRef suffix) {
    for (const Argument &argument : graph.arguments)
      if (argument.role == role && !StringRef(argument.name).contains(','))
        arguments.push_back(tile::ArgumentAttr::get(
            b.getContext(), b.getStringAttr(argument.name + suffix),
            argument.element));
  };
  add("param", "");
  add("input", "");
  add("state", "");
  add("state", ".final");
  add("output", "");
  add("state", ".snapshot");
  std::string name =
      "plum_" + graph.layer + "_" + role.str() + std::to_string(graph.chunk);
  auto kernel =
      tile::KernelOp::create(b, name, role, graph.chunk, warps,
                             b.getArrayAttr(arguments), blob.bytes, 0, 1,
                             /*diagonal=*/role != "prepare" && !graph.erases(),
                             /*teams=*/1, graph.steps);
  kernel.getBody().emplaceBlock();
  return kernel;
}

namespace {

struct ToTilePass : public plum::impl::ToTilePassBase<ToTilePass> {
  using ToTilePassBase::ToTilePassBase;

  /// What the kernels cannot do, in terms of the layer; empty when they can.
  static std::string unsupported(const Graph &graph, int64_t terms) {
    auto dim = [](StringRef name, int64_t value, int64_t most,
                  StringRef when = "") {
      return (name + " = " + Twine(value) + " (a multiple of 16, at most " +
              Twine(most) + when + ")")
          .str();
    };
    if (graph.K % 16 || graph.K > 256)
      return dim("key dim", graph.K, 256);
    // Registers hold no more of a state beside two copies of it.
    if (terms > 1 && graph.K > 192)
      return dim("key dim", graph.K, 192, " with --precision robust");
    if (graph.V % 16 || graph.V > 256)
      return dim("value dim", graph.V, 256);
    if (graph.sumsOutputs && graph.V > 128)
      return dim("value dim of an output that is summed up", graph.V, 128);
    // A row for each update; of long rows, half as many.
    int64_t rows = gpuChunkRows(graph.K);
    if (graph.chunk % 16 || graph.rows() > rows)
      return dim("chunk", graph.chunk, rows / graph.steps);
    for (const Argument &argument : graph.arguments)
      if ((argument.role == "input" || argument.role == "output") &&
          !argument.shape.empty() && !argument.element.isBF16())
        return argument.role + " '" + argument.name + "' is not bf16";
    return "";
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (terms != 1 && terms != 2) {
      module.emitError() << "expects 1 or 2 terms, got " << int64_t(terms);
      return signalPassFailure();
    }
    for (func::FuncOp function :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
      if (!function->hasAttr(kChunkAttr))
        continue;
      // Its kernels are made of the layer: see plum-attend-to-gpu.
      if (llvm::any_of(function.getArgumentTypes(),
                       [](Type type) { return isa<assoc::ListType>(type); })) {
        function.erase();
        continue;
      }
      std::string why;
      FailureOr<Graph> graph = analyse(function, why);
      Schedule schedule;
      if (succeeded(graph)) {
        // Errors of what is only added to do not grow.
        schedule.terms = graph->erases() ? int64_t(terms) : 1;
        why = unsupported(*graph, schedule.terms);
      }
      BlobLayout blob;
      if (why.empty()) {
        const bool cut = slice && graph->V % slice == 0;
        const bool whole = graph->V % 64 || graph->sumsOutputs;
        schedule.slice = cut ? int64_t(slice) : whole ? graph->V : 64;
        schedule.stages = stages;
        schedule.shared = shared;
        blob = layoutBlob(*graph, schedule.terms);
        why = scanTooLarge(&getContext(), *graph, blob, schedule);
      }
      if (!why.empty()) {
        InFlightDiagnostic warning =
            function.emitWarning()
            << "no chunk kernels for this layer on a GPU: " << why;
        warning.attachNote() << "the step kernel runs it";
        warning.report();
        function.erase();
        continue;
      }
      if (slice && (slice % 16 || graph->V % slice)) {
        function.emitError() << "expects a slice of V that divides it and is a "
                                "multiple of 16, got "
                             << int64_t(slice);
        return signalPassFailure();
      }
      if (graph->sumsOutputs && schedule.slice != graph->V) {
        function.emitError()
            << "expects a slice of all " << graph->V
            << " columns of V, since an output is summed up, got "
            << int64_t(slice);
        return signalPassFailure();
      }
      buildPrepare(module, *graph, blob, schedule.terms);
      auto [chain, chainBlob] = chainOf(*graph, blob);
      buildScan(module, chain, chainBlob, schedule);
      buildScan(module, *graph, blob, schedule);
      function.erase();
    }
  }
};

} // namespace
