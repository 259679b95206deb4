//===- Attention.cpp - Softmax attention with a cache ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Work is cut into (sequence, head, block of queries); a piece has its scores
// [queries, keys] in its thread's scratch. Many queries use OpenBLAS, few (and
// all, where there is none) the dot kernels.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"

#include "runtime/model/Backend.h"
#include "runtime/model/Blas.h"
#include "runtime/model/Dots.h"

#include <algorithm>
#include <cmath>

namespace plum::model {

namespace {

constexpr int64_t queryBlock = 64;
constexpr int64_t manyQueries = 12;

/// Queries begin .. begin + count of a span, for one head.
struct Piece {
  const Span *span;
  int64_t head, begin, count;
  /// Keys that its last query sees.
  int64_t keys() const { return span->past + begin + count; }
};

std::vector<Piece> cut(const Work &work, int64_t heads) {
  std::vector<Piece> pieces;
  for (const Span &span : work.spans)
    for (int64_t begin = 0; begin < span.length; begin += queryBlock)
      for (int64_t head = 0; head < heads; ++head)
        pieces.push_back(
            {&span, head, begin, std::min(queryBlock, span.length - begin)});
  return pieces;
}

/// c = a b^T (+ c); c = a b.
void timesTransposed(const View &a, const View &b, const View &c,
                     bool sum = false) {
  const Blas *blas = a.count >= manyQueries ? Blas::get() : nullptr;
  if (blas)
    return blas->timesTransposed(a.count, b.count, a.width, a.data, a.stride,
                                 b.data, b.stride, c.data, c.stride, sum);
  if (!sum)
    return DotKernels::get().dots(Matrix::of(b), a, c);
  Rows more(c.count, c.width);
  DotKernels::get().dots(Matrix::of(b), a, more);
  for (int64_t i = 0; i < c.count; ++i)
    for (int64_t j = 0; j < c.width; ++j)
      c.row(i)[j] += more.row(i)[j];
}
void times(const View &a, const View &b, const View &c) {
  const Blas *blas = a.count >= manyQueries ? Blas::get() : nullptr;
  if (blas)
    return blas->times(a.count, b.width, b.count, a.data, a.stride, b.data,
                       b.stride, c.data, c.stride);
  for (int64_t i = 0; i < a.count; ++i)
    DotKernels::get().combine(Matrix::of(b), a.row(i), c.row(i));
}

/// Scores to weights; query i of the piece sees the keys up to itself.
void causalSoftmax(const View &scores, float scale) {
  for (int64_t i = 0; i < scores.count; ++i) {
    float *row = scores.row(i);
    int64_t seen = scores.width - scores.count + i + 1;
    float largest = *std::max_element(row, row + seen);
    float sum = 0;
    for (int64_t j = 0; j < seen; ++j)
      sum += row[j] = std::exp((row[j] - largest) * scale);
    for (int64_t j = 0; j < seen; ++j)
      row[j] /= sum;
    std::fill(row + seen, row + scores.width, 0.0f);
  }
}

double costOf(const std::vector<Piece> &pieces, int64_t width) {
  double cost = 0;
  for (const Piece &piece : pieces)
    cost += double(piece.count) * double(piece.keys()) * double(width) / 8;
  return cost;
}

} // namespace

Rows Attention::run(const Work &work, const View &q, const View &k,
                    const View &v) const {
  if (work.backend)
    return work.backend->attend(work, *this, q, k, v);
  if (memory.kernel) {
    Rows out = memory.run(work, {{q, heads}, {k, heads}, {v, heads}});
    work.round(out);
    return out;
  }
  Rows row(1, cacheWidth());
  for (const Span &span : work.spans)
    for (int64_t t = 0; t < span.length; ++t) {
      std::copy_n(k.row(span.begin + t), k.width, row.row(0));
      std::copy_n(v.row(span.begin + t), v.width, row.row(0) + k.width);
      work.states->append(span.slot, state, row);
    }
  Rows out(q.count, heads * valueDim);
  std::vector<Piece> pieces = cut(work, heads);
  double cost = costOf(pieces, keyDim + valueDim);
  work.each(int64_t(pieces.size()), cost, [&](int thread, int64_t i) {
    const Piece &piece = pieces[size_t(i)];
    int64_t group = piece.head / (heads / groups), keys = piece.keys();
    int64_t first = piece.span->begin + piece.begin;
    View cache = work.states->growing(piece.span->slot, state).rows(0, keys);
    View scores{work.scratch(thread, piece.count * keys), piece.count, keys,
                keys};
    timesTransposed(
        q.rows(first, piece.count).columns(piece.head * keyDim, keyDim),
        cache.columns(group * keyDim, keyDim), scores);
    causalSoftmax(scores, scale);
    times(
        scores, cache.columns(groups * keyDim + group * valueDim, valueDim),
        out.rows(first, piece.count).columns(piece.head * valueDim, valueDim));
  });
  work.round(out);
  return out;
}

Rows LatentAttention::run(const Work &work, const View &q,
                          const View &rows) const {
  if (work.backend)
    return work.backend->attend(work, *this, q, rows);
  for (const Span &span : work.spans)
    work.states->append(span.slot, state, rows.rows(span.begin, span.length));
  Rows out(q.count, heads * valueDim);
  std::vector<Piece> pieces = cut(work, heads);
  const DotKernels &kernels = DotKernels::get();

  auto absorbed = [&](const Piece &piece, float *scratch) {
    int64_t keys = piece.keys(), wide = latent + pe;
    int64_t first = piece.span->begin + piece.begin;
    View cache = work.states->growing(piece.span->slot, state).rows(0, keys);
    View query{scratch, piece.count, wide, wide};
    View scores{scratch + piece.count * wide, piece.count, keys, keys};
    int64_t row = piece.head * (nope + valueDim);
    Matrix keyUp = expand.slice(row, nope);
    Matrix valueUp = expand.slice(row + nope, valueDim);
    for (int64_t t = 0; t < piece.count; ++t) {
      const float *own = q.row(first + t) + piece.head * (nope + pe);
      kernels.combine(keyUp, own, query.row(t));
      std::copy_n(own + nope, pe, query.row(t) + latent);
    }
    timesTransposed(query, cache, scores);
    causalSoftmax(scores, scale);
    View mixed = query.columns(0, latent);
    times(scores, cache.columns(0, latent), mixed);
    kernels.dots(
        valueUp, mixed,
        out.rows(first, piece.count).columns(piece.head * valueDim, valueDim));
  };
  auto expanded = [&](const Piece &piece, float *scratch) {
    int64_t keys = piece.keys(), own = nope + valueDim;
    int64_t first = piece.span->begin + piece.begin;
    View cache = work.states->growing(piece.span->slot, state).rows(0, keys);
    View up{scratch, keys, own, own};
    View scores{scratch + keys * own, piece.count, keys, keys};
    Matrix part = expand.slice(piece.head * own, own);
    float *wide = scores.data + piece.count * keys;
    kernels.widen(part, wide);
    timesTransposed(cache.columns(0, latent), {wide, own, latent, latent}, up);
    View query =
        q.rows(first, piece.count).columns(piece.head * (nope + pe), nope + pe);
    timesTransposed(query.columns(0, nope), up.columns(0, nope), scores);
    timesTransposed(query.columns(nope, pe), cache.columns(latent, pe), scores,
                    /*sum=*/true);
    causalSoftmax(scores, scale);
    times(
        scores, up.columns(nope, valueDim),
        out.rows(first, piece.count).columns(piece.head * valueDim, valueDim));
  };
  work.each(int64_t(pieces.size()), costOf(pieces, 2 * latent),
            [&](int thread, int64_t i) {
              const Piece &piece = pieces[size_t(i)];
              int64_t keys = piece.keys(), own = nope + valueDim;
              bool few = piece.count < manyQueries;
              float *scratch = work.scratch(
                  thread, few ? piece.count * (latent + pe + keys)
                              : keys * (own + piece.count) + own * latent);
              few ? absorbed(piece, scratch) : expanded(piece, scratch);
            });
  work.round(out);
  return out;
}

} // namespace plum::model
