//===- Info.cpp - plum-run info: what a bundle is -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/ModelInfo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plum::runtime::tool {

static void printTensors(const char *kind,
                         const std::vector<ManifestTensor> &tensors) {
  for (const ManifestTensor &tensor : tensors) {
    std::string type = fmt::format("[{}] {}", fmt::join(tensor.shape, ", "),
                                   name(tensor.declared));
    if (tensor.grows)
      type.insert(1, "*, ");
    if (tensor.shape.empty())
      type = name(tensor.declared);
    if (tensor.declared != tensor.dtype)
      type += fmt::format(" (kernel: {})", name(tensor.dtype));
    fmt::print("  {:<7} {:<12} {}\n", kind, tensor.name, type);
  }
}

static int info(const std::string &directory) {
  // The manifest alone: a bundle for another machine can be looked at, too.
  Result<Manifest> read = readManifest(directory);
  if (!read)
    return fail(read.error());
  const Manifest &manifest = *read;
  fmt::print("layer {}", manifest.layer);
  for (const auto &[dim, value] : manifest.dims)
    fmt::print(" {}={}", dim, value);
  fmt::print("\n  target {}{}, precision {}, by plum {} with LLVM {}\n",
             manifest.target,
             manifest.cpu.empty() ? "" : " (" + manifest.cpu + ")",
             manifest.precision, manifest.plum, manifest.llvm);
  if (!manifest.features.empty())
    fmt::print("  needs {}\n", fmt::join(manifest.features, " "));
  printTensors("param", manifest.params);
  printTensors("input", manifest.inputs);
  printTensors("state", manifest.states);
  printTensors("output", manifest.outputs);
  if (!manifest.logDecays.empty())
    fmt::print("  must be <= 0: {}\n", fmt::join(manifest.logDecays, " "));
  for (const ManifestKernel &kernel : manifest.kernels) {
    fmt::print("  {:<7} {:<12} {}", "kernel",
               kernel.form == KernelForm::Step
                   ? "step"
                   : fmt::format("chunk {}", kernel.chunk),
               kernel.symbol);
    if (manifest.onGpu())
      fmt::print(", {}: grid {} x {}, {} threads, {} B shared, blob {} B, "
                 "segment {} B",
                 name(kernel.role), name(kernel.grid), kernel.slices,
                 kernel.threads, kernel.sharedBytes, kernel.blobBytes,
                 kernel.segmentBytes);
    else
      fmt::print(", workspace {} bytes", kernel.workspaceBytes);
    if (kernel.flopsPerChunk > 0)
      fmt::print(", {} flops a {}", kernel.flopsPerChunk,
                 kernel.form == KernelForm::Step ? "token" : "chunk");
    fmt::print("\n");
    for (const ManifestMatmul &m : kernel.matmuls)
      fmt::print("            {:<16} [{}, {}] @ [{}, {}] x {}\n", m.what, m.m,
                 m.k, m.k, m.n, m.count);
  }
  return 0;
}

void addInfo(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand("info", "Print what a bundle contains");
  auto choice = std::make_shared<ModelChoice>();
  verb->add_option("bundle", choice->path,
                   "Directory that 'plum compile' wrote, of a layer or a "
                   "model, or a model directory")
      ->required()
      ->type_name("BUNDLE");
  choice->declareDirectory(*verb);
  verb->callback([choice, &exitCode] {
    exitCode = ModelChoice::isModel(choice->path) ? modelInfo(*choice)
                                                  : info(choice->path);
  });
}

} // namespace plum::runtime::tool
