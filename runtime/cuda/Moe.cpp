//===- Moe.cpp - A mixture of experts on a GPU ----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Moe.h"

#include "runtime/cuda/MoeLayer.h"

#include <algorithm>
#include <limits>

namespace plum::runtime::cuda {

using namespace kernels;

namespace {

/// From so many pairs of an expert on, on average. On an H200 with 896 experts
/// narrow products are faster at 9 (bound by memory, which they keep busier)
/// and slower at 18, by 8 %, and at 73 (bound by mma.sync).
constexpr double kWideFrom = 16;

/// Panels of a tile's row are as wide as the steps that read them.
int64_t panelBytes(const ExpertMatrix &matrix) {
  const int64_t step = blockOf(matrix.format).columns;
  return ceilDiv(matrix.columns, step) * step * 2;
}

bool aligned(const Rows &rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 &&
         rows.stride % 8 == 0;
}

template <typename T> T *pointer(CUdeviceptr address) {
  return reinterpret_cast<T *>(address);
}

} // namespace

bool hasWideProducts(const Kernels &kernels) {
  return kernels.threads("plum_wide_mxfp4_96") != 0;
}

Result<int64_t> moeWorkspace(const MoeLayer &layer, int64_t tokens) {
  Result<MoePass> pass = MoePass::layOut(layer, tokens, 0);
  if (!pass)
    return pass.error();
  return pass->bytes;
}

Result<MoePass> MoePass::layOut(const MoeLayer &layer, int64_t tokens,
                                CUdeviceptr workspace) {
  if (Status status = checkLayer(layer); !status)
    return status.error();
  MoePass pass;
  // Hidden values are written as the next product reads them.
  pass.wide = layer.down.format == layer.gate.format &&
              (layer.products == MoeProducts::Wide ||
               (layer.products == MoeProducts::ByTokens &&
                pairsOfExpert(layer, tokens) >= kWideFrom));
  const MoeProducts family =
      pass.wide ? MoeProducts::Wide : MoeProducts::Narrow;
  if (Status status = checkTile(family, layer.tile); !status)
    return status.error();
  pass.tile = pass.wide ? wideShapeOf(layer, tokens).tokens
                        : shapeOf(layer, tokens).tokens;
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (tokens < 0 || tokens > most / layer.chosen)
    return refuse("a mixture of experts takes up to 2^31 pairs, got " +
                  std::to_string(tokens) + " tokens");
  pass.layer = layer;
  pass.tokens = tokens;
  pass.pairs = tokens * layer.chosen;
  pass.chunks = ceilDiv(pass.pairs, kMoeChunk);
  pass.tiles = std::min(pass.pairs, pass.pairs / pass.tile +
                                        std::min(layer.experts, pass.pairs));
  auto take = [&](int64_t bytes) {
    CUdeviceptr at = workspace + CUdeviceptr(pass.bytes);
    pass.bytes += ceilDiv(bytes, 256) * 256;
    return at;
  };
  pass.experts = take(pass.pairs * 4);
  pass.weights = take(pass.pairs * 4);
  pass.ranks = take(pass.pairs * 4);
  pass.order = take(pass.pairs * 4);
  pass.histogram = take(pass.chunks * layer.experts * 4);
  pass.tileList = take(pass.tiles * int64_t(sizeof(MoeTile)));
  pass.tileCount = take(4);
  if (pass.wide) {
    // Tiles are rounded up to 8 or to a multiple of 16.
    const int64_t rows =
        std::min(pass.pairs + 15 * pass.tiles, 16 * pass.pairs);
    pass.panels = take(rows * panelBytes(layer.gate));
    pass.hiddenPanels = take(rows * panelBytes(layer.down));
  } else {
    pass.hidden =
        rowsAt(take(pass.pairs * layer.gate.rows * 2), layer.gate.rows);
  }
  pass.results =
      rowsAt(take(pass.pairs * layer.down.rows * 2), layer.down.rows);
  return pass;
}

Result<MoePass> MoePass::make(const MoeLayer &layer, int64_t tokens, Rows x,
                              Rows logits, Rows y, CUdeviceptr workspace) {
  Result<MoePass> pass = layOut(layer, tokens, workspace);
  if (!pass)
    return pass;
  if (x.type != Type::BF16 || logits.type != Type::F32)
    return refuse("experts take bf16 rows and f32 logits");
  if (!aligned(x) || !aligned(y) || workspace % 256)
    return refuse("rows of experts are 16-byte aligned, their workspace "
                  "256-byte");
  pass->x = x;
  pass->logits = logits;
  pass->y = y;
  return pass;
}

Status MoePass::route(const Kernels &kernels, CUstream stream) const {
  MoeRouteArgs args;
  args.logits = logits;
  args.bias = pointer<const float>(layer.bias);
  args.experts = pointer<int32_t>(experts);
  args.weights = pointer<float>(weights);
  args.tokens = tokens;
  args.count = int32_t(layer.experts);
  args.chosen = int32_t(layer.chosen);
  args.softmax = layer.softmax;
  args.renormalize = layer.renormalize;
  args.scale = layer.scale;
  return kernels.launch(stream, "plum_moe_route", {ceilDiv(tokens, 4)}, args);
}

Status MoePass::plan(const Kernels &kernels, CUstream stream) const {
  MoePlanArgs args;
  args.experts = pointer<const int32_t>(experts);
  args.ranks = pointer<int32_t>(ranks);
  args.histogram = pointer<int32_t>(histogram);
  args.order = pointer<int32_t>(order);
  args.tiles = pointer<MoeTile>(tileList);
  args.tileCount = pointer<int32_t>(tileCount);
  args.pairs = pairs;
  args.chunks = chunks;
  args.count = int32_t(layer.experts);
  args.tileTokens = int32_t(tile);
  args.even = wide;
  if (chunks == 1)
    return kernels.launch(stream, "plum_moe_plan", {1}, args);
  const std::pair<const char *, int64_t> steps[] = {{"plum_moe_count", chunks},
                                                    {"plum_moe_offsets", 1},
                                                    {"plum_moe_place", chunks}};
  for (auto [name, blocks] : steps)
    if (Status status = kernels.launch(stream, name, {blocks}, args); !status)
      return status;
  return Status::ok();
}

Status MoePass::gather(const Kernels &kernels, CUstream stream) const {
  if (!wide)
    return Status::ok();
  MoeGatherArgs args;
  args.x = x;
  args.divisor = int32_t(layer.chosen);
  args.columns = int32_t(layer.gate.columns);
  args.panels = pointer<char>(panels);
  args.tiles = pointer<const MoeTile>(tileList);
  args.tileCount = pointer<const int32_t>(tileCount);
  args.order = pointer<const int32_t>(order);
  return kernels.launch(
      stream, std::string("plum_moe_gather_") + nameOf(layer.gate.format),
      {tiles, panelRows(int(std::min(tile, pairs))) / 8}, args);
}

/// What the arguments of both families have.
template <typename Args>
static Args productArgs(const MoeLayer &layer, bool gated, CUdeviceptr tileList,
                        CUdeviceptr tileCount, CUdeviceptr order) {
  const ExpertMatrix &first = gated ? layer.gate : layer.down;
  const ExpertMatrix &second = gated ? layer.up : layer.down;
  Args args;
  args.weights[0] = pointer<const char>(first.data);
  args.weights[1] = pointer<const char>(second.data);
  args.expertBytes = first.expertBytes();
  args.rows = int32_t(first.rows);
  args.columns = int32_t(first.columns);
  args.tiles = pointer<const MoeTile>(tileList);
  args.tileCount = pointer<const int32_t>(tileCount);
  args.order = pointer<const int32_t>(order);
  args.situ = layer.situ;
  args.beta = layer.beta;
  args.lambda = layer.lambda;
  return args;
}

Status MoePass::wideProduct(const Kernels &kernels, CUstream stream,
                            bool gated) const {
  const ExpertMatrix &first = gated ? layer.gate : layer.down;
  const WideShape &shape = wideShapeOf(layer, tokens);
  auto args =
      productArgs<MoeWideArgs>(layer, gated, tileList, tileCount, order);
  args.x = pointer<const char>(gated ? panels : hiddenPanels);
  args.hidden = pointer<char>(hiddenPanels);
  args.y = results;
  const ExpertBlock block = blockOf(first.format);
  const int64_t groups =
      ceilDiv(first.rows, kExpertRows * WideShape::kBlocks / (gated ? 2 : 1));
  if (tiles > std::numeric_limits<int32_t>::max() / groups)
    return refuse("a mixture of experts has too many tokens at once: " +
                  std::to_string(tokens));
  const int64_t blocks = int64_t(kernels.device().processors) * shape.blocks;
  return kernels.launch(
      stream,
      std::string("plum_wide_") + nameOf(first.format) +
          (gated ? "_gated_" : "_") + std::to_string(shape.tokens),
      {std::min(tiles * groups, blocks)}, args,
      shape.sharedBytes(int(block.columns), int(block.bytes)));
}

Status MoePass::product(const Kernels &kernels, CUstream stream,
                        bool gated) const {
  if (wide)
    return wideProduct(kernels, stream, gated);
  const ExpertMatrix &first = gated ? layer.gate : layer.down;
  auto args =
      productArgs<MoeProductArgs>(layer, gated, tileList, tileCount, order);
  args.x = gated ? x : hidden;
  args.divisor = gated ? int32_t(layer.chosen) : 0;
  args.y = gated ? hidden : results;
  const ExpertBlock block = blockOf(first.format);
  const MoeShape &shape = shapeOf(layer, tokens);
  const int64_t rows = shape.warps * kExpertRows * (gated ? 1 : 2);
  return kernels.launch(
      stream,
      std::string("plum_experts_") + nameOf(first.format) +
          (gated ? "_gated_" : "_") + std::to_string(shape.tokens),
      {tiles * ceilDiv(first.rows, rows)}, args,
      shape.sharedBytes(int(block.columns), int(block.bytes)));
}

Status MoePass::gateUp(const Kernels &kernels, CUstream stream) const {
  return product(kernels, stream, true);
}
Status MoePass::down(const Kernels &kernels, CUstream stream) const {
  return product(kernels, stream, false);
}

Status MoePass::sum(const Kernels &kernels, CUstream stream) const {
  MoeCombineArgs args;
  args.x = results;
  args.y = y;
  args.weights = pointer<const float>(weights);
  args.tokens = tokens;
  args.width = layer.down.rows;
  args.chosen = int32_t(layer.chosen);
  return kernels.launch(stream, "plum_moe_combine",
                        {tokens, ceilDiv(args.width, 256 * 8)}, args);
}

Status moeForward(const Kernels &kernels, CUstream stream,
                  const MoeLayer &layer, int64_t tokens, Rows x, Rows logits,
                  Rows y, CUdeviceptr workspace) {
  Result<MoePass> pass = MoePass::make(layer, tokens, x, logits, y, workspace);
  if (!pass)
    return pass.error();
  Status (MoePass::*const steps[])(const Kernels &, CUstream)
      const = {&MoePass::route,  &MoePass::plan, &MoePass::gather,
               &MoePass::gateUp, &MoePass::down, &MoePass::sum};
  for (auto step : steps)
    if (tokens > 0)
      if (Status status = ((*pass).*step)(kernels, stream); !status)
        return status;
  return Status::ok();
}

} // namespace plum::runtime::cuda
