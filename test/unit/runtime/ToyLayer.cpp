//===- ToyLayer.cpp - A small bundle and tensors for it -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"

#include "plum/ABI/GpuABI.h"
#include "runtime/Inputs.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace plum::runtime::test {

namespace {

constexpr const char *spec = R"(# The memory that toy_kernel.c computes.
layer toy(K = 4, V = 3) {
  param  bias : [V] f32
  input  q, k : [K] f32
  input  v    : [V] bf16
  input  g    : f32
  state  S    : [K, V] f32
  state  z    : [K] f32

  S = exp(g) * S
  S += k^T @ v
  z += k
  output o : [V] f32 = q @ S + bias
  output n : f32 = sum(q * z)
}
)";

} // namespace

TempDir::TempDir() {
  path = (std::filesystem::temp_directory_path() / "plum-test-XXXXXX").string();
  if (!mkdtemp(path.data()))
    path.clear();
}

TempDir::~TempDir() {
  std::error_code ignored;
  if (!path.empty())
    std::filesystem::remove_all(path, ignored);
}

std::vector<std::string> TempDir::list() const {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(path))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void writeFile(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

Manifest toyManifest() {
  Manifest manifest;
  manifest.abi = PLUM_KERNEL_ABI;
  manifest.plum = "0.1.0";
  manifest.llvm = "22.1.8";
  manifest.layer = "toy";
  manifest.target = "cpu";
  manifest.cpu = "x86-64";
  manifest.features = {"sse3"};
  manifest.dims = {{"K", K}, {"V", V}};
  manifest.params = {{"bias", {V}, DType::F32, DType::F32}};
  manifest.inputs = {{"q", {K}, DType::F32, DType::F32},
                     {"k", {K}, DType::F32, DType::F32},
                     {"v", {V}, DType::BF16, DType::BF16},
                     {"g", {}, DType::F32, DType::F32}};
  manifest.states = {{"S", {K, V}, DType::F32, DType::F32},
                     {"z", {K}, DType::F32, DType::F32}};
  manifest.outputs = {{"o", {V}, DType::F32, DType::F32},
                      {"n", {}, DType::F32, DType::F32}};
  manifest.logDecays = {"g"};
  manifest.kernels = {{KernelForm::Step, 1, "toy_step", 200, 2 * K * V * 2, {}},
                      {KernelForm::Chunk, 4, "toy_chunk4", 200, 0, {}},
                      {KernelForm::Chunk,
                       16,
                       "toy_chunk16",
                       200,
                       16 * 2 * K * V * 2,
                       {{"q S", 16, V, K, 1}, {"k^T v", K, V, 16, 1}}}};
  return manifest;
}

Manifest toyGpuManifest() {
  Manifest manifest = toyManifest();
  manifest.abi = PLUM_GPU_ABI;
  manifest.target = "sm_90a";
  manifest.cpu = "";
  manifest.features = {};
  manifest.object = "kernels.ptx";
  manifest.kernels = {};
  auto add = [&](KernelRole role, KernelGrid grid, int64_t slices,
                 int64_t threads, int64_t shared) {
    ManifestKernel kernel;
    kernel.form =
        role == KernelRole::Step ? KernelForm::Step : KernelForm::Chunk;
    kernel.chunk = role == KernelRole::Step ? 1 : 16;
    kernel.symbol = "plum_toy_" + std::string(name(role));
    kernel.role = role;
    kernel.grid = grid;
    kernel.slices = slices;
    kernel.threads = threads;
    kernel.sharedBytes = shared;
    manifest.kernels.push_back(kernel);
    return &manifest.kernels.back();
  };
  add(KernelRole::Step, KernelGrid::Sequences, 1, 64, 0);
  add(KernelRole::Index, KernelGrid::One, 1, 32, 0);
  add(KernelRole::Prepare, KernelGrid::Chunks, 1, 128, 1024)->blobBytes = 320;
  add(KernelRole::Summary, KernelGrid::Sequences, 1, 96, 2048);
  add(KernelRole::Combine, KernelGrid::Sequences, 1, 32, 0)->segmentBytes = 192;
  add(KernelRole::Scan, KernelGrid::Sequences, 2, 96, 60000);
  return manifest;
}

void writeToyBundle(const std::string &directory, const Manifest &manifest) {
  std::filesystem::create_directories(directory);
  writeFile(directory + "/manifest.json", writeManifest(manifest));
  writeFile(directory + "/spec.plum", spec);
  std::filesystem::remove(directory + "/kernel.so");
  std::filesystem::create_symlink(TOY_KERNEL, directory + "/kernel.so");
}

ToyLog::ToyLog() : object(dlopen(TOY_KERNEL, RTLD_NOW), dlclose) { reset(); }

void ToyLog::reset() {
  *static_cast<int64_t *>(dlsym(object.get(), "toyCalls")) = 0;
  *static_cast<int64_t *>(dlsym(object.get(), "toyMisaligned")) = 0;
}

std::string ToyLog::calls() const {
  auto count = *static_cast<int64_t *>(dlsym(object.get(), "toyCalls"));
  auto *log = static_cast<int64_t *>(dlsym(object.get(), "toyLog"));
  std::string text;
  for (int64_t i = 0; i < std::min<int64_t>(count, 256); ++i)
    text += (i ? " " : "") + std::to_string(log[2 * i]) + "x" +
            std::to_string(log[2 * i + 1]);
  return text;
}

int64_t ToyLog::misaligned() const {
  return *static_cast<int64_t *>(dlsym(object.get(), "toyMisaligned"));
}

ToyTensors::ToyTensors(int64_t batch, int64_t tokens, int64_t heads)
    : batch(batch), tokens(tokens), heads(heads) {
  auto count = size_t(batch * tokens * heads);
  auto normal = [](uint32_t tid, size_t i) {
    return float(portableNormal(7, tid, uint32_t(i)));
  };
  for (size_t i = 0; i < count * size_t(K); ++i) {
    q.push_back(normal(1, i));
    k.push_back(normal(2, i));
  }
  for (size_t i = 0; i < count * size_t(V); ++i)
    v.push_back(floatToBf16(normal(3, i)));
  for (size_t i = 0; i < count; ++i)
    g.push_back(-std::abs(normal(4, i)));
  for (size_t i = 0; i < size_t(heads * V); ++i)
    bias.push_back(normal(5, i));
  o.assign(count * size_t(V), 777);
  n.assign(count, 777);
}

RunArgs ToyTensors::args(int64_t sequences) {
  S.assign(size_t(sequences * heads * K * V), 777);
  z.assign(size_t(sequences * heads * K), 777);
  auto rows = [&](auto &data, DType dtype, int64_t d) {
    return TensorView::dense(data.data(), dtype, batch, tokens, heads, d);
  };
  RunArgs args;
  args.inputs = {rows(q, DType::F32, K), rows(k, DType::F32, K),
                 rows(v, DType::BF16, V), rows(g, DType::F32, 1)};
  args.params = {TensorView::dense(bias.data(), DType::F32, 1, 1, heads, V)};
  args.outputs = {rows(o, DType::F32, V), rows(n, DType::F32, 1)};
  args.finalStates = {
      TensorView::dense(S.data(), DType::F32, sequences, heads, K, V),
      TensorView::dense(z.data(), DType::F32, sequences, heads, 1, K)};
  return args;
}

void toyRecurrence(const ToyTensors &x, int64_t batch, int64_t begin,
                   int64_t end, int64_t head, std::vector<double> &S,
                   std::vector<double> &z, std::vector<double> &o,
                   std::vector<double> &n) {
  for (int64_t t = begin; t < end; ++t) {
    auto row = size_t((batch * x.tokens + t) * x.heads + head);
    n[row] = 0;
    for (size_t v = 0; v < V; ++v)
      o[row * V + v] = x.bias[size_t(head) * V + v];
    for (size_t c = 0; c < K; ++c) {
      z[c] += x.k[row * K + c];
      n[row] += x.q[row * K + c] * z[c];
      for (size_t v = 0; v < V; ++v) {
        double &s = S[c * V + v];
        s = std::exp(double(x.g[row])) * s +
            double(x.k[row * K + c]) * bf16ToFloat(x.v[row * V + v]);
        o[row * V + v] += x.q[row * K + c] * s;
      }
    }
  }
}

void ToyFile::write(const std::string &path) const {
  std::vector<TensorToWrite> list;
  for (const auto &[name, entry] : tensors)
    list.push_back({name, entry.dtype, entry.shape, entry.bytes.data()});
  Status status = writeSafetensors(path, list);
  ASSERT_TRUE(status) << status.error().str();
}

ToyFile toyFile(const ToyTensors &x) {
  ToyFile file;
  file.set("q", DType::F32, {x.tokens, x.heads, K}, x.q);
  file.set("k", DType::F32, {x.tokens, x.heads, K}, x.k);
  file.set("v", DType::BF16, {x.tokens, x.heads, V}, x.v);
  file.set("g", DType::F32, {x.tokens, x.heads}, x.g);
  file.set("bias", DType::F32, {x.heads, V}, x.bias);
  return file;
}

std::vector<double> fileValues(const std::string &path,
                               const std::string &name) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().str();
    return {};
  }
  const FileTensor *tensor = file->find(name);
  if (!tensor) {
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  return loadDoubles(*tensor).value_or(std::vector<double>{});
}

} // namespace plum::runtime::test
