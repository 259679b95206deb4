//===- Scan.h - The kernel that carries the state ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a scan is made of: the parts of its rings (ScanParts.cpp), its products
// and the order of a chunk (Scan.cpp), the maths of outputs (ScanOutputs.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_TILE_SCAN_H
#define PLUM_LIB_CONVERSION_TILE_SCAN_H

#include "ToTile.h"

namespace plum::totile {

class Scan {
public:
  Scan(TileBuilder &b, const Graph &graph, const BlobLayout &blob,
       const Schedule &schedule)
      : b(b), graph(graph), blob(blob), schedule(schedule), R(graph.rows()),
        slice(schedule.slice), terms(schedule.terms) {}
  void build();
  /// What is wrong with the chunk's size; empty when its stages fit.
  std::string tooLarge();

private:
  struct Ring {
    Value ring;
    llvm::SmallVector<mlir::Attribute> parts;
    llvm::SmallVector<mlir::Type> types;
    unsigned add(TileBuilder &b, tile::SharedType type, int64_t offset,
                 bool sliced);
    unsigned addRows(TileBuilder &b, tile::SharedType type,
                     llvm::StringRef input, bool sliced);
  };
  void planParts();
  int64_t bytesFor(int64_t firstStages, int64_t secondStages) const;
  /// Stages of the two rings; as few as may be where nothing fits.
  std::pair<int64_t, int64_t> stages() const;
  /// Are products put off to the next chunk?
  bool defers() const;
  void makeRings();
  /// A block as a left operand: bf16 [slice, R].
  const Terms &operand(unsigned block);
  /// The reads of a sum: products that add up, and those of raw inputs, each
  /// of which has its rows' factors still to come.
  struct Reads {
    Value total;
    llvm::SmallVector<std::pair<Value, unsigned>> raw;
  };
  Reads reads(const Sum &s, llvm::ArrayRef<Value> state);
  /// All of it, with the factors; null where there is nothing.
  Value total(const Reads &reads);
  /// Rows (tokens, which are columns here) times their factors, from the parts
  /// of this chunk or of the one before.
  Value scaled(Value rows, unsigned vector, llvm::ArrayRef<Value> parts);
  /// The block that a solve makes.
  unsigned solvedBlock(unsigned solve) const {
    return llvm::find(graph.blocks, RowBlock{RowBlock::Solve, solve, Value()}) -
           graph.blocks.begin();
  }
  /// A block as it meets a key tile.
  Terms keyOperand(unsigned key, unsigned block, llvm::ArrayRef<Value> solved);
  /// The terms of a tile of which this is the first.
  Terms tile(Value first, std::optional<unsigned> low) const;
  /// The product of two sums of terms, without those of two small ones.
  Value dot(llvm::ArrayRef<Value> a, llvm::ArrayRef<Value> tile, Value onto,
            bool transposed);
  /// A block times a score tile of this chunk.
  Value product(unsigned scores, unsigned block, Value onto) {
    return dot(operand(block), tile(c[scorePart[scores]], scoreLow[scores]),
               onto, false);
  }
  bool solved(unsigned block) const {
    return graph.blocks[block].kind == RowBlock::Solve;
  }
  /// The state and its copies take most of a thread's registers. The outputs'
  /// reads come first then: whoever waits for the chain's reads has waited for
  /// both, and the copies are gone before anything else is made.
  bool crowded() const { return graph.K / 2 + terms * graph.K / 4 > 150; }
  /// Second terms need the registers that what waits would stay in.
  bool deferred(unsigned block) const {
    return terms == 1 && !crowded() && solved(block);
  }
  /// The outputs that are the scan's: name and rows.
  llvm::SmallVector<std::pair<llvm::StringRef, Value>> outputs() const;
  /// Their rows, in bf16.
  llvm::SmallVector<Value> outputValues(llvm::ArrayRef<Value> sums);
  void writeOutputs(llvm::ArrayRef<Value> values, bool previous);
  Value outputValue(Value v, llvm::ArrayRef<Value> sums);
  Value makeOutput(Value v, llvm::ArrayRef<Value> sums);
  Value carryState(Value state);
  /// A vector [K] of the blob.
  Value rowOf(unsigned part);
  Value carryVector(Value z);
  /// A sum of the vector state, [R].
  Value readVector(const Sum &s);

  TileBuilder &b;
  const Graph &graph;
  const BlobLayout &blob;
  const Schedule &schedule;
  const int64_t R, slice, terms;

  Ring first, second; ///< What a chunk needs at its start, and what later.
  llvm::SmallVector<unsigned> readPart, solvePart, scorePart, keyPart,
      storedPart;
  /// Second terms, all in the second ring.
  llvm::SmallVector<std::optional<unsigned>> solveLow, scoreLow, keyLow;
  llvm::SmallVector<unsigned> vectorPart;
  llvm::DenseMap<unsigned, unsigned>
      inputPart; ///< Argument to part of `first`:
  llvm::DenseMap<unsigned, unsigned> wholePart; ///< its slice, or whole rows.
  llvm::DenseMap<unsigned, unsigned>
      besidePart; ///< What outputs read of inputs.
  llvm::SmallVector<unsigned> rowSumPart;
  std::optional<unsigned> decayPart, keySumPart;
  llvm::SmallVector<bool> keyInFirst;
  llvm::SmallVector<Value> a, c, cBefore; ///< Parts of the two rings.
  llvm::SmallVector<Terms>
      fragments; ///< Blocks as operands, made once a chunk.
  Value panel;
  Value parts; ///< Where warps leave sums over their rows.
  llvm::DenseMap<Value, Value> outputMaths; ///< Of one chunk.
  Value vectorTile; ///< The vector state, where all threads can read it.
  llvm::SmallVector<Value> dots; ///< Its products with read tiles, [1, R].
};

} // namespace plum::totile

#endif // PLUM_LIB_CONVERSION_TILE_SCAN_H
