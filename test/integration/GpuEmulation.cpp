//===- GpuEmulation.cpp - GPU kernels on a CPU ----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/integration/GpuEmulation.h"

#include "plum/ABI/GpuABI.h"
#include "plum/Conversion/Passes.h"
#include "plum/Emulator/Emulator.h"
#include "plum/Pipelines/Phases.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace plum;
using namespace plum::test;
using frontend::Symbol;

static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
static constexpr double kUntouched = 777;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {
struct CompiledKernel {
  std::unique_ptr<emulator::Kernel> kernel;
  std::string role;
  int64_t slices = 1;
};
struct CompiledLayer {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<CompiledKernel> kernels; ///< In launch order.
  int64_t blobBytes = 0, segmentBytes = 0;
  std::string error;
};
} // namespace

mlir::MLIRContext &plum::test::kernelContext() {
  static mlir::MLIRContext &context = *[] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    registry.insert<mlir::NVVM::NVVMDialect>();
    auto *made = new mlir::MLIRContext(registry);
    made->loadAllAvailableDialects();
    return made;
  }();
  return context;
}

static CompiledLayer compile(const Layer &layer, const Placing &placing) {
  CompiledLayer code;
  Source source(layer.spec.name + ".plum", layer.spec.text);
  CompileOptions options;
  options.spec.dims = layer.spec.dims;
  options.spec.stepOnly = placing.chunk == 0;
  options.form = placing.chunk ? Form::Chunk : Form::Step;
  options.precision = layer.precision;
  options.target = placing.target;
  if (placing.chunk)
    options.chunks = {placing.chunk};
  CompileReport report;
  Result<std::string> text = compileToPhase(source, options, "nvvm", report);
  if (!text) {
    code.error = text.error().str();
    return code;
  }
  mlir::ScopedDiagnosticHandler handler(&kernelContext(),
                                        [&](mlir::Diagnostic &d) {
                                          code.error += d.str() + '\n';
                                          return mlir::success();
                                        });
  code.module =
      mlir::parseSourceString<mlir::ModuleOp>(*text, &kernelContext());
  if (!code.module)
    return code;
  for (auto function : code.module->getOps<mlir::LLVM::LLVMFuncOp>()) {
    auto form = function->getAttrOfType<mlir::StringAttr>(kFormAttr);
    if (!form || form != (placing.chunk ? "chunk" : "step"))
      continue;
    auto number = [&](llvm::StringRef name) {
      auto attr = function->getAttrOfType<mlir::IntegerAttr>(name);
      return attr ? attr.getInt() : 0;
    };
    Result<emulator::Kernel> kernel =
        emulator::Kernel::decode(*code.module, function.getSymName());
    if (!kernel) {
      code.error = kernel.error().str();
      code.kernels.clear();
      return code;
    }
    code.kernels.push_back(
        {std::make_unique<emulator::Kernel>(std::move(*kernel)),
         function->getAttrOfType<mlir::StringAttr>(kRoleAttr).str(),
         number(kSlicesAttr)});
    code.blobBytes = std::max(code.blobBytes, number(kBlobBytesAttr));
    code.segmentBytes = std::max(code.segmentBytes, number(kSegmentBytesAttr));
  }
  return code;
}

/// The last layer's kernel is kept: tests run one layer in many ways.
static const CompiledLayer &compiled(const Layer &layer,
                                     const Placing &placing) {
  static const Layer *last = nullptr;
  static std::string text;
  static CompiledLayer code;
  std::string key = layer.spec.text + std::to_string(int(layer.precision)) +
                    std::to_string(placing.chunk) + placing.target;
  for (const auto &[name, value] : layer.spec.dims)
    key += ' ' + name + '=' + std::to_string(value);
  if (last != &layer || text != key) {
    code = compile(layer, placing);
    last = &layer;
    text = key;
  }
  return code;
}

std::string test::refused(const Layer &layer) {
  CompiledLayer code = compile(layer, {});
  EXPECT_TRUE(code.kernels.empty()) << "a kernel of " << layer.spec.text;
  return code.error;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

namespace {

/// A tensor in host memory that the emulated GPU sees.
struct Buffer {
  std::vector<char> bytes;
  DType dtype = DType::F32;
  plum_gpu_tensor entry = {};

  void allocate(DType type, int64_t elements, double poison) {
    dtype = type;
    bytes.resize(size_t(std::max<int64_t>(elements, 1)) * byteSize(type));
    for (int64_t i = 0; i < elements; ++i)
      storeFromDouble(bytes.data(), type, size_t(i), poison);
  }
  size_t index(int64_t bytesIn) const {
    return size_t(bytesIn) / byteSize(dtype);
  }
  double get(int64_t at) const {
    return loadAsDouble(bytes.data(), dtype, index(at));
  }
  void put(int64_t at, double value) {
    storeFromDouble(bytes.data(), dtype, index(at), value);
  }
};

class Emulation {
public:
  Emulation(const Layer &layer, const Data &data, const Placing &placing)
      : layer(layer), data(data), placing(placing) {}
  Values run(const CompiledLayer &code);

private:
  bool isPadding(int64_t n) const {
    return !placing.slots.empty() && placing.slots[size_t(n)] < 0;
  }
  int64_t slotOf(int64_t n) const {
    return placing.slots.empty() ? n : placing.slots[size_t(n)];
  }
  /// Of sequence n; one that is padding has a place for them in a batch.
  int64_t snapshotsOf(int64_t n) const {
    bool packed = !data.cuSeqlens.empty();
    return !placing.snapshotEvery || (packed && isPadding(n))
               ? 0
               : data.length(n) / placing.snapshotEvery;
  }
  /// [B, T, h, d], rows `rowPadding` elements apart.
  Buffer rows(DType dtype, const int64_t (&shape)[4], double poison);
  Buffer states(const Symbol &state, double poison, int64_t count = 0);
  int64_t stateAt(const Buffer &buffer, int64_t slot, int64_t h, int64_t k,
                  int64_t v) const;
  void putStates(Buffer &buffer, const Symbol &state);
  void expectUntouched(const Buffer &before, const Buffer &after,
                       const Symbol &state);
  void getSnapshots(const Buffer &buffer, const Symbol &state, Values &values);
  std::vector<char> indices(const std::vector<int64_t> &values);

  const Layer &layer;
  const Data &data;
  const Placing &placing;
};

Buffer Emulation::rows(DType dtype, const int64_t (&shape)[4], double poison) {
  Buffer buffer;
  int64_t size = int64_t(byteSize(dtype));
  int64_t head = shape[3] + placing.rowPadding, token = shape[2] * head;
  buffer.allocate(dtype, shape[0] * shape[1] * token, poison);
  buffer.entry.head = head * size;
  buffer.entry.token = token * size;
  buffer.entry.sequence = shape[1] * token * size;
  buffer.entry.share = PLUM_GPU_SHARE(data.sizes.heads / shape[2]);
  return buffer;
}

/// `count` of them one after the other; 0: as many as there are slots.
Buffer Emulation::states(const Symbol &state, double poison, int64_t count) {
  Buffer buffer;
  // A vector state is [K, 1].
  bool isVector = state.shape.kind == frontend::Shape::Row;
  int64_t K = isVector ? state.shape.cols : state.shape.rows;
  int64_t V = isVector ? 1 : state.shape.cols;
  int64_t size = int64_t(byteSize(placing.state));
  int64_t slots = data.sequences();
  for (int64_t slot : placing.slots)
    slots = std::max(slots, slot + 2);
  if (count)
    slots = count;
  int64_t stride = data.sizes.heads * K * V + placing.slotPadding;
  buffer.allocate(placing.state, slots * stride, poison);
  buffer.entry.sequence = stride * size;
  buffer.entry.head = K * V * size;
  buffer.entry.row = (placing.columnMajor ? 1 : V) * size;
  buffer.entry.column = (placing.columnMajor ? K : 1) * size;
  buffer.entry.share = PLUM_GPU_SHARE(1);
  buffer.entry.dtype =
      placing.state == DType::F32 ? PLUM_GPU_F32 : PLUM_GPU_BF16;
  return buffer;
}

int64_t Emulation::stateAt(const Buffer &buffer, int64_t slot, int64_t h,
                           int64_t k, int64_t v) const {
  const plum_gpu_tensor &entry = buffer.entry;
  return slot * entry.sequence + h * entry.head + k * entry.row +
         v * entry.column;
}

void Emulation::putStates(Buffer &buffer, const Symbol &state) {
  const Tensor &tensor = data.tensors.at(state.name);
  bool isVector = state.shape.kind == frontend::Shape::Row; // [N, H, 1, K]
  for (int64_t n = 0; n < data.sequences(); ++n)
    for (int64_t h = 0; h < data.sizes.heads && !isPadding(n); ++h)
      for (int64_t k = 0; k < tensor.shape[2]; ++k)
        for (int64_t v = 0; v < tensor.shape[3]; ++v)
          buffer.put(
              stateAt(buffer, slotOf(n), h, isVector ? v : k, isVector ? 0 : v),
              tensor.at(n, h, k, v));
}

/// Slots that no sequence has, and what lies between slots.
void Emulation::expectUntouched(const Buffer &before, const Buffer &after,
                                const Symbol &state) {
  int64_t size = int64_t(byteSize(after.dtype));
  int64_t used = data.sizes.heads * state.shape.rows * state.shape.cols * size;
  int64_t changed = 0;
  for (int64_t at = 0; at < int64_t(after.bytes.size()); ++at) {
    int64_t slot = at / after.entry.sequence;
    bool isOwn = at % after.entry.sequence < used;
    if (isOwn && std::count(placing.slots.begin(), placing.slots.end(), slot))
      continue;
    changed += before.bytes[size_t(at)] != after.bytes[size_t(at)];
  }
  EXPECT_EQ(changed, 0) << "bytes of other slots of " << state.name
                        << " were written";
}

/// Of the whole buffer: what no sequence has is still NaN.
void Emulation::getSnapshots(const Buffer &buffer, const Symbol &state,
                             Values &values) {
  const int64_t N = data.sequences(), H = data.sizes.heads;
  const int64_t rows = state.shape.rows, columns = state.shape.cols;
  bool isVector = state.shape.kind == frontend::Shape::Row;
  int64_t place = 0, written = 0;
  for (int64_t n = 0; n < N; ++n)
    for (int64_t m = 1; m <= snapshotsOf(n); ++m, ++place) {
      Tensor &then =
          values[state.name + "@" + std::to_string(m * placing.snapshotEvery)];
      if (then.values.empty()) {
        then = Tensor(N, H, rows, columns);
        std::fill(then.values.begin(), then.values.end(), kNaN);
      }
      for (int64_t h = 0; h < H; ++h)
        for (int64_t k = 0; k < rows; ++k)
          for (int64_t v = 0; v < columns; ++v) {
            double x =
                buffer.get(h * buffer.entry.head + place * buffer.entry.token +
                           (isVector ? v : k) * buffer.entry.row +
                           (isVector ? 0 : v) * buffer.entry.column);
            then.at(n, h, k, v) = x;
            written += !std::isnan(x);
          }
    }
  int64_t all = 0;
  for (size_t i = 0; i < buffer.bytes.size() / byteSize(buffer.dtype); ++i)
    all += !std::isnan(loadAsDouble(buffer.bytes.data(), buffer.dtype, i));
  EXPECT_EQ(all, written) << "snapshots of " << state.name
                          << " that are nobody's were written";
}

std::vector<char> Emulation::indices(const std::vector<int64_t> &values) {
  DType dtype = placing.wideIndices ? DType::I64 : DType::I32;
  std::vector<char> bytes(values.size() * byteSize(dtype));
  for (size_t i = 0; i < values.size(); ++i)
    if (placing.wideIndices)
      std::memcpy(bytes.data() + 8 * i, &values[i], 8);
    else
      std::memcpy(bytes.data() + 4 * i, &values[i], 4); // little end first
  return bytes;
}

Values Emulation::run(const CompiledLayer &code) {
  const frontend::Layer &ast = layer.ast();
  const int64_t N = data.sequences(), H = data.sizes.heads;
  std::vector<Buffer> inputs, outputs, initial, final, snapshots;
  for (const auto *symbols : {&ast.params, &ast.inputs})
    for (const Symbol *symbol : *symbols) {
      const Tensor &tensor = data.tensors.at(symbol->name);
      Buffer &buffer =
          inputs.emplace_back(rows(layer.storage(*symbol), tensor.shape, kNaN));
      for (int64_t b = 0; b < tensor.shape[0]; ++b)
        for (int64_t t = 0; t < tensor.shape[1]; ++t)
          for (int64_t h = 0; h < tensor.shape[2]; ++h)
            for (int64_t c = 0; c < tensor.shape[3]; ++c) {
              const plum_gpu_tensor &entry = buffer.entry;
              bool padding = symbols == &ast.inputs && data.cuSeqlens.empty() &&
                             isPadding(b);
              buffer.put(b * entry.sequence + t * entry.token + h * entry.head +
                             c * int64_t(byteSize(buffer.dtype)),
                         padding ? kNaN : tensor.at(b, t, h, c));
            }
    }
  for (const Symbol *symbol : ast.outputs)
    outputs.push_back(
        rows(layer.storage(*symbol),
             {data.sizes.batch, data.sizes.tokens, H, symbol->shape.cols},
             kUntouched));
  for (const Symbol *symbol : ast.states) {
    bool given = data.has(symbol->name);
    Buffer &before = initial.emplace_back(states(*symbol, kNaN));
    if (given)
      putStates(before, *symbol);
    Buffer &after = final.emplace_back(states(*symbol, kNaN));
    if (!placing.slots.empty())
      after.bytes = before.bytes; // updated in place, see below
  }

  emulator::Memory memory;
  plum_gpu_args args = {};
  int64_t count = 0;
  auto add = [&](Buffer &buffer, const std::string &name, bool isThere = true) {
    buffer.entry.data =
        isThere ? memory.map(name, buffer.bytes.data(), buffer.bytes.size())
                : 0;
    args.tensors[count++] = buffer.entry;
  };
  size_t next = 0;
  for (const auto *symbols : {&ast.params, &ast.inputs})
    for (const Symbol *symbol : *symbols)
      add(inputs[next++], symbol->name);
  for (size_t i = 0; i < ast.states.size(); ++i) {
    bool given = data.has(ast.states[i]->name);
    add(placing.slots.empty() ? initial[i] : final[i], ast.states[i]->name,
        given);
  }
  for (size_t i = 0; i < ast.states.size(); ++i) {
    if (!placing.slots.empty() && data.has(ast.states[i]->name))
      args.tensors[count++] = final[i].entry;
    else
      add(final[i], ast.states[i]->name + " after");
  }
  for (size_t i = 0; i < ast.outputs.size(); ++i)
    add(outputs[i], ast.outputs[i]->name);
  // Snapshots of a sequence lie side by side, and then the next one's.
  const int64_t kept =
      placing.snapshotEvery ? data.sizes.tokens / placing.snapshotEvery : 0;
  for (const Symbol *symbol : kept ? ast.states : decltype(ast.states){}) {
    Buffer &buffer =
        snapshots.emplace_back(states(*symbol, kNaN, data.sizes.batch * kept));
    buffer.entry.token = buffer.entry.sequence;
    buffer.entry.sequence *= kept;
    add(buffer, symbol->name + " snapshots");
  }
  std::vector<char> slots = indices(placing.slots);
  std::vector<char> offsets = indices(data.cuSeqlens);
  if (!placing.slots.empty())
    args.slots = memory.map("slots", slots.data(), slots.size());
  if (!data.cuSeqlens.empty())
    args.cu_seqlens = memory.map("cu_seqlens", offsets.data(), offsets.size());
  args.sequences = uint32_t(N);
  args.heads = uint32_t(H);
  args.tokens = uint32_t(data.sizes.tokens);
  if (kept)
    args.snapshot_every =
        uint32_t(placing.snapshotEvery / std::max<int64_t>(placing.chunk, 1));
  const int64_t P = placing.segments;
  args.segments = uint32_t(P);
  args.flags = placing.wideIndices ? PLUM_GPU_CU64 | PLUM_GPU_SLOTS64 : 0;

  emulator::Options options;
  options.seed = placing.seed;
  const int64_t C = std::max<int64_t>(placing.chunk, 1);
  const bool packed = !data.cuSeqlens.empty();
  args.chunks = uint32_t(packed ? data.sizes.tokens / C + N
                                : (data.sizes.tokens + C - 1) / C);
  const int64_t chunks = packed ? args.chunks : N * args.chunks;
  if (code.blobBytes) {
    args.blobs = memory.allocate(
        "blobs", uint64_t(std::max<int64_t>(chunks * H, 1) * code.blobBytes));
    args.chunk_offsets =
        memory.allocate("chunk_offsets", 2 * uint64_t(N + 1) * 4);
  }
  if (P > 1)
    args.segment_states = memory.allocate(
        "segment_states", uint64_t(N * H * P) * uint64_t(code.segmentBytes));
  for (const CompiledKernel &kernel : code.kernels) {
    bool splits = kernel.role == "summary" || kernel.role == "combine";
    if (kernel.role == "index" ? !packed : splits && P == 1)
      continue;
    const int64_t parts = kernel.role == "scan"      ? P
                          : kernel.role == "summary" ? 2 * P - 3
                                                     : 1;
    int64_t grid = kernel.role == "index"     ? 1
                   : kernel.role == "prepare" ? chunks * H
                                              : N * H * kernel.slices * parts;
    if (!grid)
      continue;
    Status status = kernel.kernel->launch(
        {.grid = grid},
        llvm::ArrayRef(reinterpret_cast<const uint8_t *>(&args), sizeof(args)),
        memory, options);
    EXPECT_TRUE(status) << kernel.role << ": " << status.error().str();
    if (!status)
      return {};
  }

  Values values;
  for (size_t i = 0; i < ast.outputs.size(); ++i) {
    Tensor tensor(data.sizes.batch, data.sizes.tokens, H,
                  ast.outputs[i]->shape.cols);
    const plum_gpu_tensor &entry = outputs[i].entry;
    int64_t size = int64_t(byteSize(outputs[i].dtype));
    for (int64_t b = 0; b < tensor.shape[0]; ++b)
      for (int64_t t = 0; t < tensor.shape[1]; ++t)
        for (int64_t h = 0; h < H; ++h)
          for (int64_t c = 0; c < tensor.shape[3]; ++c)
            tensor.at(b, t, h, c) =
                outputs[i].get(b * entry.sequence + t * entry.token +
                               h * entry.head + c * size);
    values[ast.outputs[i]->name] = std::move(tensor);
  }
  for (size_t i = 0; i < ast.states.size(); ++i) {
    const Symbol &state = *ast.states[i];
    bool isVector = state.shape.kind == frontend::Shape::Row;
    Tensor tensor(N, H, state.shape.rows, state.shape.cols);
    for (int64_t n = 0; n < N; ++n)
      for (int64_t h = 0; h < H && !isPadding(n); ++h)
        for (int64_t k = 0; k < tensor.shape[2]; ++k)
          for (int64_t v = 0; v < tensor.shape[3]; ++v)
            tensor.at(n, h, k, v) = final[i].get(stateAt(
                final[i], slotOf(n), h, isVector ? v : k, isVector ? 0 : v));
    if (kept)
      getSnapshots(snapshots[i], state, values);
    values[state.name] = std::move(tensor);
    if (!placing.slots.empty())
      expectUntouched(initial[i], final[i], state);
  }
  return values;
}

} // namespace

Values test::emulate(const Layer &layer, const Data &data,
                     const Placing &placing) {
  const CompiledLayer &code = compiled(layer, placing);
  EXPECT_FALSE(code.kernels.empty()) << code.error;
  if (code.kernels.empty())
    return {};
  return Emulation(layer, data, placing).run(code);
}

//===----------------------------------------------------------------------===//
// Comparisons
//===----------------------------------------------------------------------===//

static void expectR(const Tensor &x, const Tensor &ref, double limit,
                    const std::string &what) {
  if (x.values.empty())
    return;
  double r = distance(x, ref);
  if (std::getenv("PLUM_PRINT_ERRORS"))
    std::printf("%s: R %.2e\n", what.c_str(), r);
  EXPECT_LE(r, limit) << what; // NaN is not
}

void test::expectEmulated(const Data &data, const Placing &placing,
                          const Values &got, const Values &truth, double stateR,
                          double outputR, const std::string &what) {
  ASSERT_FALSE(got.empty()) << what;
  const frontend::Layer &ast = data.layer->ast();
  bool packed = !data.cuSeqlens.empty();
  for (int64_t n = 0; n < data.sequences(); ++n) {
    bool padding = !placing.slots.empty() && placing.slots[size_t(n)] < 0;
    std::string where = what + ", sequence " + std::to_string(n) + ", ";
    auto cut = [&](const Tensor &tensor) {
      return packed ? slice(tensor, 1, data.cuSeqlens[size_t(n)],
                            data.cuSeqlens[size_t(n) + 1])
                    : slice(tensor, 0, n, n + 1);
    };
    for (const Symbol *output : ast.outputs) {
      Tensor x = cut(got.at(output->name)), ref = cut(truth.at(output->name));
      if (!padding) {
        expectR(x, ref, outputR, where + output->name);
        continue;
      }
      Buffer clean; // 777 as it is stored
      clean.allocate(data.layer->storage(*output), 1, kUntouched);
      for (double value : x.values)
        EXPECT_EQ(value, clean.get(0)) << where << "an output of padding";
    }
    for (const Symbol *state : ast.states) {
      auto check = [&](const std::string &name) {
        expectR(slice(got.at(name), 0, n, n + 1),
                slice(truth.at(name), 0, n, n + 1), stateR, where + name);
      };
      if (padding)
        continue;
      check(state->name);
      const int64_t every = placing.snapshotEvery;
      for (int64_t t = every; every && t <= data.length(n); t += every)
        check(state->name + '@' + std::to_string(t));
    }
  }
}
