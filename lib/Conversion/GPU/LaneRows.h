//===- LaneRows.h - The maths of a token, eight lanes a row -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A warp has four rows at a time, each of a token and head. Lane l of eight has
// of a row [d] the pieces l, l + 8, ..., each of eight elements: 16 bytes of
// bf16, so that loads and stores are whole sectors. Sums along a row are three
// shuffles. Where d is no multiple of 64 some lanes have a piece less; what
// they hold there is that of another place and is never counted or stored.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_LANEROWS_H
#define PLUM_LIB_CONVERSION_GPU_LANEROWS_H

#include "AttendLayer.h"

namespace plum::gpu {

/// Eight elements that lie side by side.
Values loadEight(Ptx &p, Value pointer, mlir::Type element);
void storeEight(Ptx &p, llvm::ArrayRef<Value> eight, Value pointer,
                mlir::Type element);
/// Four pairs of bf16.
Values packEight(Ptx &p, llvm::ArrayRef<Value> eight);

/// The rows of a list of one head.
struct ListPlace {
  Value base;  ///< i64: of row 0.
  Value row;   ///< i64: bytes between rows.
  Value isF32; ///< Else bf16.

  Value pointer(Ptx &p, Value index) const {
    return p.global(p.add(base, p.mul(p.toU64(index), row)));
  }
};

class LaneRows {
public:
  LaneRows(Ptx &p, const AttendLayer &layer)
      : p(p), layer(layer), lane(p.bitAnd(p.tid(), 7)) {}

  /// Goes to the row of a token (its indices into inputs) and head: nothing is
  /// known of it yet. To be called again where control flow joins.
  void begin(Value sequence, Value token, Value head);
  /// The lane's elements of a row, or one where all are the same.
  void set(Value value, Values elements) { known[value] = elements; }
  Values get(Value value);
  /// Of a row, all of them; of a number, that one.
  Values all(Value value);
  /// Writes the row of output `i`.
  void storeOutput(unsigned i);
  void storeRow(llvm::ArrayRef<Value> elements, int64_t width,
                const ListPlace &list, Value index);
  /// Some rows, one after the other; a piece that is not there is the last one.
  Values loadRows(int64_t width, const ListPlace &list,
                  llvm::ArrayRef<Value> indices);

  /// List `tensor` of plum_gpu_args for a head that reads or writes it. Without
  /// a pool, slots are sequences.
  ListPlace list(int64_t tensor, Value slot, Value head);
  /// The first of the heads that share a list.
  Value isFirstOf(int64_t tensor, Value head);
  Value field64(int64_t tensor, int64_t offset);
  Value field32(int64_t tensor, int64_t offset);

  /// Pieces of a lane; piece i is number lane + 8 i of the row.
  static int64_t pieces(int64_t width) { return (width + 63) / 64; }
  Value piece(int64_t i) { return p.add(lane, 8 * i); }
  /// Runs `body` if the row has the lane's piece i.
  void ifHas(int64_t width, int64_t i, llvm::function_ref<void()> body);
  bool failed() const { return hasFailed; }

private:
  Values load(mlir::BlockArgument argument);
  Values reduce(mlir::Operation *op);
  Values extract(mlir::Operation *op);
  Value rowAddress(int64_t tensor, bool tokens);
  /// The tensor's head of one of the layer's.
  Value ownHead(int64_t tensor, Value head);

  Ptx &p;
  const AttendLayer &layer;
  Value lane, sequence, token, head;
  llvm::DenseMap<Value, Values> known;
  bool hasFailed = false;
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_LANEROWS_H
