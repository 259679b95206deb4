//===- Products.cpp - Rows times weights ----------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Work is cut along the rows of the weights, so that every weight is read by
// one thread. Few tokens read it as it is stored (Dots.h); many widen a block
// of it to f32 and leave the product to OpenBLAS.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Backend.h"
#include "runtime/model/Blas.h"
#include "runtime/model/Dots.h"
#include "runtime/model/Work.h"

#include <algorithm>

namespace plum::model {

namespace {

/// From so many tokens on, widening a weight costs less than OpenBLAS gains.
struct Part {
  const Product *product;
  int64_t begin, rows;
};

void runPart(const Work &work, int thread, const Part &block,
             const Blas *blas) {
  const Product &p = *block.product;
  Matrix part = p.w->slice(block.begin, block.rows);
  View y = p.y.columns(block.begin, block.rows);
  if (!blas || p.x.count < manyRows)
    return DotKernels::get().dots(part, p.x, y);
  auto weights = reinterpret_cast<const float *>(part.data);
  int64_t ldw = part.stride / 4;
  if (part.type != WeightType::F32) {
    float *wide = work.scratch(thread, part.rows * part.cols);
    DotKernels::get().widen(part, wide);
    weights = wide;
    ldw = part.cols;
  }
  blas->timesTransposed(p.x.count, part.rows, part.cols, p.x.data, p.x.stride,
                        weights, ldw, y.data, y.stride);
}

} // namespace

void multiplyExact(const Work &work, std::span<const Product> products) {
  for (const Product &p : products)
    work.weightBytes += p.x.count > 0 ? p.w->bytes() : 0;
  if (work.backend)
    return work.backend->multiply(work, products);
  const Blas *blas = nullptr;
  double cost = 0;
  for (const Product &p : products) {
    cost += double(p.w->rows) * double(p.w->cols) * double(p.x.count) / 8;
    if (p.x.count >= manyRows)
      blas = Blas::get();
  }
  std::vector<Part> blocks;
  for (const Product &p : products) {
    // A few hundred KB at most, a few blocks a thread, whole groups of rows.
    int64_t rows = (p.w->rows + work.threads() - 1) / work.threads();
    rows = std::min(rows, std::max<int64_t>((256 << 10) / p.w->cols, 64));
    rows = (rows + 3) / 4 * 4;
    for (int64_t begin = 0; begin < p.w->rows && p.x.count > 0; begin += rows)
      blocks.push_back({&p, begin, std::min(rows, p.w->rows - begin)});
  }
  work.each(int64_t(blocks.size()), cost, [&](int thread, int64_t i) {
    runPart(work, thread, blocks[size_t(i)], blas);
  });
}

void multiply(const Work &work, std::span<const Product> products) {
  multiplyExact(work, products);
  for (const Product &p : products)
    if (!work.backend)
      work.round(p.y);
}

Rows linear(const Work &work, const View &x, const Matrix &w) {
  Rows y = work.rows(x.count, w.rows);
  Product product{x, &w, y};
  multiply(work, {&product, 1});
  return y;
}

} // namespace plum::model
