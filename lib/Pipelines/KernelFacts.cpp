//===- KernelFacts.cpp - What a manifest says of kernels --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelFacts.h"

#include "plum/Conversion/Passes.h"

#include <numeric>

using namespace mlir;
using namespace plum;
using namespace plum::runtime;

/// The flops of the products and what `plum.flops` adds to them.
static void readWork(LLVM::LLVMFuncOp function, ManifestKernel &kernel) {
  if (auto flops = function->getAttrOfType<IntegerAttr>(kFlopsAttr))
    kernel.flopsPerChunk = flops.getInt();
  auto products = function->getAttrOfType<ArrayAttr>(kMatmulsAttr);
  if (!products)
    return;
  for (auto product : products.getAsRange<DictionaryAttr>()) {
    auto number = [&](StringRef key) {
      return product.getAs<IntegerAttr>(key).getInt();
    };
    ManifestMatmul matmul{product.getAs<StringAttr>("what").getValue().str(),
                          number("m"), number("n"), number("k"), 1};
    kernel.flopsPerChunk += 2 * matmul.m * matmul.n * matmul.k;
    kernel.matmuls.push_back(matmul);
  }
}

/// A name of an enumeration that has `values` of them, as an attribute.
template <typename Enum>
static LogicalResult readName(LLVM::LLVMFuncOp function, StringRef attribute,
                              ArrayRef<Enum> values, Enum &result) {
  if (auto text = function->getAttrOfType<StringAttr>(attribute))
    for (Enum value : values)
      if (text.getValue() == StringRef(name(value))) {
        result = value;
        return success();
      }
  return function->emitOpError("kernel has no valid '") << attribute << "'";
}

/// What the launch of a GPU kernel takes.
static LogicalResult readLaunch(LLVM::LLVMFuncOp function,
                                ManifestKernel &kernel) {
  using enum KernelRole;
  if (failed(readName(function, kFormAttr,
                      {KernelForm::Step, KernelForm::Chunk}, kernel.form)) ||
      failed(readName(function, kRoleAttr,
                      {Index, Prepare, Scan, Summary, Combine, Step, Carry,
                       Append, Attend, Merge},
                      kernel.role)) ||
      failed(readName(function, kGridAttr,
                      {KernelGrid::One, KernelGrid::Chunks,
                       KernelGrid::Sequences, KernelGrid::Tokens},
                      kernel.grid)))
    return failure();
  struct Field {
    StringRef attribute;
    int64_t ManifestKernel::*member;
    bool required;
  };
  const Field fields[] = {
      {kSlicesAttr, &ManifestKernel::slices, true},
      {kThreadsAttr, &ManifestKernel::threads, true},
      {kSharedBytesAttr, &ManifestKernel::sharedBytes, true},
      {kBlobBytesAttr, &ManifestKernel::blobBytes, false},
      {kSegmentBytesAttr, &ManifestKernel::segmentBytes, false},
      {kHeadBlockAttr, &ManifestKernel::headBlock, false}};
  for (const Field &field : fields) {
    auto number = function->getAttrOfType<IntegerAttr>(field.attribute);
    if (number)
      kernel.*field.member = number.getInt();
    else if (field.required)
      return function->emitOpError("kernel has no '") << field.attribute << "'";
  }
  if (kernel.form == KernelForm::Chunk && !function->hasAttr(kChunkAttr))
    return function->emitOpError("kernel has no '") << kChunkAttr << "'";
  return success();
}

LogicalResult plum::readKernelFacts(ModuleOp module, bool onGpu,
                                    const std::vector<int64_t> &chunks,
                                    std::vector<ManifestKernel> &kernels) {
  std::vector<ManifestKernel> found;
  StringRef sign = onGpu ? kFormAttr : kWorkspaceAttr;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>()) {
    if (!function->hasAttr(sign))
      continue;
    ManifestKernel kernel;
    kernel.symbol = function.getName().str();
    if (auto bytes = function->getAttrOfType<IntegerAttr>(kWorkspaceAttr))
      kernel.workspaceBytes = bytes.getInt();
    if (auto chunk = function->getAttrOfType<IntegerAttr>(kChunkAttr)) {
      kernel.form = KernelForm::Chunk;
      kernel.chunk = chunk.getInt();
    }
    readWork(function, kernel);
    if (onGpu && failed(readLaunch(function, kernel)))
      return failure();
    found.push_back(std::move(kernel));
  }
  // std::sort keeps no order among equals, so it sorts places.
  auto rank = [&](size_t place) {
    const ManifestKernel &kernel = found[place];
    auto size = kernel.form == KernelForm::Step
                    ? std::ptrdiff_t(-1)
                    : llvm::find(chunks, kernel.chunk) - chunks.begin();
    return std::pair(size, place);
  };
  std::vector<size_t> places(found.size());
  std::iota(places.begin(), places.end(), size_t(0));
  llvm::sort(places, [&](size_t a, size_t b) { return rank(a) < rank(b); });
  for (size_t place : places)
    kernels.push_back(std::move(found[place]));
  return success();
}
