//===- MoeBench.cpp - plum-run moe: time a mixture of experts -------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The default sizes are Kimi K3's. Few tokens touch a part of the experts: they
// are timed over several sets of tokens in turn, so that the second-level cache
// does not hold the weights. Times are medians of recorded graphs, of the whole
// and of each step by itself.
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/MoeBench.h"

#include "runtime/tool/Common.h"
#include "runtime/tool/GpuBench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace plum::runtime::tool {

using namespace cuda;

namespace {

struct Options {
  MoeSizes sizes;
  std::string format = "mxfp4";
  std::vector<int64_t> tokens = {1, 16, 64, 256, 2048, 8192}, tiles = {0};
  std::vector<std::string> products = {"auto"};
  int64_t checks = 1;
  double seconds = 0.3, rate = 4.2;
  int gpu = 0;
};

using Step = Status (MoePass::*)(const Kernels &, CUstream) const;
constexpr std::pair<const char *, Step> steps[] = {
    {"route", &MoePass::route},   {"plan", &MoePass::plan},
    {"gather", &MoePass::gather}, {"gate_up", &MoePass::gateUp},
    {"down", &MoePass::down},     {"sum", &MoePass::sum}};

MoeProducts named(const std::string &products) {
  return products == "narrow" ? MoeProducts::Narrow
         : products == "wide" ? MoeProducts::Wide
                              : MoeProducts::ByTokens;
}

class Bench {
public:
  Bench(const Options &options, std::shared_ptr<const Device> device)
      : options(options), kernels(std::move(device)) {}

  Status run() {
    if (Status status = kernels.load(); !status)
      return status;
    if (Status status = weights.make(kernels, options.sizes); !status)
      return status;
    for (Event *event : {&begin, &end}) {
      Result<Event> made = makeEvent(kernels.device());
      if (!made)
        return made.error();
      *event = std::move(*made);
    }
    Result<Stream> made = makeStream(kernels.device());
    if (!made)
      return made.error();
    stream = std::move(*made);
    const MoeSizes &sizes = options.sizes;
    fmt::print(
        "{}\n{} experts, {} a token, {} -> {}, {}, {:.1f} MB each\n"
        "{:>6} {:>6} {:>4} {:>8}  {:>6} {:>6} {:>6} {:>7} {:>7} {:>6} us  "
        "{:>6} {:>5} {:>7} {:>8} {:>6}\n",
        kernels.device().name, sizes.experts, sizes.chosen, sizes.width,
        sizes.wide, options.format, double(weights.expertBytes()) / 1e6,
        "tokens", "by", "tile", "ms", "route", "plan", "gather", "gate_up",
        "down", "sum", "TB/s", "floor", "TFLOP/s", "error", "bits");
    for (int64_t tokens : options.tokens) {
      first.clear();
      for (const std::string &products : options.products)
        for (int64_t tile : options.tiles)
          if (takes(products, tile))
            if (Status status = line(tokens, products, tile); !status)
              return status;
    }
    return Status::ok();
  }

private:
  /// A list of tiles is for both families.
  bool takes(const std::string &products, int64_t tile) const {
    return bool(checkTile(familyOf(products), tile));
  }
  MoeProducts familyOf(const std::string &products) const {
    return hasWideProducts(kernels) ? named(products) : MoeProducts::Narrow;
  }

  /// In how many numbers of the first outputs this one has other bits than the
  /// first of so many tokens.
  Result<int64_t> differing(const MoeRun &run) {
    const size_t most = 64;
    std::vector<uint16_t> y(std::min(size_t(run.tokens), most) *
                            size_t(weights.layer().gate.columns));
    const Device &device = kernels.device();
    if (Status status = device.driver().check(
            "cuMemcpyDtoH",
            device.driver().cuMemcpyDtoH(y.data(), run.y.get(), y.size() * 2));
        !status)
      return status.error();
    if (first.empty())
      first = y;
    int64_t count = 0;
    for (size_t i = 0; i < y.size(); ++i)
      count += y[i] != first[i];
    return count;
  }

  Status line(int64_t tokens, const std::string &products, int64_t tile) {
    MoeLayer layer = weights.layer();
    layer.products = familyOf(products);
    layer.tile = tile;
    const size_t sets = tokens <= 64 ? 4 : 1;
    std::vector<MoeRun> runs(sets);
    int64_t touched = 0;
    Current current(kernels.device());
    for (size_t i = 0; i < sets; ++i) {
      if (Status status = runs[i].make(kernels, layer, tokens,
                                       uint32_t(1u << 20) + uint32_t(i) * 2);
          !status)
        return status;
      for (auto [name, step] : steps)
        if (Status status = (runs[i].pass[0].*step)(kernels, nullptr); !status)
          return status;
      Result<std::vector<int32_t>> experts = runs[i].chosen(kernels, layer);
      if (!experts)
        return experts.error();
      std::sort(experts->begin(), experts->end());
      touched +=
          std::unique(experts->begin(), experts->end()) - experts->begin();
    }
    Result<int64_t> bits = differing(runs[0]);
    if (!bits)
      return bits.error();
    double error = 0;
    for (int64_t i = 0; i < std::min(options.checks, tokens); ++i) {
      const int64_t token =
          i * (tokens - 1) / std::max<int64_t>(1, options.checks - 1);
      Result<double> off = runs[0].error(kernels, weights, token);
      if (!off)
        return off.error();
      error = *off <= error ? error : *off;
    }
    Result<double> all = time(runs, [&](const MoePass &pass) -> Status {
      for (auto [name, step] : steps)
        if (Status status = (pass.*step)(kernels, stream.get()); !status)
          return status;
      return Status::ok();
    });
    if (!all)
      return all.error();
    std::vector<double> each;
    for (auto [name, step] : steps) {
      if (step == &MoePass::gather && !runs[0].pass[0].wide) {
        each.push_back(0);
        continue;
      }
      Result<double> one = time(runs, [&, step = step](const MoePass &pass) {
        return (pass.*step)(kernels, stream.get());
      });
      if (!one)
        return one.error();
      each.push_back(*one * 1e3);
    }
    const double bytes =
        double(touched) / double(sets) * double(weights.expertBytes());
    const double flops = 6.0 * double(tokens * layer.chosen) *
                         double(layer.gate.rows) * double(layer.gate.columns);
    fmt::print("{:>6} {:>6} {:>4} {:>8.3f}  {:>6.1f} {:>6.1f} {:>6.1f} "
               "{:>7.1f} {:>7.1f} {:>6.1f}     {:>6.2f} {:>4.0f}% {:>7.0f} "
               "{:>8.1e} {:>6}\n",
               tokens, runs[0].pass[0].wide ? "wide" : "narrow",
               runs[0].pass[0].tile, *all, each[0], each[1], each[2], each[3],
               each[4], each[5], bytes / *all / 1e9,
               100 * bytes / *all / 1e9 / options.rate, flops / *all / 1e9,
               error, *bits);
    std::fflush(stdout);
    constexpr double most = 0.05;
    if (!(error < most))
      return Error{"",
                   fmt::format("outputs for {} tokens are off by {:.2g} of "
                               "their size, expected below {}",
                               tokens, error, most),
                   {}};
    return Status::ok();
  }

  /// The median time of one set, in ms.
  template <typename Fn>
  Result<double> time(const std::vector<MoeRun> &runs, Fn launch) {
    Result<Graph> graph =
        record(kernels.device(), stream.get(), [&]() -> Status {
          for (const MoeRun &run : runs)
            if (Status status = launch(run.pass[0]); !status)
              return status;
          return Status::ok();
        });
    if (!graph)
      return graph.error();
    const Driver &driver = kernels.device().driver();
    auto once = [&]() -> Result<double> {
      float milliseconds = 0;
      CUresult result = driver.cuEventRecord(begin.get(), stream.get());
      if (!result)
        result = driver.cuGraphLaunch(graph->get(), stream.get());
      if (!result)
        result = driver.cuEventRecord(end.get(), stream.get());
      if (!result)
        result = driver.cuEventSynchronize(end.get());
      if (!result)
        result =
            driver.cuEventElapsedTime(&milliseconds, begin.get(), end.get());
      if (result)
        return driver.failure("cuGraphLaunch", result);
      return double(milliseconds) / double(runs.size());
    };
    constexpr int warmups = 3;
    constexpr size_t least = 5, most = 200;
    std::vector<double> times;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; times.size() < most; ++i) {
      Result<double> one = once();
      if (!one)
        return one.error();
      if (i >= warmups)
        times.push_back(*one);
      if (times.size() >= least && std::chrono::duration<double>(
                                       std::chrono::steady_clock::now() - start)
                                           .count() > options.seconds)
        break;
    }
    std::nth_element(times.begin(), times.begin() + long(times.size() / 2),
                     times.end());
    return times[times.size() / 2];
  }

  const Options &options;
  Kernels kernels;
  MoeWeights weights;
  Stream stream;
  Event begin, end;
  std::vector<uint16_t> first; ///< Outputs of the first line of so many tokens.
};

/// One of the families takes each tile; said before a GPU is looked for.
Status checkTiles(const Options &options) {
  for (int64_t tile : options.tiles) {
    Status status = Status::ok();
    for (const std::string &products : options.products)
      if (status = checkTile(named(products), tile); status)
        break;
    if (!status)
      return status;
  }
  return Status::ok();
}

int moe(Options options) {
  options.sizes.mxfp4 = options.format == "mxfp4";
  if (Status status = checkTiles(options); !status)
    return fail(status.error(), "--tile");
  Result<std::shared_ptr<const Device>> device = Device::open(options.gpu);
  if (!device)
    return fail(device.error(), fmt::format("GPU {}", options.gpu));
  if (Status status = Bench(options, *device).run(); !status)
    return fail(status.error(), fmt::format("GPU {}", options.gpu));
  return 0;
}

} // namespace

void addMoe(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "moe", "Time a mixture of experts with random weights on a GPU, and "
             "compare some of its outputs with float64");
  auto options = std::make_shared<Options>();
  MoeSizes &sizes = options->sizes;
  verb->add_option("--experts", sizes.experts, "Experts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--chosen", sizes.chosen, "Experts of a token")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--width", sizes.width, "Columns of inputs and outputs")
      ->check(CLI::Range(int64_t(8), int64_t(1) << 20))
      ->capture_default_str();
  verb->add_option("--wide", sizes.wide, "Columns between gate and down")
      ->check(CLI::Range(int64_t(8), int64_t(1) << 20))
      ->capture_default_str();
  verb->add_option("--format", options->format, "Of the weights")
      ->check(CLI::IsMember({"mxfp4", "bf16"}))
      ->capture_default_str();
  verb->add_option("--tokens", options->tokens,
                   "Numbers of tokens, a line each")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--tile", options->tiles,
                   "The most tokens of a product: 8, 16, 32, 48, 96, 128, of "
                   "wide ones 16, 96; 0: by their number")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--products", options->products,
                   "Kernels: auto, narrow (mma.sync), wide (wgmma)")
      ->delimiter(',')
      ->check(CLI::IsMember({"auto", "narrow", "wide"}))
      ->capture_default_str();
  verb->add_option("--checks", options->checks, "Outputs to compare")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--seconds", options->seconds, "To spend on each time")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--rate", options->rate,
                   "TB/s of memory, for the column 'floor'")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--gpu", options->gpu, "Its number")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->callback([options, &exitCode] { exitCode = moe(*options); });
}

} // namespace plum::runtime::tool
