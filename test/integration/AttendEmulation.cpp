//===- AttendEmulation.cpp - Kernels of growing states, emulated ----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/integration/AttendEmulation.h"
#include "test/integration/GpuEmulation.h"

#include "lib/Pipelines/KernelFacts.h"
#include "plum/Emulator/Emulator.h"
#include "plum/Pipelines/Phases.h"
#include "plum/Reference/Recurrence.h"
#include "runtime/cuda/LaunchPlan.h"

#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <array>
#include <cmath>
#include <deque>
#include <limits>

using namespace plum;
using namespace plum::test;
using runtime::TensorView;

static constexpr double kUntouched = 776; // In bf16 as well.
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {
struct Compiled {
  runtime::Manifest manifest;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::map<std::string, std::unique_ptr<emulator::Kernel>> kernels;
  std::string error;
};
} // namespace

static Compiled compile(const AttendRun &run) {
  Compiled code;
  Source source(run.spec.name + ".plum", run.spec.text);
  CompileOptions options;
  options.spec.dims = run.spec.dims;
  options.target = run.target;
  options.precision = run.precision;
  if (run.chunk)
    options.chunks = {run.chunk};
  CompileReport report;
  Result<std::string> text = compileToPhase(source, options, "nvvm", report);
  if (!text) {
    code.error = text.error().str();
    return code;
  }
  Result<runtime::Manifest> manifest = describeLayer(source, options, report);
  code.manifest = *manifest;
  code.module =
      mlir::parseSourceString<mlir::ModuleOp>(*text, &kernelContext());
  if (mlir::failed(readKernelFacts(*code.module, true, options.chunks,
                                   code.manifest.kernels)))
    code.error = "no facts of kernels";
  for (const runtime::ManifestKernel &kernel : code.manifest.kernels) {
    Result<emulator::Kernel> decoded =
        emulator::Kernel::decode(*code.module, kernel.symbol);
    if (!decoded) {
      code.error = decoded.error().str();
      return code;
    }
    code.kernels[kernel.symbol] =
        std::make_unique<emulator::Kernel>(std::move(*decoded));
  }
  return code;
}

/// The last one is kept: tests run one layer in many ways.
static const Compiled &compiled(const AttendRun &run) {
  static std::string last;
  static Compiled code;
  std::string key = run.spec.text + run.target + std::to_string(run.chunk) +
                    std::to_string(int(run.precision));
  for (const auto &[name, value] : run.spec.dims)
    key += ' ' + name + '=' + std::to_string(value);
  if (last != key) {
    code = compile(run);
    last = key;
  }
  return code;
}

std::string test::refusal(const AttendRun &run) { return compile(run).error; }

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

namespace {

using Shape = std::array<int64_t, 4>;

/// A tensor whose rows are further apart than they need be.
struct Stored {
  std::vector<char> bytes;
  TensorView view;

  Stored(DType dtype, const Shape &shape, double around) {
    const int64_t wide = shape[3] + (shape[3] > 1 ? 8 : 0);
    std::copy(shape.begin(), shape.end(), view.shape);
    const int64_t stride[4] = {shape[1] * shape[2] * wide, shape[2] * wide,
                               wide, 1};
    std::copy(stride, stride + 4, view.stride);
    view.dtype = dtype;
    const int64_t count = std::max<int64_t>(shape[0] * stride[0], 1);
    bytes.resize(size_t(count) * byteSize(dtype));
    for (int64_t i = 0; i < count; ++i)
      storeFromDouble(bytes.data(), dtype, size_t(i), around);
  }
  double get(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return loadAsDouble(bytes.data(), view.dtype,
                        size_t(view.offset(a, b, c, d)));
  }
  void put(int64_t a, int64_t b, int64_t c, int64_t d, double x) {
    storeFromDouble(bytes.data(), view.dtype, size_t(view.offset(a, b, c, d)),
                    x);
  }
};

std::vector<char> indices(const std::vector<int64_t> &values, bool wide) {
  std::vector<char> bytes(std::max<size_t>(values.size(), 1) * (wide ? 8 : 4));
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(bytes.data() + i * (wide ? 8 : 4), &values[i], wide ? 8 : 4);
  return bytes;
}

class Emulation {
public:
  Emulation(const AttendRun &run, const Compiled &code)
      : run(run), code(code), layer(Layer::get(run.spec, run.precision)),
        ast(layer.ast()), N(run.lengths.size()) {
    for (int64_t length : run.lengths)
      begins.push_back(begins.back() + length);
    most = *std::max_element(run.lengths.begin(), run.lengths.end());
  }
  std::vector<double> emulate(double limit);

private:
  /// Of a list, or of the input that its rows are.
  int64_t headsOf(const frontend::Symbol &symbol) const {
    for (const frontend::Symbol *state : ast.states) {
      if (state->shape.kind != frontend::Shape::List ||
          (state != &symbol && ast.rowsOf(*state) != &symbol))
        continue;
      if (auto found = run.headsOf.find(state->name);
          found != run.headsOf.end())
        return found->second;
      return run.listHeads ? run.listHeads : run.heads;
    }
    return run.heads;
  }
  int64_t pastOf(size_t n) const { return run.past.empty() ? 0 : run.past[n]; }
  int64_t slotOf(size_t n) const {
    return run.slots.empty() ? int64_t(n) : run.slots[n];
  }
  int64_t batchOf(size_t n) const { return run.packed ? 0 : int64_t(n); }
  int64_t tokenOf(size_t n, int64_t t) const {
    return run.packed ? begins[n] + t : t;
  }
  double number(const std::string &name, size_t n, int64_t t, int64_t h,
                int64_t c, uint32_t tid) const;
  void fill();
  bool launch();
  std::vector<double> check(double limit);
  void checkLists(size_t n);

  const AttendRun &run;
  const Compiled &code;
  Layer &layer;
  const frontend::Layer &ast;
  const size_t N;
  std::vector<int64_t> begins{0};
  int64_t most = 0;
  std::vector<Stored> params, inputs, before, after, outputs;
};

double Emulation::number(const std::string &name, size_t n, int64_t t,
                         int64_t h, int64_t c, uint32_t tid) const {
  double x =
      run.scale * runtime::portableNormal(
                      run.data, tid,
                      uint32_t(((int64_t(n) * 1009 + t) * 61 + h) * 997 + c));
  return run.change ? run.change(name, int64_t(n), t, h, c, x) : x;
}

void Emulation::fill() {
  uint32_t tid = 1;
  const int64_t B = run.packed ? 1 : int64_t(N);
  const int64_t T = run.packed ? begins.back() + 3 : most;
  for (const frontend::Symbol *param : ast.params) {
    Stored &to = params.emplace_back(
        layer.storage(*param), Shape{1, 1, run.heads, param->shape.cols}, kNaN);
    ++tid;
    for (int64_t h = 0; h < run.heads; ++h)
      for (int64_t c = 0; c < param->shape.cols; ++c)
        to.put(0, 0, h, c,
               0.1 + 0.1 * std::abs(runtime::portableNormal(
                               run.data, tid, uint32_t(h * 997 + c))));
  }
  for (const frontend::Symbol *input : ast.inputs) {
    const int64_t H = headsOf(*input);
    Stored &to = inputs.emplace_back(layer.storage(*input),
                                     Shape{B, T, H, input->shape.cols}, kNaN);
    ++tid;
    for (size_t n = 0; n < N; ++n)
      for (int64_t t = 0; t < run.lengths[n] && slotOf(n) >= 0; ++t)
        for (int64_t h = 0; h < H; ++h)
          for (int64_t c = 0; c < input->shape.cols; ++c)
            to.put(batchOf(n), tokenOf(n, t), h, c,
                   number(input->name, n, t, h, c, tid));
  }
  int64_t pool = int64_t(N), room = 1;
  for (size_t n = 0; n < N; ++n) {
    pool = std::max(pool, slotOf(n) + 2);
    room = std::max(room, pastOf(n) + run.lengths[n] + 1);
  }
  if (run.slots.empty())
    pool = int64_t(N);
  for (const frontend::Symbol *state : ast.states) {
    const int64_t H = headsOf(*state), d = state->shape.cols;
    Stored &to = before.emplace_back(run.list, Shape{pool, H, room, d}, kNaN);
    after.emplace_back(run.apart && run.list == DType::F32 ? DType::BF16
                                                           : run.list,
                       Shape{pool, H, room, d}, kNaN);
    ++tid;
    for (size_t n = 0; n < N; ++n)
      for (int64_t r = 0; r < pastOf(n) && slotOf(n) >= 0; ++r)
        for (int64_t h = 0; h < H; ++h)
          for (int64_t c = 0; c < d; ++c)
            to.put(slotOf(n), h, r, c, number(state->name, n, r, h, c, tid));
    if (!run.apart)
      after.back().bytes = to.bytes;
  }
  for (const frontend::Symbol *output : ast.outputs)
    outputs.emplace_back(layer.storage(*output),
                         Shape{B, T, run.heads, output->shape.cols},
                         kUntouched);
}

bool Emulation::launch() {
  runtime::RunArgs args;
  auto views = [](std::vector<Stored> &stored) {
    std::vector<TensorView> views;
    for (Stored &each : stored)
      views.push_back(each.view);
    return views;
  };
  args.params = views(params);
  args.inputs = views(inputs);
  args.initialStates = views(run.apart ? before : after);
  args.finalStates = views(after);
  args.outputs = views(outputs);
  std::vector<int64_t> byPlace(size_t(after[0].view.shape[0]), -5);
  if (run.tables)
    byPlace.resize(N);
  for (size_t n = 0; n < N; ++n)
    if (slotOf(n) >= 0)
      byPlace[run.tables ? n : size_t(slotOf(n))] = pastOf(n);
  std::vector<char> cu = indices(begins, run.wide),
                    slots = indices(run.slots, run.wide),
                    past = indices(byPlace, run.wide);
  auto index = [&](const std::vector<char> &bytes, size_t count) {
    return runtime::IndexView{bytes.data(), run.wide ? DType::I64 : DType::I32,
                              int64_t(count)};
  };
  if (run.packed)
    args.cuSeqlens = index(cu, begins.size());
  if (!run.slots.empty() && !run.tables)
    args.slots = index(slots, run.slots.size());
  emulator::Memory memory;
  std::vector<std::vector<int64_t>> firsts;
  if (run.tables) {
    args.initialStates = args.finalStates = {};
    for (Stored &list : after) {
      const auto width = int64_t(byteSize(list.view.dtype));
      auto address =
          int64_t(memory.map("list", list.bytes.data(), list.bytes.size()));
      std::vector<int64_t> &table = firsts.emplace_back();
      for (size_t n = 0; n < N; ++n)
        table.push_back(slotOf(n) * list.view.stride[0] * width +
                        (run.wide ? 0 : address));
      args.rowTables.push_back({nullptr, run.wide ? address : 0,
                                list.view.dtype, list.view.stride[2] * width,
                                list.view.stride[1] * width});
    }
  }
  args.past = index(past, byPlace.size());
  runtime::cuda::GpuOptions options;
  options.form = run.chunk ? runtime::Form::Chunk : runtime::Form::Step;
  Result<runtime::cuda::LaunchPlan> plan =
      runtime::cuda::planLaunch(code.manifest, args, options, 4);
  if (!plan) {
    ADD_FAILURE() << plan.error().str();
    return false;
  }
  plum_gpu_args kernelArgs = plan->args;
  size_t count = 0;
  auto map = [&](std::vector<Stored> &stored, const std::string &what) {
    for (Stored &each : stored)
      kernelArgs.tensors[count++].data =
          memory.map(what, each.bytes.data(), each.bytes.size());
  };
  map(params, "param");
  map(inputs, "input");
  if (run.tables) {
    count += after.size();
    for (std::vector<int64_t> &table : firsts)
      kernelArgs.tensors[count++].data =
          memory.map("table", reinterpret_cast<char *>(table.data()),
                     table.size() * sizeof(int64_t));
  } else if (run.apart) {
    map(before, "list");
    map(after, "list after");
  } else {
    map(after, "list");
    for (size_t i = 0; i < after.size(); ++i, ++count)
      kernelArgs.tensors[count].data =
          kernelArgs.tensors[count - after.size()].data;
  }
  map(outputs, "output");
  if (run.packed)
    kernelArgs.cu_seqlens = memory.map("cu_seqlens", cu.data(), cu.size());
  if (args.slots)
    kernelArgs.slots = memory.map("slots", slots.data(), slots.size());
  kernelArgs.past = memory.map("past", past.data(), past.size());
  kernelArgs.workspace = memory.allocate(
      "workspace", std::max<uint64_t>(plan->workspace.bytes, 1));
  kernelArgs.chunk_offsets =
      kernelArgs.workspace + plan->workspace.chunkOffsets;
  kernelArgs.blobs = kernelArgs.workspace + plan->workspace.blobs;
  emulator::Options emulation;
  emulation.seed = run.seed;
  for (const auto &each : plan->launches) {
    const std::string &symbol = code.manifest.kernels[each.kernel].symbol;
    if (each.ifApart && !run.apart)
      continue;
    Status status = code.kernels.at(symbol)->launch(
        {.grid = each.grid},
        llvm::ArrayRef(reinterpret_cast<const uint8_t *>(&kernelArgs),
                       sizeof(kernelArgs)),
        memory, emulation);
    if (!status) {
      ADD_FAILURE() << symbol << ": " << status.error().str();
      return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Truth
//===----------------------------------------------------------------------===//

/// Rows so far as they were, behind the last one NaN.
void Emulation::checkLists(size_t n) {
  for (size_t s = 0; s < after.size(); ++s) {
    const TensorView &view = after[s].view;
    int64_t changed = 0, behind = 0;
    for (int64_t h = 0; h < view.shape[1]; ++h)
      for (int64_t r = 0; r < view.shape[2]; ++r)
        for (int64_t c = 0; c < view.shape[3]; ++c) {
          double x = after[s].get(slotOf(n), h, r, c);
          double old = before[s].get(slotOf(n), h, r, c);
          if (view.dtype == DType::BF16)
            old = bf16ToFloat(floatToBf16(float(old)));
          if (r < pastOf(n))
            changed += x != old && (run.apart ? run.lengths[n] > 0 : true);
          else if (r >= pastOf(n) + run.lengths[n])
            behind += !std::isnan(x);
        }
    EXPECT_EQ(changed, 0) << "rows of " << ast.states[s]->name;
    EXPECT_EQ(behind, 0) << "rows behind " << ast.states[s]->name;
  }
}

std::vector<double> Emulation::check(double limit) {
  std::vector<double> all;
  double error = 0, size = 0, worst = 0;
  for (size_t n = 0; n < N; ++n) {
    const int64_t T = run.lengths[n], past = pastOf(n);
    if (slotOf(n) < 0) {
      for (int64_t t = 0; t < T; ++t)
        EXPECT_EQ(outputs[0].get(batchOf(n), tokenOf(n, t), 0, 0), kUntouched);
      continue;
    }
    checkLists(n);
    for (int64_t h = 0; h < run.heads; ++h) {
      reference::Head head;
      head.tokens = T;
      head.past = past;
      std::deque<std::vector<double>> memory;
      auto rowsOf = [&](const Stored &from, const frontend::Symbol &symbol,
                        int64_t a, int64_t first, int64_t count,
                        bool headsFirst) {
        std::vector<double> &to = memory.emplace_back();
        const int64_t own =
            h / (run.heads / from.view.shape[headsFirst ? 1 : 2]);
        for (int64_t r = first; r < first + count; ++r)
          for (int64_t c = 0; c < symbol.shape.cols; ++c)
            to.push_back(headsFirst ? from.get(a, own, r, c)
                                    : from.get(a, r, own, c));
        return std::span<double>(to);
      };
      for (size_t i = 0; i < params.size(); ++i)
        head.params.push_back(
            rowsOf(params[i], *ast.params[i], 0, 0, 1, false));
      for (size_t i = 0; i < inputs.size(); ++i)
        head.inputs.push_back(rowsOf(inputs[i], *ast.inputs[i], batchOf(n),
                                     tokenOf(n, 0), T, false));
      for (size_t s = 0; s < before.size(); ++s) {
        std::span<double> rows =
            rowsOf(before[s], *ast.states[s], slotOf(n), 0, past, true);
        memory.back().resize(size_t((past + T) * ast.states[s]->shape.cols));
        rows = std::span<double>(memory.back());
        head.states.push_back(rows);
      }
      for (const frontend::Symbol *output : ast.outputs)
        head.outputs.push_back(std::span<double>(memory.emplace_back(
            std::vector<double>(size_t(T * output->shape.cols)))));
      reference::run(ast, head);
      for (size_t o = 0; o < outputs.size(); ++o)
        for (int64_t t = 0; t < T; ++t) {
          double rowError = 0, rowSize = 0;
          const int64_t d = ast.outputs[o]->shape.cols;
          for (int64_t c = 0; c < d; ++c) {
            double got = outputs[o].get(batchOf(n), tokenOf(n, t), h, c);
            double truth = head.outputs[o][size_t(t * d + c)];
            all.push_back(got);
            rowError += (got - truth) * (got - truth);
            rowSize += truth * truth;
          }
          error += rowError;
          size += rowSize;
          worst = std::max(worst, std::sqrt(rowError / (rowSize + 1e-30)));
        }
      for (size_t s = 0; s < after.size(); ++s) {
        const int64_t d = ast.states[s]->shape.cols,
                      own = h / (run.heads / after[s].view.shape[1]);
        for (int64_t r = past; r < past + T; ++r)
          for (int64_t c = 0; c < d; ++c) {
            double truth = head.states[s][size_t(r * d + c)];
            double x = after[s].get(slotOf(n), own, r, c);
            if (!(std::abs(x - truth) <= 4e-3 * std::abs(truth) + 1e-6)) {
              ADD_FAILURE() << "row " << r << " of " << ast.states[s]->name
                            << " has " << x << ", expected " << truth;
              return {};
            }
          }
      }
    }
  }
  if (run.packed) // Rows of no sequence.
    for (int64_t t = begins.back(); t < begins.back() + 3; ++t)
      EXPECT_EQ(outputs[0].get(0, t, 0, 0), kUntouched);
  if (std::getenv("PLUM_PRINT_ERRORS"))
    std::printf("%s: R %.2e, of a row %.2e\n", run.spec.name.c_str(),
                std::sqrt(error / size), worst);
  if (size == 0)
    EXPECT_EQ(error, 0);
  else
    EXPECT_TRUE(std::sqrt(error / size) <= limit)
        << run.spec.name << ": R " << std::sqrt(error / size);
  EXPECT_TRUE(worst <= 4 * limit || size == 0) << "of a row " << worst;
  return all;
}

std::vector<double> Emulation::emulate(double limit) {
  fill();
  if (!launch())
    return {};
  return check(limit);
}

} // namespace

std::vector<double> test::emulate(const AttendRun &run, double limit) {
  const Compiled &code = compiled(run);
  EXPECT_EQ(code.error, "");
  if (!code.error.empty())
    return {};
  return Emulation(run, code).emulate(limit);
}
