//===- Inputs.cpp - Portable random tensors -------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

namespace plum::runtime {

uint32_t portableHash(uint32_t seed, uint32_t tid, uint32_t i) {
  uint32_t x = ((seed * 0x9E3779B1u) ^ (tid * 0x85EBCA77u)) + i * 0x9E3779B9u;
  x ^= x >> 16;
  x *= 0x21F0AAADu;
  x ^= x >> 15;
  x *= 0xD35A2D97u;
  x ^= x >> 15;
  return x;
}

double portableUniform(uint32_t seed, uint32_t tid, uint32_t i) {
  return (portableHash(seed, tid, i) + 0.5) / 4294967296.0;
}

double portableNormal(uint32_t seed, uint32_t tid, uint32_t i) {
  return std::sqrt(-2 * std::log(portableUniform(seed, tid, 2 * i))) *
         std::cos(2 * std::numbers::pi * portableUniform(seed, tid, 2 * i + 1));
}

namespace {

enum class Kind { Normal, UnitRow, LogDecay, Strength };

struct Recipe {
  uint32_t tid;
  Kind kind;
};

bool isLogDecay(const Manifest &manifest, const std::string &name) {
  return std::count(manifest.logDecays.begin(), manifest.logDecays.end(), name);
}

std::vector<Recipe> inputRecipes(const Manifest &manifest) {
  std::vector<Recipe> recipes;
  uint32_t decays = 0;
  for (const ManifestTensor &input : manifest.inputs) {
    uint32_t other = 16 + uint32_t(recipes.size());
    if (isLogDecay(manifest, input.name)) {
      recipes.push_back({decays == 0 ? 4 : 8 + decays, Kind::LogDecay});
      ++decays;
    } else if (input.name == "q")
      recipes.push_back({1, Kind::UnitRow});
    else if (input.name == "k")
      recipes.push_back({2, Kind::UnitRow});
    else if (input.name == "v")
      recipes.push_back({3, Kind::Normal});
    else if (input.name == "beta")
      recipes.push_back({5, Kind::Strength});
    else
      recipes.push_back({other, Kind::Normal});
  }
  return recipes;
}

/// Row `row` of d values.
void fillRow(const Recipe &recipe, uint32_t seed, TensorView &view, int64_t row,
             std::vector<double> &values) {
  int64_t d = view.shape[3];
  values.resize(size_t(d));
  double squares = 0;
  for (int64_t c = 0; c < d; ++c) {
    double x = portableNormal(seed, recipe.tid, uint32_t(row * d + c));
    if (recipe.kind == Kind::LogDecay)
      x = -(x > 30 ? x : std::log1p(std::exp(x)));
    else if (recipe.kind == Kind::Strength)
      x = 1 / (1 + std::exp(-x));
    squares += x * x;
    values[size_t(c)] = x;
  }
  double scale = recipe.kind == Kind::UnitRow ? 1 / std::sqrt(squares) : 1;
  for (int64_t c = 0; c < d; ++c)
    storeFromDouble(view.data, view.dtype, size_t(row * d + c),
                    values[size_t(c)] * scale);
}

/// The rows that the growing states in `view` hold, out of `most`: numbers of
/// `type`, as those that are appended will be.
void fillRows(uint32_t seed, uint32_t tid, const TensorView &view, DType type,
              const IndexView &past, int64_t most, ThreadPool &pool) {
  int64_t heads = view.shape[1], room = view.shape[2], d = view.shape[3];
  pool.run(ThreadPool::available(), view.shape[0] * heads, [&](int, int64_t i) {
    auto *to = reinterpret_cast<float *>(view.at(i / heads, i % heads, 0));
    int64_t held = past[i / heads] * d;
    for (int64_t c = 0; c < held; ++c) {
      uint32_t number = 0;
      storeFromDouble(&number, type, 0,
                      portableNormal(seed, tid, uint32_t(i * most * d + c)));
      to[c] = float(loadAsDouble(&number, type, 0));
    }
    std::fill(to + held, to + room * d,
              std::numeric_limits<float>::quiet_NaN());
  });
}

} // namespace

Result<RandomProblem> randomProblem(const Manifest &manifest, int64_t batch,
                                    int64_t tokens, int64_t heads,
                                    uint32_t seed, ThreadPool &pool,
                                    int64_t past, int64_t listHeads) {
  RandomProblem problem;
  bool enough = true;
  auto allocate = [&](DType dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
    AlignedBuffer memory;
    size_t bytes = byteSize(dtype);
    for (int64_t extent : {a, b, c, d})
      enough &= !__builtin_mul_overflow(bytes, size_t(extent), &bytes);
    enough = enough && memory.reserve(bytes);
    if (enough)
      std::memset(memory.data(), 0, bytes);
    problem.buffers.push_back(std::move(memory));
    return TensorView::dense(problem.buffers.back().data(), dtype, a, b, c, d);
  };
  RunArgs &args = problem.args;
  if (listHeads == 0)
    listHeads = heads;
  std::vector<int64_t> headsOf(manifest.inputs.size(), heads);
  for (size_t s = 0; s < manifest.states.size(); ++s)
    if (std::optional<size_t> input = manifest.rowsInput(s))
      headsOf[*input] = listHeads;
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    const ManifestTensor &t = manifest.inputs[i];
    args.inputs.push_back(
        allocate(t.dtype, batch, tokens, headsOf[i], t.elements()));
  }
  for (const ManifestTensor &t : manifest.params)
    args.params.push_back(allocate(t.dtype, 1, 1, heads, t.elements()));
  for (const ManifestTensor &t : manifest.outputs)
    args.outputs.push_back(
        allocate(t.dtype, batch, tokens, heads, t.elements()));
  bool grow = manifest.growingState();
  int64_t room = 0;
  enough &= !__builtin_add_overflow(past, tokens, &room);
  for (size_t s = 0; s < manifest.states.size(); ++s) {
    const ManifestTensor &t = manifest.states[s];
    auto [rows, cols] = stateExtents(t, StateLayout::KV);
    if (t.grows)
      rows = room;
    int64_t own = manifest.rowsInput(s) ? listHeads : heads;
    args.finalStates.push_back(allocate(DType::F32, batch, own, rows, cols));
    if (grow) // All states have an initial view, or none.
      args.initialStates.push_back(
          t.grows ? args.finalStates.back()
                  : allocate(DType::F32, batch, own, rows, cols));
  }
  if (grow) {
    TensorView counts = allocate(DType::I64, 1, 1, 1, batch);
    args.past = {counts.data, DType::I64, batch};
    for (int64_t n = 0; enough && n < batch; ++n)
      static_cast<int64_t *>(counts.data)[n] = std::max<int64_t>(past - n, 0);
  }
  if (!enough)
    return Error{"", "no memory for tensors of this shape", {}};

  std::vector<Recipe> recipes = inputRecipes(manifest);
  auto fill = [&](const Recipe &recipe, TensorView view) {
    int64_t rows = view.shape[0] * view.shape[1] * view.shape[2];
    int threads = ThreadPool::available();
    std::vector<std::vector<double>> values;
    values.resize(size_t(threads));
    // In blocks: a row may be a single number.
    constexpr int64_t block = 256;
    pool.run(threads, (rows + block - 1) / block,
             [&](int thread, int64_t index) {
               int64_t end = std::min(rows, (index + 1) * block);
               for (int64_t row = index * block; row < end; ++row)
                 fillRow(recipe, seed, view, row, values[size_t(thread)]);
             });
  };
  for (size_t i = 0; i < recipes.size(); ++i)
    fill(recipes[i], args.inputs[i]);
  for (size_t i = 0; i < manifest.params.size(); ++i)
    fill({48 + uint32_t(i), isLogDecay(manifest, manifest.params[i].name)
                                ? Kind::LogDecay
                                : Kind::Normal},
         args.params[i]);
  for (size_t i = 0; i < manifest.states.size(); ++i)
    if (manifest.states[i].grows) {
      std::optional<size_t> input = manifest.rowsInput(i);
      fillRows(seed, 32 + uint32_t(i), args.finalStates[i],
               input ? manifest.inputs[*input].dtype : DType::F32, args.past,
               past, pool);
    }
  return problem;
}

} // namespace plum::runtime
