//===- MoeLayer.cpp - What a mixture of experts may be --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/MoeLayer.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace plum::runtime::cuda {

using namespace kernels;

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

ExpertBlock blockOf(ExpertFormat format) {
  return format == ExpertFormat::MXFP4 ? ExpertBlock{kMxfp4Columns, kMxfp4Bytes}
                                       : ExpertBlock{kBf16Columns, kBf16Bytes};
}

const char *nameOf(ExpertFormat format) {
  return format == ExpertFormat::MXFP4 ? "mxfp4" : "bf16";
}

static int64_t blocksOf(const ExpertMatrix &matrix) {
  return ceilDiv(matrix.rows, kExpertRows) *
         ceilDiv(matrix.columns, blockOf(matrix.format).columns);
}

int64_t ExpertMatrix::expertBytes() const {
  return blocksOf(*this) * blockOf(format).bytes;
}

/// "" or why there is no product with it.
static std::string wrong(const ExpertMatrix &matrix) {
  const int64_t each = matrix.format == ExpertFormat::MXFP4 ? 32 : 8;
  constexpr int64_t most = std::numeric_limits<int32_t>::max() / 2;
  if (matrix.rows < 1 || matrix.rows % 8 || matrix.rows > most)
    return "has " + std::to_string(matrix.rows) +
           " rows, expected a multiple of 8";
  if (matrix.columns < 1 || matrix.columns % each || matrix.columns > most)
    return "has " + std::to_string(matrix.columns) +
           " columns, expected a multiple of " + std::to_string(each);
  if (matrix.data % 16)
    return "is not 16-byte aligned";
  return "";
}

Status packExpert(const Kernels &kernels, CUstream stream,
                  const ExpertMatrix &to, int64_t expert, CUdeviceptr weights,
                  CUdeviceptr scales) {
  if (std::string why = wrong(to); !why.empty())
    return refuse("an expert's matrix " + why);
  const bool packed = to.format == ExpertFormat::MXFP4;
  if (weights % 16 || packed != (scales != 0))
    return refuse("an expert's weights are 16-byte aligned, with scales for "
                  "MXFP4 alone");
  MoePackArgs args;
  args.weights = reinterpret_cast<const void *>(weights);
  args.scales = reinterpret_cast<const uint8_t *>(scales);
  args.to = reinterpret_cast<char *>(to.data +
                                     CUdeviceptr(expert * to.expertBytes()));
  args.rows = to.rows;
  args.columns = to.columns;
  return kernels.launch(stream, packed ? "plum_pack_mxfp4" : "plum_pack_bf16",
                        {blocksOf(to)}, args);
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

Status checkLayer(const MoeLayer &layer) {
  if (layer.experts < 1 || layer.experts > kMoeExperts)
    return refuse("a mixture has 1 to " + std::to_string(kMoeExperts) +
                  " experts, got " + std::to_string(layer.experts));
  if (layer.chosen < 1 ||
      layer.chosen > std::min<int64_t>(layer.experts, kMoeChosen))
    return refuse("a token chooses 1 to " + std::to_string(kMoeChosen) +
                  " of " + std::to_string(layer.experts) + " experts, got " +
                  std::to_string(layer.chosen));
  const std::pair<const char *, const ExpertMatrix *> all[] = {
      {"gate", &layer.gate}, {"up", &layer.up}, {"down", &layer.down}};
  for (auto [name, matrix] : all)
    if (std::string why = wrong(*matrix); !why.empty())
      return refuse(std::string("an expert's ") + name + " " + why);
  if (layer.gate.rows != layer.up.rows ||
      layer.gate.columns != layer.up.columns ||
      layer.gate.format != layer.up.format)
    return refuse("gate and up of experts differ in shape or format");
  if (layer.down.rows != layer.gate.columns ||
      layer.down.columns != layer.gate.rows)
    return refuse("down of experts is [" + std::to_string(layer.down.rows) +
                  ", " + std::to_string(layer.down.columns) + "], expected [" +
                  std::to_string(layer.gate.columns) + ", " +
                  std::to_string(layer.gate.rows) + "]");
  if (layer.situ && !(layer.beta > 0))
    return refuse("SiTU needs beta > 0, got " + std::to_string(layer.beta));
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

template <typename Shape, size_t N>
static const Shape *find(const Shape (&shapes)[N], int64_t tile) {
  auto found = std::find_if(shapes, shapes + N, [&](const Shape &each) {
    return each.tokens == tile;
  });
  return found == shapes + N ? nullptr : found;
}

/// "8, 16 or 32".
template <typename Shape, size_t N>
static std::string tilesOf(const Shape (&shapes)[N]) {
  std::string text;
  for (size_t i = 0; i < N; ++i)
    text += (i == 0       ? ""
             : i + 1 == N ? " or "
                          : ", ") +
            std::to_string(shapes[i].tokens);
  return text;
}

Status checkTile(MoeProducts products, int64_t tile) {
  const bool wide = products == MoeProducts::Wide;
  if (tile == 0 || (wide ? find(kWideShapes, tile) != nullptr
                         : find(kMoeShapes, tile) != nullptr))
    return Status::ok();
  return refuse(std::string(wide ? "wide " : "") +
                "products of experts have tiles of " +
                (wide ? tilesOf(kWideShapes) : tilesOf(kMoeShapes)) +
                " tokens, not " + std::to_string(tile));
}

double pairsOfExpert(const MoeLayer &layer, int64_t tokens) {
  return double(tokens) * double(layer.chosen) / double(layer.experts);
}

const MoeShape &shapeOf(const MoeLayer &layer, int64_t tokens) {
  if (const MoeShape *shape = find(kMoeShapes, layer.tile))
    return *shape;
  const double mean = pairsOfExpert(layer, tokens);
  constexpr double limits[] = {4, 10, 20, 48, 96};
  size_t i = 0;
  while (i < std::size(limits) && mean > limits[i])
    ++i;
  return kMoeShapes[i];
}

const WideShape &wideShapeOf(const MoeLayer &layer, int64_t tokens) {
  if (const WideShape *shape = find(kWideShapes, layer.tile))
    return *shape;
  return kWideShapes[pairsOfExpert(layer, tokens) > 8];
}

} // namespace plum::runtime::cuda
