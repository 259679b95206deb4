//===- Run.cpp - plum-run run: a layer on tensors -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/LayerIO.h"
#include "runtime/tool/Common.h"
#include "runtime/tool/Runner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

namespace plum::runtime::tool {

namespace {

constexpr const char *runFooter = R"(Tensors of the input file:
  inputs      [T, H, ...], or [B, T, H, ...] everywhere for a batch; an input
              may have fewer heads than the layer when they divide: head h
              reads head h / group
  params      [H, ...]
  states      [N, H, K, V] f32 or bf16, optional: the initial state (else 0)
  cu_seqlens  [N + 1] int32 or int64, optional: sequence n is rows cu[n] to
              cu[n + 1]; starts at 0, empty sequences are fine; rows past the
              last belong to no sequence
              a growing state [N, H, L, d]; seqlens [N] int32 or int64,
              optional, says how many of the L rows each sequence has
  slots       [N] int32 or int64, optional: states are pools [P, H, K, V] and
              sequence n works on slot slots[n]; -1 is a padding row; seqlens
              is [P]
Tensors of the output file:
  outputs     shaped as the inputs; rows of no sequence are 0
  states      the final state under the same name; with slots the whole pool;
              a growing state as [N, H, L, d], L being the most rows of any
              sequence, 0 behind the end of the others, and seqlens [N]: how
              many rows each has
  S.every     for each state S, with --states-every n: [M, H, K, V], the states
              after n, 2n, ... tokens of each sequence, sequence by sequence;
              not for growing states
  every.cu_seqlens  [N + 1]: which of these belong to which sequence
Tensors named expected.* are ignored; others that the layer does not know are
named in a warning.)";

/// "o [4, 1, 2]", then one line for each row of the last axis, rounded to six
/// digits of the largest value.
void printTensor(const TensorToWrite &tensor) {
  std::string shape;
  int64_t elements = 1;
  for (int64_t d : tensor.shape) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(d);
    elements *= d;
  }
  std::printf("%s [%s]\n", tensor.name.c_str(), shape.c_str());
  double largest = 0;
  for (int64_t i = 0; i < elements; ++i) {
    double value = loadAsDouble(tensor.data, tensor.dtype, size_t(i));
    if (std::isfinite(value))
      largest = std::max(largest, std::fabs(value));
  }
  double unit =
      largest > 0 ? std::pow(10, std::floor(std::log10(largest)) - 5) : 1;
  auto rounded = [&](int64_t i) {
    double value = loadAsDouble(tensor.data, tensor.dtype, size_t(i));
    return std::round(value / unit) * unit + 0.0; // no -0
  };
  int64_t width = tensor.shape.empty() ? 1 : tensor.shape.back();
  for (int64_t i = 0; i < elements; ++i)
    std::printf("%s%g%s", i % width ? " " : "  ", rounded(i),
                (i + 1) % width ? "" : "\n");
}

struct RunVerb {
  Choice choice;
  std::string in, out, layout = "kv", stateDtype;
  int64_t every = 0;
  bool print = false;

  void declare(CLI::App &verb) {
    choice.declare(verb);
    verb.add_option("--in", in, "Input tensors")
        ->required()
        ->type_name("FILE.safetensors");
    verb.add_option("--out", out, "Where to write the results")
        ->type_name("FILE.safetensors");
    verb.add_flag("--print", print,
                  "Print the outputs, one row of the last axis a line (then "
                  "--out may be left out)");
    verb.add_option("--state-layout", layout,
                    "Axes of fixed states in both files: kv is [N, H, K, V], "
                    "vk is [N, H, V, K]")
        ->check(CLI::IsMember({"kv", "vk"}))
        ->capture_default_str();
    verb.add_option("--state-dtype", stateDtype,
                    "Storage of the states written (default: that of the "
                    "initial state, else f32)")
        ->check(CLI::IsMember({"f32", "bf16"}));
    verb.add_option("--states-every", every,
                    "Also write the states after every so many tokens")
        ->check(CLI::PositiveNumber);
    verb.footer(runFooter);
  }

  int run() const {
    Result<Bundle> bundle = choice.open();
    if (!bundle)
      return fail(bundle.error());
    const Manifest &manifest = bundle->manifest();
    Result<Runner> runner = Runner::open(*bundle, choice.gpu);
    if (!runner)
      return fail(runner.error());
    Result<SafetensorsFile> file = SafetensorsFile::open(in);
    if (!file)
      return fail(file.error());
    LayerOptions options;
    options.layout = layout == "vk" ? StateLayout::VK : StateLayout::KV;
    if (!stateDtype.empty())
      options.stateDtype = parseDType(stateDtype);
    options.snapshotEvery = every;
    Result<LayerRun> layer = openLayerRun(manifest, *file, options);
    if (!layer)
      return fail(layer.error());
    for (const std::string &warning : layer->warnings)
      warn(in, warning);
    if (out.empty() && !print)
      return fail({"--out",
                   "is needed to write the results to",
                   {"or '--print' shows the outputs"}});
    std::optional<AtomicFile> target;
    if (!out.empty()) {
      Result<AtomicFile> created = AtomicFile::create(out);
      if (!created)
        return fail(created.error());
      target.emplace(std::move(*created));
    }

    RunOptions runOptions = choice.options();
    {
      const Problem &problem = layer->problem;
      Progress progress("running",
                        int64_t(problem.sequences.size()) * problem.heads);
      runOptions.progress = &progress.done;
      if (Status status = runner->run(layer->args, runOptions); !status)
        return fail(status.error(), in);
    }
    LayerResult result = layerResult(manifest, *layer);
    if (target)
      if (Status status = writeSafetensors(*target, result.tensors); !status)
        return fail(status.error());
    if (print)
      for (const ManifestTensor &output : manifest.outputs)
        for (const TensorToWrite &tensor : result.tensors)
          if (tensor.name == output.name)
            printTensor(tensor);
    return 0;
  }
};

} // namespace

void addRun(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "run", "Run a layer on the tensors of a safetensors file");
  auto options = std::make_shared<RunVerb>();
  options->declare(*verb);
  verb->callback([options, &exitCode] { exitCode = options->run(); });
}

} // namespace plum::runtime::tool
