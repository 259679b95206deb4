//===- TileEmitter.h - What one thread of a tile kernel does ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks a tile.kernel and writes, through Ptx, the code of one thread. A tensor
// becomes the list of this thread's registers (dialects/Tile says which
// elements those are, and in which order):
//
//   acc  [M, N]   for each 8 columns: (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1);
//                 bf16 in pairs: (g) (g+8). Where elements are the same by
//                 construction (a broadcast row), so are the registers.
//   acc_row [N]   for each 8 columns: (2t) (2t+1)
//   acc_col [M]   (g) (g+8)
//   opb  [M, N]   for each 8 columns: (2t, g) (2t+1) (2t+8) (2t+9); bf16 in
//   pairs opb_row [N]   for each 8 columns: (g);   opb_col [M]   (2t) (2t+1)
//   (2t+8) (2t+9) linear [N]    ceil(N / threads)
//
// Files: TileToNVVM (the pass), TileKernel (where a CTA works, which threads do
// what), TileBody (op by op, strips, chunks), TileRings (how a scan is fed),
// TileArguments (addresses and numbers of tensors), TileMemory (shared memory),
// TileCopies (rows in and out), TileStates (the layer's states), TileProducts
// (tensor cores), TileSums (along rows, down columns, over teams), TileSolve
// (the triangular inverse and sums along tokens).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_TILEEMITTER_H
#define PLUM_LIB_CONVERSION_GPU_TILEEMITTER_H

#include "Panels.h"
#include "Place.h"

#include "dialects/Tile/Tile.h"

#include <map>

namespace plum::gpu {

/// A tile of shared memory: where it starts.
struct SharedTile {
  Value base; ///< ptr<3>, a constant or one plus a stage's offset.
  tile::SharedType type;
};

/// Gives every tile.alloc its offset; returns the bytes used. Tiles whose uses
/// do not overlap, with a barrier between, share bytes.
int64_t planShared(tile::KernelOp kernel);

//===--- Segments (TileCombine.cpp) ---------------------------------------===//
/// Scratch of one segment of one head: M, then the rows of X.
struct Segment {
  int64_t K = 0, V = 0;
  bool diagonal = false; ///< M is its diagonal.
  int64_t vectors = 0;   ///< Vector states, which are further rows of X.
  int64_t rows() const { return V + vectors; }
  int64_t matrixBytes() const { return (diagonal ? K : K * K) * 4; }
  int64_t bytes() const { return matrixBytes() + rows() * K * 4; }
  Value address(Ptx &p, Value row, Value head, Value segment) const;
};
/// The kernel `combine`; its grid is combineSlices() for each sequence and
/// head.
constexpr int64_t kCombineColumns = 8;
inline int64_t combineSlices(const Segment &segment) {
  return (segment.rows() + kCombineColumns - 1) / kCombineColumns;
}
KernelShape emitCombine(Ptx &p, const Segment &segment);

/// Registers that one of `threads` threads has of a tensor.
int64_t registerCount(mlir::RankedTensorType type, int64_t threads);

inline mlir::RankedTensorType tensorOf(Value v) {
  return mlir::cast<mlir::RankedTensorType>(v.getType());
}
inline tile::LayoutKind kindOf(Value v) { return *tile::layoutOf(v.getType()); }

class TileEmitter {
public:
  TileEmitter(Ptx &p, tile::KernelOp kernel);
  /// Writes the whole kernel; returns its launch shape.
  KernelShape emit();
  /// Blocks for a head: of a summary, as many as M or B has slices.
  int64_t slices();
  const Segment &segmentShape() const { return scratch; } ///< Of a scan.

private:
  //===--- Frame (TileKernel.cpp) -----------------------------------------===//
  struct RingState {
    tile::RingOp op;
    int64_t base = 0, stageBytes = 0, usedBytes = 0;
    llvm::SmallVector<int64_t> offsets; ///< Of parts in a stage.
    int64_t blobBytes = 0;              ///< By bulk copies, per stage.
    bool blobs = false;
    int64_t rows = 0;     ///< Parts that are rows of inputs.
    int64_t barriers = 0; ///< full[stages], empty[stages], 8 bytes each.
    Value index, parity;  ///< This chunk's stage.
    Value lastIndex;      ///< The previous chunk's.
  };
  void coordinatesPrepare(llvm::function_ref<void()> body);
  void coordinatesScan(llvm::function_ref<void()> body);
  void coordinatesSegment(Value part);
  void emitBlock(mlir::Block &block);
  void emitOp(mlir::Operation *op);
  void emitStrips(tile::StripsOp op);
  void emitChunks(tile::ChunksOp op);
  void planRings();
  void initBarriers();
  void produce();
  void produceBlobs();
  void produceRows(int64_t copier);
  /// Warps that copy rows: what is left of the producers.
  int64_t copiers() const { return wide ? 3 : 1; }
  void produceAll();
  Value fullBarrier(RingState &ring, Value index);
  Value emptyBarrier(RingState &ring, Value index);
  Value stageBase(RingState &ring, Value index);
  std::pair<Value, Value> nextStage(RingState &ring, Value index, Value parity);
  void elementwise(mlir::Operation *op);

  //===--- Registers ------------------------------------------------------===//
  /// Registers of a value; waits for a product that is under way.
  Values &use(Value v);
  /// Without waiting: as the accumulator of another product.
  Values &peek(Value v) { return registers[v]; }
  void set(Value v, Values values) { registers[v] = std::move(values); }
  int64_t constantIndex(Value v) { return strips.lookup(v); }

  //===--- Memory (TileMemory.cpp) ----------------------------------------===//
  void load(tile::LoadOp op);
  void store(tile::StoreOp op);
  void stash(tile::StashOp op);
  void unstash(tile::UnstashOp op);
  Value stashAt(Value tile, Value strip, bool second);
  void element(tile::ElementOp op);
  void param(tile::ParamOp op);
  /// Asks for params and columns, once, before anything is copied: what is read
  /// later is known by then. The assembler would let loads sink to their use if
  /// they stood in the block of the wait for the copies.
  void askForNumbers();
  void column(tile::ColumnOp op);
  void step(tile::StepOp op);
  /// Writes a tile's rows, by `threads` threads, to the rows of an output:
  /// those of `tokens` tokens.
  void copyOut(Value base, int64_t R, int64_t pieces, Value thread,
               int64_t threads, Value address, Value stride, Value tokens);
  void valid(tile::ValidOp op);
  void fetch(tile::FetchOp op);
  void exportTile(tile::ExportOp op);
  void exportVector(tile::ExportVectorOp op);
  void exportMatrix(tile::ExportMatrixOp op);
  void exportRows(tile::ExportRowsOp op);
  void writeRows(tile::WriteRowsOp op);
  void values(tile::ValuesOp op);
  void loadState(tile::LoadStateOp op);
  Values loadInitial(tile::LoadStateOp op, int64_t count);
  void storeState(tile::StoreStateOp op);
  /// After a chunk: the state as it is then, where the run wants it.
  void storeSnapshot(llvm::StringRef state, llvm::ArrayRef<Value> v,
                     bool vector);
  Value snapshotsBefore();
  int64_t snapshotsPlace = 0; ///< In shared memory: not a register for long.
  void writeMatrix(llvm::StringRef name, Value base, llvm::ArrayRef<Value> v);
  void writeVector(llvm::StringRef name, Value base, llvm::ArrayRef<Value> v);
  void keepState(tile::KeepStateOp op);
  void loadVectorState(tile::LoadStateOp op);
  void storeVectorState(tile::StoreStateOp op);
  void storeDecay(tile::StoreDecayOp op);
  /// Address (i64) of a slot's and this head's part of a state.
  Value stateAddress(llvm::StringRef name, Value slot);
  /// Element `index` of a vector state at stateAddress().
  Value loadStateElement(llvm::StringRef name, Value base, Value index);
  /// Of a vector state: the row of X in a segment's scratch.
  Value vectorRow(Value segment) {
    return p.add(segment, scratch.matrixBytes() + scratch.V * scratch.K * 4);
  }
  void forVector(llvm::ArrayRef<Value> v,
                 llvm::function_ref<void(Value, Value)> body);
  /// Writes a vector, by the first slice's team, as numbers side by side.
  void storeRow(llvm::ArrayRef<Value> v, Value address);
  /// Rows of an input, from a column on, and the swizzled tile that they fill.
  struct RowCopy {
    llvm::StringRef input;
    SharedTile to;
    Value columnBytes = {};
  };
  /// Copies into tiles of one shape, by `threads` threads, of which this is
  /// `thread`; rows from `rows` on become zero. `rolled`: as a loop.
  void copyRows(llvm::ArrayRef<RowCopy> copies, Value thread, int64_t threads,
                Value firstRow, Value rows, bool rolled = false);
  Value matrixOffset(Value row, int64_t quarter, bool swap) {
    return gpu::matrixOffset(p, lane, row, quarter, swap);
  }
  Value pieceOffset(Value row, Value piece) {
    return gpu::pieceOffset(p, row, piece);
  }
  Panels panels(const SharedTile &tile) {
    return {tile.base, tile.type.getRows(), lane};
  }
  Value blockAt(const SharedTile &tile, Value I, Value J, bool swap) {
    return gpu::blockAt(p, panels(tile), I, J, swap);
  }
  void storeBlock(const SharedTile &tile, Value I, Value J,
                  llvm::ArrayRef<Value> four) {
    gpu::storeBlock(p, panels(tile), I, J, four);
  }
  /// The team's matrix [columns, rows] as the tile [rows, columns].
  void storeTransposed(const SharedTile &to, llvm::ArrayRef<Value> v);
  /// Row and column of register `i` of a vector or matrix in a layout.
  Value elementIndex(tile::LayoutKind kind, int64_t i);

  //===--- Products (TileProducts.cpp) ------------------------------------===//
  void dot(tile::DotOp op);
  void dotDiag(tile::DotDiagOp op);
  void dotBlocks(tile::DotBlocksOp op);
  void placeDiag(tile::PlaceDiagOp op);
  tile::PlaceDiagOp placeOf(Value product);
  void mask(tile::MaskOp op);
  void joinHalves(tile::JoinHalvesOp op);
  void cumsum(tile::CumsumOp op);
  void planTriangles();
  void storeTriangles();
  void blockSum(tile::BlockSumOp op);
  void reduce(tile::ReduceOp op);
  void reduceRows(tile::ReduceRowsOp op);
  void diagonal(tile::DiagonalOp op);
  void columnSums(tile::ColumnSumsOp op);
  void rowDots(tile::RowDotsOp op);
  void sumTeams(tile::SumTeamsOp op);
  void broadcast(tile::BroadcastOp op);
  void awaitAll();
  void await(int64_t group);

  //===--- Solve (TileSolve.cpp) ------------------------------------------===//
  void inverse(tile::InverseOp op);
  void cumulate(tile::CumulateOp op);

  //===--- plum_gpu_args --------------------------------------------------===//
  int64_t tensorOffset(llvm::StringRef name);
  mlir::Type elementOf(llvm::StringRef name);
  Value field64(llvm::StringRef name, int64_t at);
  /// Bytes between tokens.
  Value tokenStride(llvm::StringRef name);
  Value field32(llvm::StringRef name, int64_t at);
  Value headOf(llvm::StringRef name);
  /// Address (i64) of token `firstRow` of this sequence and head.
  Value rowAddress(llvm::StringRef name, Value row);
  Value paramAddress(llvm::StringRef name);
  /// Where rows of inputs are: "k" or, one for each step, "k1,k2".
  struct Inputs {
    llvm::SmallVector<Value> base, stride; ///< Of the first row; i64.
  };
  Inputs inputs(llvm::StringRef names, Value firstRow);
  /// Base and stride of the input that a row is read from.
  std::pair<Value, Value> inputOf(const Inputs &inputs, Value row);
  /// Address of a row of the chunk.
  Value inputRow(const Inputs &inputs, Value row);
  /// Rows of the chunk that are there.
  Value validRows(Value tokens) {
    return steps == 1 ? tokens : p.mul(tokens, steps);
  }

  /// Of all teams, or in a tile.team of that one.
  void teamBarrier();
  /// The team's part of a tile whose strips the teams share.
  SharedTile teamPart(const SharedTile &tile, Value strip);
  /// Strips of each team in the loop around.
  int64_t stripCount(Value strip);
  /// Runs `body` in the first team, where all have the same.
  void once(Value condition, llvm::function_ref<void()> body);

  Ptx &p;
  tile::KernelOp kernel;
  const int64_t warps, teams; ///< Of a team; teams of prepare.
  int64_t threads;            ///< Of all teams, or of the one in a tile.team.
  std::optional<int64_t> within; ///< The number of that one.
  const int64_t C;               ///< Tokens of a chunk.
  const int64_t steps;           ///< Rows of a token.
  bool scan, wide;               ///< scan: or summary. wide: products by wgmma.
  bool summary;
  Segment scratch; ///< Of the state (scan).

  llvm::DenseMap<Value, Values> registers;
  llvm::DenseMap<Value, SharedTile> tiles;
  llvm::DenseMap<Value, int64_t> strips; ///< Index of the strip being unrolled.
  /// Params and columns that have been asked for, by op and strip.
  std::map<std::pair<mlir::Operation *, int64_t>, Values> numbers;
  llvm::DenseMap<Value, RingState> rings;
  llvm::SmallVector<Value> ringOrder;

  /// Products under way: commit group and value.
  llvm::SmallVector<std::pair<int64_t, Value>> pending;
  int64_t committed = 0;
  bool exports = false;

  int64_t sharedBytes = 0;
  /// Where the left operands of cumsums are, by half and exclusive.
  std::map<std::pair<int64_t, bool>, int64_t> triangles;
  Value tid, team, lane, warp, g,
      t; ///< g = lane / 4, t = lane % 4; warp in the team; tid among `threads`.
  // Coordinates of the work.
  Value head, sequence, inputSequence,
      firstToken;           ///< firstToken: of the chunk
                            ///< or the sequence, in rows.
  Value sequenceNumber;     ///< Among the run's, where `sequence` is a slot.
  Value startsSequence;     ///< i1: this is its first chunk (prepare).
  Value rows;               ///< Tokens of this chunk that are there.
  Value blob;               ///< ptr<1> of the first chunk's blob.
  Value blobStep;           ///< i64: to the next chunk's.
  Value slice;              ///< Number of this team's slice.
  Value valueSlice;         ///< The slice of values that it reads.
  Value segment;            ///< Of the sequence (scan).
  Value lastSegment;        ///< i1: nothing follows it (scan).
  Value followsIdentity;    ///< i1: a slice of M, not of B (summary).
  Value segmentStart;       ///< i64: address of this segment's scratch; for a
                            ///< scan, of the one that it starts from.
  Value firstChunk;         ///< Of the segment, in the sequence (scan).
  Value chunkCount, length; ///< Of the sequence (scan).
  Value chunkIndex;         ///< In emitChunks.
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_TILEEMITTER_H
