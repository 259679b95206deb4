//===- AttendEmitter.h - The kernels of softmax attention -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Four kernels for lists [.., d] of keys and values in the caller's memory:
//
//   carry    rows so far, to where the final lists are, if that is elsewhere
//   append   the rows that tokens make, behind those
//   attend   blocked online softmax: a tile of keys and values after the other
//            comes to shared memory, in a ring of stages
//   merge    of step kernels: what the splits of a list found, put together
//
// A block of `attend` has one head and a chunk of tokens; in step kernels one
// token, heads that share its lists and one of the splits of them. Files:
// AttendLayer (the layer, sizes), LaneRows (a token's own maths), AttendRows
// (carry, append, merge), AttendTiles (copies and products of attend),
// AttendWide (the same by warpgroups and wgmma), AttendHeads (of heads that
// share lists), AttendBlock (its frame), AttendExact (attend in plain fp32).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_ATTENDEMITTER_H
#define PLUM_LIB_CONVERSION_GPU_ATTENDEMITTER_H

#include "LaneRows.h"
#include "Panels.h"
#include "Place.h"

namespace plum::gpu {

class AttendEmitter {
public:
  AttendEmitter(Ptx &p, const AttendLayer &layer, const AttendShape &shape);

  KernelShape carry();
  KernelShape append();
  KernelShape attend();
  KernelShape attendExact();
  KernelShape merge();
  bool failed() const { return maths.failed(); }

  static constexpr int64_t kCarrySlices = 8;
  /// Said outright: left alone, ptxas spills to make room for more blocks.
  static constexpr int64_t kMostRegisters = 255;

private:
  //===--- AttendRows.cpp -------------------------------------------------===//
  /// Number of the block among `count` (and more), and what is left.
  Value take(Value &id, Value count);
  /// Runs `body` for the tokens of `place` if its sequence is no padding.
  void forSequence(llvm::function_ref<void()> body);
  void appendRows(int64_t threads);
  void storeOutputs(Value valid);
  /// Of one split, of all tiles of a list.
  Value tilesEach(Value tiles);

  //===--- AttendBlock.cpp ------------------------------------------------===//
  void coordinates();
  /// Whose keys the block's tokens see; the first of its tiles, and their end.
  std::pair<Value, Value> seeLists();
  void block();
  /// Index into inputs of a row's token, and its head; of a row that there is
  /// nothing for, those of the last.
  std::pair<Value, Value> tokenAndHead(Value row);
  /// Of a row, as tensor cores read it: pairs of each query, 8 lanes a row.
  struct Query {
    Value row, factor;
    llvm::SmallVector<Values> pairs;
  };
  Query makeQuery(Value row);
  void storeQuery(const Query &made);
  void makeQueries();
  void readFactors();
  void exchangeTotals();
  void storeAnswers();
  void storePart();
  /// Where the block's part of the answer of a token and head goes.
  Value partOf(Value ownHead);

  //===--- AttendExact.cpp ------------------------------------------------===//
  void exactHead(Value ownHead, Value firstKey, Value endKey);
  Values exactScores(llvm::ArrayRef<Values> queries,
                     llvm::ArrayRef<Value> keys);
  void exactPart(Value ownHead);

  /// What was summed before is to be multiplied by, rows g and g + 8.
  using Scales = std::array<Value, 2>;

  //===--- AttendWide.cpp -------------------------------------------------===//
  enum class Ring { Keys, Values };
  /// A stage of the rings, and the parity of its barriers' phase.
  struct Turn {
    Value stage, parity;
  };
  void wideBlock(Value firstTile, Value endTile);
  void initBarriers();
  Value barrierOf(Ring ring, bool empty, Value stage);
  Turn next(Turn turn);
  void acquire(Ring ring, Turn turn);
  void release(Ring ring, Turn turn);
  void produce(Value firstTile, Value endTile);
  void produceList(unsigned list, Value tile, Turn turn);
  void arrive(llvm::ArrayRef<unsigned> each, Value full);
  const ListPlace &placeOf(unsigned list) const;
  void consume(Value tiles);
  /// The weights of a tile, and what was made with those of the one before.
  Values turnOf(Value tile, Values w, Turn before, Turn now, bool masked);
  Values startScores(Value stage);
  void startSums(llvm::ArrayRef<Value> w, Value stage);
  void waitSums(llvm::ArrayRef<Value> w, Values &x);
  /// Whose stage a tile's values are in.
  Ring valuesRing() const {
    return layer.valuesAreKeys() ? Ring::Keys : Ring::Values;
  }
  /// `w` and sums, past a fence: products read and write them next.
  void fenceSums(Values &w);

  //===--- AttendHeads.cpp ------------------------------------------------===//
  void consumeHeads(Value firstTile, Value endTile);
  void lead(Value firstTile, Value endTile);
  void follow(Value firstTile, Value endTile);
  void giveWeights(llvm::ArrayRef<Value> w, const Scales &keep);
  Values takeWeights(Scales &keep);

  //===--- AttendTiles.cpp ------------------------------------------------===//
  /// Copies a tile of every list into a stage, those after the last key as 0.
  void fetch(Value tile, Value stage);
  void fetchList(unsigned number, Value tile, Value stage);
  void startCopies(Value firstTile, Value endTile);
  void startLoop();
  void loop(Value firstTile, Value endTile);
  Values scores(Value stage);
  /// Scores of keys that a row must not see become -inf.
  void mask(Values &x, Value firstKey);
  /// The same for a tile that may have none.
  void maskSome(Values &x, Value firstKey);
  Values pack(llvm::ArrayRef<Value> x);
  /// How many keys every row sees.
  Value seenByAll();
  /// What is taken from a row's exponents, and the factor of its scores.
  struct Base {
    Value exponent, factor;
  };
  Base baseOf(Value most, int64_t half);
  /// Makes weights of scores.
  Scales softmax(Values &x);
  void rescale(const Scales &keep);
  /// The largest of each row's, of all warps that have the row.
  void shareMaxima(llvm::MutableArrayRef<Value> most);
  /// The weights of all keys of the tile as a left operand.
  Values weights(llvm::ArrayRef<Value> x);
  void addValues(llvm::ArrayRef<Value> w, Value stage);
  Panels tileOf(unsigned list, Value stage);
  /// Among read().
  unsigned numberOf(unsigned list) const;
  const ListPlace &placeOf(unsigned list) { return lists[numberOf(list)]; }
  /// Of the warps that have the same rows.
  void teamBarrier();
  int64_t share() const {
    return shape.wide ? shape.keys : shape.keys / shape.columnWarps;
  }
  int64_t part() const { return layer.padded(V) / shape.columnWarps; }
  /// Row g or g + 8 of the warp, in the block.
  Value rowOf(int64_t half) {
    return p.add(p.add(p.shl(rowWarp, 4), g), 8 * half);
  }

  Ptx &p;
  const AttendLayer &layer;
  const AttendShape &shape;
  LaneRows maths;
  const int64_t V;
  Value tid, lane, warp, g, t; ///< g = lane / 4, t = lane % 4.
  Value rowWarp, columnWarp;   ///< Of the warp.
  // The block's work.
  TokenPlace place;
  Value head; ///< The first.
  Value slot, past;
  Value number, split; ///< Of the token, in the run; of the keys (step).
  Value keyCount;      ///< Keys that the last row sees.
  llvm::SmallVector<ListPlace> lists; ///< Of layer.read().
  Values held;                        ///< Queries in registers.
  Value seen[2], factor[2];           ///< Of rows g and g + 8.
  // What goes from tile to tile.
  Values sums;
  Value largest[2], total[2]; ///< Exact: [0] only.
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_ATTENDEMITTER_H
