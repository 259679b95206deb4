//===- AttendLayer.cpp - A layer whose states grow --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttendLayer.h"

#include "Panels.h"
#include "plum/ABI/GpuABI.h"
#include "plum/Target/GpuChip.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using namespace plum::assoc;

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

namespace {
/// A row as another times a number.
struct Scaled {
  Value row, factor;
  double constant = 1;
};
} // namespace

static Scaled scaledBy(Value query) {
  auto product = query.getDefiningOp<arith::MulFOp>();
  if (!product)
    return {query, {}};
  for (unsigned i : {0, 1}) {
    Value row = product->getOperand(i), by = product->getOperand(1 - i);
    DenseElementsAttr splat;
    if (auto broadcast = by.getDefiningOp<vector::BroadcastOp>())
      if (broadcast.getSourceType().isF32())
        return {row, broadcast.getSource()};
    if (matchPattern(by, m_Constant(&splat)) && splat.isSplat())
      return {row, {}, splat.getSplatValue<APFloat>().convertToDouble()};
  }
  return {query, {}};
}

/// Takes out of the queries what is the same in all.
static void takeFactor(AttendLayer &layer) {
  SmallVector<Scaled> scaled;
  for (Value query : layer.attend.getQueries())
    scaled.push_back(scaledBy(query));
  const Scaled &first = scaled.front();
  bool same = llvm::all_of(scaled, [&](const Scaled &other) {
    return other.factor == first.factor && other.constant == first.constant;
  });
  if (!same)
    return;
  layer.factor = first.factor;
  layer.constant = first.constant;
  layer.queries.clear();
  for (const Scaled &each : scaled)
    layer.queries.push_back(each.row);
}

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

bool AttendLayer::grows(LayerOp op) {
  return llvm::any_of(op.argumentsOf(Role::State), [](BlockArgument state) {
    return isa<ListType>(state.getType());
  });
}

int64_t AttendLayer::tensorOf(BlockArgument argument) const {
  int64_t before = 0;
  for (Role role : {Role::Param, Role::Input, Role::State})
    for (BlockArgument other : op.argumentsOf(role)) {
      if (other == argument)
        return before;
      ++before;
    }
  llvm_unreachable("an argument has a role");
}

SmallVector<unsigned> AttendLayer::read() const {
  SmallVector<unsigned> all;
  for (unsigned list : keys)
    if (!llvm::is_contained(all, list))
      all.push_back(list);
  if (!llvm::is_contained(all, values))
    all.push_back(values);
  return all;
}

/// A row of an input that queries or lists are made of and that bf16 does not
/// hold.
static BlockArgument findBeyondBF16(AttendLayer &layer) {
  SetVector<Value> sources;
  sources.insert_range(layer.attend.getQueries());
  for (const AttendLayer::List &list : layer.lists)
    sources.insert(list.row);
  for (size_t i = 0; i < sources.size(); ++i)
    if (Operation *op = sources[i].getDefiningOp())
      sources.insert(op->operand_begin(), op->operand_end());
  for (BlockArgument input : layer.op.argumentsOf(Role::Input)) {
    auto row = dyn_cast<VectorType>(input.getType());
    if (row && row.getNumElements() > 1 && !row.getElementType().isBF16() &&
        sources.contains(input))
      return input;
  }
  return {};
}

/// Rows of params, inputs and outputs are pieces of eight numbers.
static LogicalResult checkRows(LayerOp op) {
  auto check = [&](Type type, StringRef what, StringRef name, Location loc) {
    auto row = dyn_cast<VectorType>(type);
    if (!row || row.getNumElements() == 1)
      return success();
    if (row.getNumElements() % 8) {
      emitError(loc) << what << " '" << name << "' has rows of "
                     << row.getNumElements()
                     << " numbers, expected a multiple of 8 beside a state "
                        "that grows, on a GPU";
      return failure();
    }
    return success();
  };
  for (auto [argument, attr] :
       llvm::zip(op.getBlock().getArguments(), op.getArgs())) {
    auto arg = cast<ArgAttr>(attr);
    if (arg.getRole() != Role::State &&
        failed(check(argument.getType(),
                     arg.getRole() == Role::Input ? "input" : "param",
                     arg.getName(), argument.getLoc())))
      return failure();
  }
  for (auto [value, name] : llvm::zip(op.yieldedOutputs(), op.getOutputs()))
    if (failed(check(value.getType(), "output",
                     cast<StringAttr>(name).getValue(), value.getLoc())))
      return failure();
  return success();
}

FailureOr<AttendLayer> AttendLayer::read(LayerOp op) {
  AttendLayer layer;
  layer.op = op;
  layer.firstState =
      op.argumentsOf(Role::Param).size() + op.argumentsOf(Role::Input).size();
  auto refuse = [](Location loc, const Twine &why) {
    emitError(loc) << why;
    return failure();
  };
  SmallVector<StringRef> names = op.namesOf(Role::State);
  auto numberOf = [&](Value list) -> unsigned {
    if (auto append = list.getDefiningOp<AppendOp>())
      list = append.getList();
    for (auto [i, other] : llvm::enumerate(layer.lists))
      if (other.state == list)
        return i;
    llvm_unreachable("a list is a state's");
  };
  for (auto [i, state] : llvm::enumerate(op.argumentsOf(Role::State))) {
    auto type = dyn_cast<ListType>(state.getType());
    if (!type)
      return refuse(state.getLoc(),
                    "state '" + names[i] +
                        "' of a fixed size has no kernel for a GPU beside one "
                        "that grows");
    if (type.getWidth() % 8)
      return refuse(state.getLoc(), "growing state '" + names[i] +
                                        "' has rows of " +
                                        Twine(type.getWidth()) +
                                        " numbers, expected a multiple of 8 "
                                        "on a GPU");
    auto append = cast<AppendOp>(op.yieldedStates()[i].getDefiningOp());
    layer.lists.push_back({state, append.getRow(), type.getWidth()});
  }
  for (AttendOp attend : op.getBlock().getOps<AttendOp>()) {
    if (layer.attend)
      return refuse(attend.getLoc(),
                    "a second 'attend' has no kernel for a GPU, expected one");
    layer.attend = attend;
  }
  if (!layer.attend)
    return refuse(op.getLoc(), "a layer with growing states and no 'attend' "
                               "has no kernel for a GPU");
  for (Value list : layer.attend.getKeys())
    layer.keys.push_back(numberOf(list));
  layer.values = numberOf(layer.attend.getValues());
  SetVector<Operation *> after;
  getForwardSlice(layer.attend.getResult(), &after);
  for (auto [i, list] : llvm::enumerate(layer.lists))
    if (after.contains(list.row.getDefiningOp()) ||
        list.row.getDefiningOp() == layer.attend)
      return refuse(list.row.getLoc(),
                    "rows of '" + names[i] +
                        "' depend on what is attended to, which has no kernel "
                        "for a GPU");
  layer.queries = llvm::to_vector(layer.attend.getQueries());
  layer.beyondBF16 = findBeyondBF16(layer);
  if (!layer.exact())
    takeFactor(layer);
  if (failed(checkRows(op)))
    return failure();
  size_t count = layer.firstState + op.getOutputs().size() +
                 3 * layer.lists.size(); // Before, after, snapshots.
  if (count > PLUM_GPU_MAX_TENSORS)
    return refuse(op.getLoc(), "has " + Twine(count) +
                                   " tensors, a GPU kernel takes at most " +
                                   Twine(PLUM_GPU_MAX_TENSORS));
  return layer;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// Places everything in shared memory.
static void place(AttendShape &shape, const AttendLayer &layer) {
  auto next = [&](int64_t bytes) {
    int64_t at = shape.bytes;
    shape.bytes += llvm::alignTo(bytes, 1024);
    return at;
  };
  shape.bytes = 0;
  shape.queryAt.clear();
  shape.tileAt.clear();
  for (unsigned i = 0; i < layer.queries.size(); ++i)
    shape.queryAt.push_back(next(Panels::bytes(shape.rows(), layer.keyDim(i))));
  shape.stageBytes = 0;
  for (unsigned list : layer.read()) {
    shape.tileAt.push_back(shape.stageBytes);
    shape.stageBytes += Panels::bytes(shape.keys, layer.lists[list].width);
  }
  shape.stagesAt = next(shape.stageBytes * shape.stages);
  // The answers, as numbers, take the place of queries and tiles.
  if (!shape.step())
    shape.bytes =
        std::max(shape.bytes, shape.rows() * AttendShape::answerPitch(layer));
  shape.weightsAt = next(shape.columnWarps > 1 ? shape.rows() * 128 : 0);
  const int64_t numbers = shape.bytes;
  shape.factorsAt = numbers;
  shape.exchangeAt = numbers + shape.rows() * 4;
  shape.bytes =
      shape.exchangeAt +
      (shape.columnWarps > 1 ? shape.rows() * shape.columnWarps * 4 : 0);
  if (!shape.wide)
    return;
  shape.barriersAt = llvm::alignTo(shape.bytes, 8);
  shape.bytes = shape.barriersAt + 4 * shape.stages * 8;
}

/// Warpgroups with 64 rows each, if they have the registers: sums, scores and
/// weights of a tile, and some numbers. Two stages are enough where keys and
/// values have rings of their own: while a tile's scores are made, its values
/// and the next keys arrive. The first choice is the longest tile.
static bool chooseWide(AttendShape &shape, const AttendLayer &layer,
                       int64_t most, bool twice) {
  shape.wide = true;
  shape.twice = twice;
  if (twice) {
    most = most / 2 - 1024; // What is kept for each block.
    if (shape.rowWarps > 4 || layer.valueDim() > 128)
      return false;
  }
  shape.columnWarps = 1;
  for (unsigned list : layer.read())
    if (layer.lists[list].width % 16 || layer.lists[list].width > 256)
      return false;
  for (int64_t keys : {128, 64}) {
    const int64_t registers = layer.valueDim() / 2 + keys / 2 + keys / 4;
    if (registers + 40 > shape.teamRegisters())
      continue;
    shape.keys = keys;
    for (int64_t stages : {3, 2}) {
      shape.stages = stages;
      place(shape, layer);
      if (shape.bytes <= most)
        return true;
    }
  }
  return false;
}

/// Long values, as latents are: two warpgroups have 64 heads of a token, each
/// half of the columns. Few heads take no longer than their list does to
/// arrive.
static bool chooseHeads(AttendShape &shape, const AttendLayer &layer,
                        int64_t most) {
  const int64_t V = layer.valueDim();
  if (V <= 256 || V > 512 || V % 128)
    return false;
  for (unsigned list : layer.read())
    if (layer.lists[list].width % 16)
      return false;
  shape.wide = true;
  shape.rowWarps = 4;
  shape.columnWarps = 2;
  shape.splits = 16;
  shape.leastTiles = 16;
  place(shape, layer);
  return shape.bytes <= most;
}

FailureOr<AttendShape> AttendShape::choose(const AttendLayer &layer, Chip chip,
                                           int64_t chunk) {
  const int64_t V = layer.padded(layer.valueDim());
  int64_t K = 0;
  for (unsigned i = 0; i < layer.queries.size(); ++i)
    K += layer.padded(layer.keyDim(i));
  const int64_t most = gpuChipOf(chip.sm).sharedBytes;
  AttendShape shape;
  shape.chunk = chunk;
  if (chunk > 1 && (chunk % 16 || chunk > 128))
    return layer.op.emitError()
           << "chunk = " << chunk
           << " has no kernel for a GPU beside a state that grows, expected a "
              "multiple of 16 up to 128";
  shape.rowWarps = shape.step() ? 1 : chunk / 16;
  if (AttendShape wide = shape;
      chip.hopper() && !shape.step() && chunk % 64 == 0 &&
      (chooseWide(wide, layer, most, /*twice=*/true) ||
       chooseWide(wide, layer, most, /*twice=*/false)))
    return wide;
  if (AttendShape heads = shape;
      chip.hopper() && shape.step() && chooseHeads(heads, layer, most))
    return heads;
  // Sums of a warp: 16 rows of at most 256 columns, in blocks of eight warps or
  // fewer, whose threads can have all registers. Single tokens are waited for,
  // so warps share what little there is.
  shape.splits = shape.step() ? 16 : 1;
  shape.leastTiles = V > 256 ? 8 : 4;
  for (int64_t keys : {64, 32})
    for (int64_t warps : {4, 2, 1}) {
      const bool wanted = shape.step() || V > 256;
      if (V % (16 * warps) || keys < 16 * warps || V / warps > 256 ||
          (!wanted && warps > 1) || shape.rowWarps * warps > 8)
        continue;
      shape.keys = keys;
      shape.columnWarps = warps;
      const int64_t registers = K / 4 + V / warps / 2 + keys / warps / 2;
      shape.hold = registers <= 128;
      for (int64_t stages : {3, 2}) {
        if (stages > 2 && !shape.step())
          continue;
        shape.stages = stages;
        place(shape, layer);
        if (shape.bytes <= most)
          return shape;
      }
    }
  return layer.attend.emitError()
         << "key dim = " << K << " with value dim = " << V
         << " has no kernel for this GPU: a tile of 32 keys and values has to "
            "fit into its shared memory twice, "
         << most << " bytes";
}
