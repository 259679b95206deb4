//===- ScanParts.cpp - What a chunk's stages hold ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts of the blob and rows of inputs, in two rings: what a chunk needs at its
// start, and what it needs later or still when the next has begun.
//
//===----------------------------------------------------------------------===//

#include "Scan.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;

unsigned Scan::Ring::add(TileBuilder &b, tile::SharedType type, int64_t offset,
                         bool sliced) {
  parts.push_back(
      tile::PartAttr::get(b.getContext(), type, offset, StringAttr(), sliced));
  types.push_back(type);
  return parts.size() - 1;
}
unsigned Scan::Ring::addRows(TileBuilder &b, tile::SharedType type,
                             StringRef input, bool sliced) {
  parts.push_back(tile::PartAttr::get(b.getContext(), type, -1,
                                      b.getStringAttr(input), sliced));
  types.push_back(type);
  return parts.size() - 1;
}

void Scan::planParts() {
  auto whole = [&](unsigned argument) {
    auto [it, isNew] = wholePart.insert({argument, 0});
    if (isNew)
      it->second = first.addRows(b, b.shared(R, graph.K),
                                 graph.arguments[argument].name, false);
    return it->second;
  };
  for (auto [read, offset] : llvm::zip(graph.readTiles, blob.reads))
    readPart.push_back(read.isRaw()
                           ? whole(*read.x.raw)
                           : first.add(b, b.shared(R, graph.K), offset, false));
  auto input = [&](unsigned argument) {
    if (!inputPart.contains(argument))
      inputPart[argument] = first.addRows(b, b.shared(R, slice),
                                          graph.arguments[argument].name, true);
  };
  for (const RowBlock &block : graph.blocks)
    if (block.kind == RowBlock::Input)
      input(block.index);
  // Inputs that the output's maths read beside the sums: where sums are put off
  // to the next chunk, the rows have to wait as well.
  const bool late = defers();
  if (graph.output)
    for (auto [name, rows] : outputs())
      for (BlockArgument arg : Graph::sources(rows)) {
        const Argument *argument = graph.argument(arg);
        if (!argument || argument->role != "input" || argument->shape.empty())
          continue;
        unsigned index = argument - graph.arguments.begin();
        if (!late) {
          input(index);
          besidePart[index] = inputPart[index];
        } else if (!besidePart.contains(index)) {
          besidePart[index] =
              second.addRows(b, b.shared(R, slice), argument->name, true);
        }
      }
  for (auto [i, block] : llvm::enumerate(graph.blocks))
    storedPart.push_back(
        block.kind == RowBlock::Stored
            ? first.add(b, b.shared(R, slice), blob.stored[i], true)
            : 0);
  // What is not there has no part.
  auto low = [&](int64_t offset, int64_t cols) -> std::optional<unsigned> {
    if (offset < 0)
      return std::nullopt;
    return second.add(b, b.shared(R, cols), offset, false);
  };
  for (auto [i, offset] : llvm::enumerate(blob.keys)) {
    const KeyTile &key = graph.keyTiles[i];
    keyInFirst.push_back(key.isRaw() || blob.sharedWith[i] >= 0);
    keyPart.push_back(key.isRaw() ? whole(*key.k.raw)
                      : keyInFirst.back()
                          ? readPart[blob.sharedWith[i]]
                          : second.add(b, b.shared(R, graph.K), offset, false));
    keyLow.push_back(low(blob.keysLow[i], graph.K));
  }
  for (auto [offset, lowOffset] : llvm::zip(blob.solves, blob.solvesLow)) {
    solvePart.push_back(second.add(b, b.shared(R, R), offset, false));
    solveLow.push_back(low(lowOffset, R));
  }
  for (auto [offset, lowOffset] : llvm::zip(blob.scores, blob.scoresLow)) {
    scorePart.push_back(second.add(b, b.shared(R, R), offset, false));
    scoreLow.push_back(low(lowOffset, R));
  }
  for (int64_t offset : blob.vectors)
    vectorPart.push_back(
        offset < 0 ? 0 : second.add(b, b.shared(1, R, false), offset, false));
  for (int64_t offset : blob.rowSums)
    rowSumPart.push_back(
        second.add(b, b.shared(1, R, /*half=*/false), offset, false));
  auto row = [&](int64_t offset) {
    return second.add(b, b.shared(1, graph.K, /*half=*/false), offset, false);
  };
  if (blob.decay >= 0)
    decayPart = row(blob.decay);
  if (blob.keySum >= 0)
    keySumPart = row(blob.keySum);
}

bool Scan::defers() const {
  return llvm::any_of(graph.reads, [&](const Sum &s) {
    return llvm::any_of(s.products,
                        [&](auto product) { return deferred(product.second); });
  });
}

int64_t Scan::bytesFor(int64_t firstStages, int64_t secondStages) const {
  auto bytes = [](const Ring &ring) {
    int64_t sum = 0;
    for (Type type : ring.types)
      sum += cast<tile::SharedType>(type).bytes();
    return (sum + 1023) / 1024 * 1024;
  };
  int64_t rest = graph.output ? tileBytes(R, slice) : 0;
  if (graph.output && graph.sumsOutputs)
    rest += slice / 16 * R * 4;
  if (graph.vectorState && graph.output)
    rest += 1024 * (1 + graph.readTiles.size()); // Its tile, and dots.
  return firstStages * bytes(first) + secondStages * bytes(second) + rest;
}

/// Prefetch hides the memory's latency; what the chain reads first matters
/// more. A product that is put off needs the stage before.
std::pair<int64_t, int64_t> Scan::stages() const {
  if (schedule.stages)
    return {schedule.stages, schedule.stages};
  SmallVector<std::pair<int64_t, int64_t>> choices{
      {3, 3}, {3, 2}, {2, 2}, {1, 2}};
  if (!defers())
    choices.append({{2, 1}, {1, 1}});
  for (auto [x, y] : choices)
    if (bytesFor(x, y) <= schedule.shared)
      return {x, y};
  return choices.back();
}

std::string Scan::tooLarge() {
  planParts();
  auto [x, y] = stages();
  int64_t bytes = bytesFor(x, y);
  if (schedule.stages || bytes <= schedule.shared)
    return "";
  return ("chunk = " + Twine(graph.chunk) + " (its tiles take " +
          Twine(bytes / 1024) + " KiB of shared memory, of " +
          Twine(schedule.shared / 1024) + "; a smaller chunk takes less)")
      .str();
}

void Scan::makeRings() {
  planParts();
  const auto [firstStages, secondStages] = stages();
  for (auto [ring, count] :
       {std::pair(&first, firstStages), std::pair(&second, secondStages)})
    if (!ring->parts.empty())
      ring->ring = tile::RingOp::create(b, tile::RingType::get(b.getContext()),
                                        count, b.getArrayAttr(ring->parts));
}

std::string plum::totile::scanTooLarge(MLIRContext *context, const Graph &graph,
                                       const BlobLayout &blob,
                                       const Schedule &schedule) {
  TileBuilder b(UnknownLoc::get(context), context);
  return Scan(b, graph, blob, schedule).tooLarge();
}
