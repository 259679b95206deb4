//===- Summary.cpp - The part of a chunk that the state needs ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A segment does S' = M S + B to any state that enters it. `summary` finds M
// and B by scanning the segment without outputs: B from zeros (or, in the first
// segment, the initial state), M from the identity with values of zero; where
// nothing is erased, M is diagonal, the product of the chunks' decays. It is
// the scan of a smaller graph, in which nothing is left that only an output
// needs; the blob is the one that prepare leaves for the whole scan.
//
//===----------------------------------------------------------------------===//

#include "ToTile.h"

using namespace plum;
using namespace plum::totile;
using llvm::SmallVector;

namespace {

/// What is kept of a numbered list, and under which number.
class Kept {
public:
  explicit Kept(size_t count) : numbers(count) {}
  void need(unsigned i) { numbers[i] = 0; }
  bool has(unsigned i) const { return numbers[i].has_value(); }
  /// Drops the others from a list that is numbered like this one.
  template <typename T> void prune(SmallVector<T> &list) {
    SmallVector<T> left;
    for (auto [i, item] : llvm::enumerate(list))
      if (numbers[i])
        left.push_back(item);
    list = left;
  }
  void renumber() {
    unsigned next = 0;
    for (std::optional<unsigned> &number : numbers)
      if (number)
        number = next++;
  }
  unsigned operator[](unsigned i) const { return *numbers[i]; }

private:
  SmallVector<std::optional<unsigned>> numbers;
};

} // namespace

std::pair<Graph, BlobLayout> plum::totile::chainOf(const Graph &whole,
                                                   const BlobLayout &layout) {
  Graph graph = whole;
  BlobLayout blob = layout;
  graph.output = chunk::OutputOp();
  graph.reads.clear();
  graph.rowSums.clear();
  blob.rowSums.clear();

  // Solves come in the order of their dependence: backwards, a solve is needed
  // if the state or a later solve takes its block.
  Kept reads(graph.readTiles.size()), scores(graph.scoreTiles.size()),
      blocks(graph.blocks.size()), solves(graph.solves.size()),
      solveTiles(graph.solveTiles.size());
  auto needBlock = [&](unsigned block) {
    blocks.need(block);
    if (graph.blocks[block].kind == RowBlock::Solve)
      solves.need(graph.blocks[block].index);
  };
  for (auto [key, block] : graph.carry) {
    needBlock(block);
    if (blob.sharedWith[key] >= 0)
      reads.need(blob.sharedWith[key]);
  }
  for (size_t i = graph.solves.size(); i-- > 0;) {
    if (!solves.has(i))
      continue;
    const Sum &right = graph.solves[i].right;
    solveTiles.need(graph.solves[i].tile);
    if (right.base)
      needBlock(*right.base);
    for (unsigned read : right.reads)
      reads.need(read);
    for (auto [tile, block] : right.products) {
      scores.need(tile);
      needBlock(block);
    }
  }
  for (Kept *kept : {&reads, &scores, &blocks, &solves, &solveTiles})
    kept->renumber();

  reads.prune(graph.readTiles);
  reads.prune(blob.reads);
  scores.prune(graph.scoreTiles);
  scores.prune(blob.scores);
  scores.prune(blob.scoresLow);
  solveTiles.prune(graph.solveTiles);
  solveTiles.prune(blob.solves);
  solveTiles.prune(blob.solvesLow);
  blocks.prune(graph.blocks);
  blocks.prune(blob.stored);
  solves.prune(graph.solves);
  for (RowBlock &block : graph.blocks)
    if (block.kind == RowBlock::Solve)
      block.index = solves[block.index];
  for (Solve &solve : graph.solves) {
    solve.tile = solveTiles[solve.tile];
    if (solve.right.base)
      solve.right.base = blocks[*solve.right.base];
    for (unsigned &read : solve.right.reads)
      read = reads[read];
    for (auto &[tile, block] : solve.right.products) {
      tile = scores[tile];
      block = blocks[block];
    }
  }
  for (auto &[key, block] : graph.carry)
    block = blocks[block];
  for (int64_t &shared : blob.sharedWith)
    if (shared >= 0)
      shared = reads[shared];
  // Factors of tokens are told apart by their numbers only.
  for (auto [i, offset] : llvm::enumerate(blob.vectors)) {
    auto uses = [&, i = i](const auto &tile) { return tile.vector == i; };
    if (llvm::none_of(graph.readTiles, uses) &&
        llvm::none_of(graph.keyTiles, uses))
      offset = -1;
  }
  return {graph, blob};
}
