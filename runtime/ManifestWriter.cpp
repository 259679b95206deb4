//===- ManifestWriter.cpp - Writer of manifest.json -----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Json.h"
#include "runtime/Manifest.h"

namespace plum::runtime {

namespace {

/// For a person's eyes fields stay in the order given.
using OrderedJson = nlohmann::ordered_json;

OrderedJson tensorList(const std::vector<ManifestTensor> &tensors) {
  OrderedJson list = OrderedJson::array();
  for (const ManifestTensor &tensor : tensors) {
    list.push_back({{"name", tensor.name},
                    {"shape", tensor.shape},
                    {"dtype", std::string(name(tensor.dtype))},
                    {"declared", std::string(name(tensor.declared))}});
    if (tensor.grows)
      list.back()["grows"] = true;
    if (!tensor.rows.empty())
      list.back()["rows"] = tensor.rows;
  }
  return list;
}

OrderedJson kernelObject(const ManifestKernel &kernel, bool onGpu) {
  OrderedJson object = {{"form", std::string(name(kernel.form))}};
  if (kernel.form == KernelForm::Chunk)
    object["chunk"] = kernel.chunk;
  object["symbol"] = kernel.symbol;
  object["workspace_bytes"] = kernel.workspaceBytes;
  object["flops_per_chunk"] = kernel.flopsPerChunk;
  object["matmuls"] = OrderedJson::array();
  for (const ManifestMatmul &matmul : kernel.matmuls)
    object["matmuls"].push_back({{"what", matmul.what},
                                 {"m", matmul.m},
                                 {"n", matmul.n},
                                 {"k", matmul.k},
                                 {"count", matmul.count}});
  if (onGpu)
    object.update({{"role", std::string(name(kernel.role))},
                   {"grid", std::string(name(kernel.grid))},
                   {"slices", kernel.slices},
                   {"threads", kernel.threads},
                   {"shared_bytes", kernel.sharedBytes},
                   {"blob_bytes", kernel.blobBytes},
                   {"segment_bytes", kernel.segmentBytes}});
  if (onGpu && kernel.headBlock != ManifestKernel().headBlock)
    object["head_block"] = kernel.headBlock;
  return object;
}

} // namespace

std::string writeManifest(const Manifest &manifest) {
  OrderedJson dims = OrderedJson::object();
  for (const auto &[name, value] : manifest.dims)
    dims[name] = value;
  OrderedJson root = {{"abi", manifest.abi},
                      {"plum", manifest.plum},
                      {"llvm", manifest.llvm},
                      {"layer", manifest.layer},
                      {"target", manifest.target},
                      {"cpu", manifest.cpu},
                      {"features", manifest.features},
                      {"precision", manifest.precision},
                      {"dims", std::move(dims)},
                      {"params", tensorList(manifest.params)},
                      {"inputs", tensorList(manifest.inputs)},
                      {"states", tensorList(manifest.states)},
                      {"outputs", tensorList(manifest.outputs)},
                      {"log_decays", manifest.logDecays},
                      {"object", manifest.object},
                      {"source", manifest.source},
                      {"kernels", OrderedJson::array()}};
  for (const ManifestKernel &kernel : manifest.kernels)
    root["kernels"].push_back(kernelObject(kernel, manifest.onGpu()));
  if (const auto &tuning = manifest.tuning)
    root["tuning"] = {{"from", tuning->from},   {"key", tuning->key},
                      {"shape", tuning->shape}, {"schedule", tuning->schedule},
                      {"ms", tuning->ms},       {"date", tuning->date}};
  return root.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

} // namespace plum::runtime
