//===- GpuTest.cpp - Runs on a GPU that is none ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"
#include "fake_cuda.h"

#include "runtime/cuda/HostRun.h"
#include "runtime/plumrt.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::cuda;
using namespace plum::runtime::test;

namespace {

constexpr const char *ptx = "// kernels of layer toy\n.version 8.0\n";

struct GpuTest : testing::Test {
  TempDir dir;
  void *library = nullptr;
  fake_state *fake = nullptr;
  fakeFailFunction failCall = nullptr;

  void SetUp() override {
    setenv("PLUM_LIBCUDA", FAKE_CUDA, 1);
    setenv("PLUM_CACHE", (dir / "cache").c_str(), 1);
    library = dlopen(FAKE_CUDA, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake = reinterpret_cast<fakeCudaFunction>(dlsym(library, "fakeCuda"))();
    failCall = reinterpret_cast<fakeFailFunction>(dlsym(library, "fakeFail"));
    reset();
    write(toyGpuManifest());
  }
  void TearDown() override {
    reset();
    dlclose(library);
    unsetenv("PLUM_LIBCUDA");
    unsetenv("PLUM_CACHE");
    EXPECT_EQ(fake->allocations, 0);
    EXPECT_EQ(fake->contextDepth, 0);
    EXPECT_EQ(fake->retained, 0);
  }
  void reset() {
    reinterpret_cast<fakeResetFunction>(dlsym(library, "fakeReset"))();
  }

  void write(const Manifest &manifest, const std::string &text = ptx) {
    writeToyBundle(dir / "toy", manifest);
    writeFile(dir / "toy/kernels.ptx", text);
  }

  /// The error of opening device and bundle, or "".
  std::string openError() {
    Result<std::shared_ptr<const Device>> device = Device::open();
    if (!device)
      return device.error().str();
    Result<Bundle> bundle = Bundle::open(dir / "toy");
    if (!bundle)
      return bundle.error().str();
    Result<GpuExecutor> executor = GpuExecutor::open(*bundle, *device);
    return executor ? "" : executor.error().str();
  }
};

/// One opened for the length of a test.
struct Opened {
  explicit Opened(const std::string &directory)
      : bundle(Bundle::open(directory)),
        runner(HostRunner::open(*bundle, *Device::open())) {
    EXPECT_TRUE(runner) << runner.error().str();
  }
  Result<Bundle> bundle;
  Result<HostRunner> runner;
};

/// Compares a run's results with the recurrence.
void expectToy(const ToyTensors &x, const RunArgs &args,
               const std::vector<int64_t> &slots = {},
               std::vector<float> pool = {}) {
  Result<Problem> problem = planProblem(toyManifest(), args);
  ASSERT_TRUE(problem) << problem.error().str();
  std::vector<double> o(x.o.size(), 777), n(x.n.size(), 777);
  for (const Sequence &sequence : problem->sequences)
    for (int64_t h = 0; h < x.heads && sequence.slot >= 0; ++h) {
      std::vector<double> S(K * V), z(K);
      for (size_t i = 0; i < K * V && !pool.empty(); ++i)
        S[i] = pool[size_t((sequence.slot * x.heads + h) * K * V) + i];
      toyRecurrence(x, sequence.batch, sequence.begin,
                    sequence.begin + sequence.length, h, S, z, o, n);
      for (int64_t a = 0; a < K; ++a)
        for (int64_t b = 0; b < V; ++b) {
          const TensorView &view = args.finalStates[0];
          int64_t at = args.layout == StateLayout::VK
                           ? view.offset(sequence.slot, h, b, a)
                           : view.offset(sequence.slot, h, a, b);
          EXPECT_NEAR(loadAsDouble(view.data, view.dtype, size_t(at)),
                      S[size_t(a * V + b)],
                      view.dtype == DType::BF16 ? 0.05 : 1e-4);
        }
    }
  for (size_t i = 0; i < o.size(); ++i)
    EXPECT_NEAR(x.o[i], o[i], 1e-4) << i;
  for (size_t i = 0; i < n.size(); ++i)
    EXPECT_NEAR(x.n[i], n[i], 1e-4) << i;
}

} // namespace

TEST_F(GpuTest, TheDeviceIsDescribed) {
  Result<std::shared_ptr<const Device>> device = Device::open();
  ASSERT_TRUE(device) << device.error().str();
  EXPECT_EQ((*device)->name, "Fake H200");
  EXPECT_EQ((*device)->architecture(), "sm_90");
  EXPECT_EQ((*device)->processors, 132);
  EXPECT_EQ((*device)->driver().version, 13000);
}

TEST_F(GpuTest, WithoutADriverThatIsSaid) {
  setenv("PLUM_LIBCUDA", "libcuda-that-is-not-there.so", 1);
  EXPECT_EQ(openError(),
            "error: there is no CUDA driver: libcuda-that-is-not-there.so: "
            "cannot open shared object file: No such file or directory\n"
            "note: to run on a GPU takes NVIDIA's driver, nothing else; layers "
            "compiled for cpu run without it");
  setenv("PLUM_LIBCUDA", TOY_KERNEL, 1);
  EXPECT_EQ(openError(), std::string(TOY_KERNEL) +
                             ": error: has no function cuInit\nnote: a driver "
                             "for CUDA 12.0 or later has all that is needed");
}

TEST_F(GpuTest, EachCallThatFailsIsNamed) {
  const std::string toy = dir / "toy: error: ";
  auto after = [&](const char *function, int error) {
    failCall(function, error, 0);
    std::string text = openError();
    reset();
    return text;
  };
  EXPECT_EQ(after("cuInit", 100), "error: cuInit: CUDA_ERROR_NO_DEVICE");
  EXPECT_EQ(after("cuDeviceGetCount", 9999),
            "error: cuDeviceGetCount: CUDA error 9999");
  EXPECT_EQ(after("cuDevicePrimaryCtxRetain", 2),
            "error: cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(after("cuCtxPushCurrent_v2", 201),
            toy + "cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT");
  EXPECT_EQ(after("cuModuleGetFunction", 500),
            toy + "cuModuleGetFunction(plum_toy_step): CUDA_ERROR_NOT_FOUND");
  EXPECT_EQ(after("cuFuncSetAttribute", 1),
            toy + "cuFuncSetAttribute(plum_toy_step, 0 B shared): "
                  "CUDA_ERROR_INVALID_VALUE (invalid argument)");
  EXPECT_EQ(openError(), "");
}

TEST_F(GpuTest, BundlesForOtherGpus) {
  Manifest manifest = toyGpuManifest();
  manifest.target = "sm_100a";
  write(manifest);
  EXPECT_EQ(openError(),
            dir /
                "toy: error: is compiled for sm_100a, this GPU is sm_90 (Fake "
                "H200)\nnote: code for sm_100a runs on that architecture "
                "alone; '--target sm_80' makes code for every later one");
  for (auto [target, good] :
       {std::pair("sm_80", true), std::pair("sm_90", true),
        std::pair("sm_90a", true), std::pair("sm_90f", true),
        std::pair("sm_80f", false), std::pair("sm_80a", false),
        std::pair("sm_120", false)}) {
    manifest.target = target;
    write(manifest);
    EXPECT_EQ(openError().empty(), good) << target;
  }
  writeToyBundle(dir / "toy");
  EXPECT_EQ(openError(), dir /
                             "toy: error: has no cuda kernel, it was compiled "
                             "for cpu");
}

TEST_F(GpuTest, KernelsTooLargeForTheGpu) {
  Manifest manifest = toyGpuManifest();
  manifest.kernels[0].sharedBytes = 232449;
  write(manifest);
  EXPECT_EQ(openError(), dir / "toy: error: kernel 'plum_toy_step' needs "
                               "232449 B of shared memory, a block on this GPU "
                               "has at most 232448");
  manifest = toyGpuManifest();
  manifest.kernels[0].threads = 513;
  write(manifest);
  EXPECT_EQ(openError(), dir / "toy: error: kernel 'plum_toy_step' runs 513 "
                               "threads, its registers allow 512");
  write(toyGpuManifest());
  EXPECT_EQ(openError(), "");
  EXPECT_EQ(std::vector<int>(fake->maxShared, fake->maxShared + 6),
            (std::vector<int>{0, 0, 1024, 2048, 0, 60000}));
}

TEST_F(GpuTest, CodeThatIsCompiledIsKept) {
  auto source = [&] {
    Opened opened(dir / "toy");
    return opened.runner->executor().codeSource();
  };
  EXPECT_EQ(source(), CodeSource::Ptx);
  EXPECT_EQ(fake->linked, 1);
  EXPECT_EQ(source(), CodeSource::Cache);
  EXPECT_EQ(fake->linked, 1);
  std::vector<std::string> names;
  for (const auto &entry :
       std::filesystem::directory_iterator(dir / "cache/gpu"))
    names.push_back(entry.path().string());
  ASSERT_EQ(names.size(), 1u); // No temporary is left.
  EXPECT_TRUE(names[0].ends_with(".cubin"));

  // Other code, another entry.
  write(toyGpuManifest(), "// another\n");
  EXPECT_EQ(source(), CodeSource::Ptx);
  write(toyGpuManifest());
  // A spoiled entry is made anew, be it cut short or for another GPU.
  writeFile(names[0], readFile(names[0]).substr(0, 40));
  EXPECT_EQ(source(), CodeSource::Ptx);
  EXPECT_EQ(source(), CodeSource::Cache);
  std::string image = readFile(names[0]);
  image.replace(image.find("sm_90"), 5, "sm_80");
  writeFile(names[0], image);
  EXPECT_EQ(source(), CodeSource::Ptx);
  EXPECT_EQ(source(), CodeSource::Cache);

  // Without a place for it, and without the linker.
  setenv("PLUM_CACHE", "/dev/null/cache", 1);
  EXPECT_EQ(source(), CodeSource::Ptx);
  failCall("cuLinkCreate_v2", 801, 0);
  EXPECT_EQ(source(), CodeSource::Ptx);
  EXPECT_EQ(fake->loadedPtx, 1);
}

TEST_F(GpuTest, ACubinOfTheBundleNeedsNoCompiler) {
  std::string cubin = std::string("\x7f"
                                  "ELF") +
                      std::string(60, '\0');
  writeFile(dir / "toy/kernels.cubin", cubin + "arch=sm_90");
  {
    Opened opened(dir / "toy");
    EXPECT_EQ(opened.runner->executor().codeSource(), CodeSource::Cubin);
  }
  EXPECT_EQ(fake->linked, 0);
  writeFile(dir / "toy/kernels.cubin", cubin + "arch=sm_89");
  Opened opened(dir / "toy");
  EXPECT_EQ(opened.runner->executor().codeSource(), CodeSource::Ptx);
}

TEST_F(GpuTest, TheCompilersComplaintsAreNotes) {
  write(toyGpuManifest(), "an error\n");
  EXPECT_EQ(openError(),
            dir / "toy/kernels.ptx: error: cuModuleLoadDataEx: "
                  "CUDA_ERROR_INVALID_PTX\nnote: ptxas line 1; error : it says "
                  "error\nnote: ptxas fatal");
  std::filesystem::remove(dir / "toy/kernels.ptx");
  EXPECT_EQ(openError(), dir / "toy/kernels.ptx: error: cannot be read\nnote: "
                               "manifest.json names it as 'object'");
}

TEST_F(GpuTest, RunsABatch) {
  Opened opened(dir / "toy");
  for (GpuOptions options : {GpuOptions{}, GpuOptions{.form = Form::Step},
                             GpuOptions{.segments = 2}}) {
    ToyTensors x(2, 40, 3);
    RunArgs args = x.args();
    Status status = opened.runner->run(args, options);
    ASSERT_TRUE(status) << status.error().str();
    expectToy(x, args);
  }
}

TEST_F(GpuTest, RunsPackedSequencesFromAPool) {
  Opened opened(dir / "toy");
  for (StateLayout layout : {StateLayout::KV, StateLayout::VK})
    for (DType dtype : {DType::I32, DType::I64}) {
      ToyTensors x(1, 40, 2);
      RunArgs args = x.args(6);
      args.layout = layout;
      if (layout == StateLayout::VK)
        args.finalStates[0] =
            TensorView::dense(x.S.data(), DType::F32, 6, 2, V, K);
      std::fill(x.z.begin(), x.z.end(), 0.0f);
      std::vector<float> pool(x.S.size());
      for (size_t i = 0; i < pool.size(); ++i) {
        // The same state in either layout.
        size_t matrix = i / (K * V), a = i % (K * V) / V, b = i % V;
        pool[i] = float(i % 7);
        x.S[layout == StateLayout::VK ? matrix * K * V + b * K + a : i] =
            pool[i];
      }
      args.initialStates = args.finalStates; // In place.
      const std::vector<float> before = x.S;
      std::vector<int32_t> cu{0, 17, 17, 18, 40}, slots{5, 0, -1, 3};
      std::vector<int64_t> cu64(cu.begin(), cu.end()),
          slots64(slots.begin(), slots.end());
      if (dtype == DType::I32) {
        args.cuSeqlens = {cu.data(), dtype, 5};
        args.slots = {slots.data(), dtype, 4};
      } else {
        args.cuSeqlens = {cu64.data(), dtype, 5};
        args.slots = {slots64.data(), dtype, 4};
      }
      Status status = opened.runner->run(args, {});
      ASSERT_TRUE(status) << status.error().str();
      expectToy(x, args, slots64, pool);
      // Padding, and slots that nobody named.
      EXPECT_EQ(x.n[17 * 2], 777);
      for (size_t slot : {1, 2, 4})
        for (size_t i = slot * 2 * K * V; i < (slot + 1) * 2 * K * V; ++i)
          EXPECT_EQ(x.S[i], before[i]);
    }
  // chunk_offsets were counted on the device.
  EXPECT_STREQ(fake->launches[0].symbol, "plum_toy_index");
}

TEST_F(GpuTest, SnapshotsOfABatchPool) {
  Opened opened(dir / "toy");
  ToyTensors x(3, 20, 2), y(3, 20, 2);
  std::vector<int32_t> slots{2, -1, 0};
  std::vector<float> S(4 * 2 * K * V), z(4 * 2 * K);
  RunArgs args = x.args(3);
  std::fill(x.S.begin(), x.S.end(), 0.0f);
  std::fill(x.z.begin(), x.z.end(), 0.0f);
  args.initialStates = args.finalStates;
  args.slots = {slots.data(), DType::I32, 3};
  args.snapshotEvery = 7;
  args.snapshots = {TensorView::dense(S.data(), DType::F32, 4, 2, K, V),
                    TensorView::dense(z.data(), DType::F32, 4, 2, 1, K)};
  Status status = opened.runner->run(args, {.form = Form::Step});
  ASSERT_TRUE(status) << status.error().str();
  // Padding has none, so the fourth is the last sequence's after 14 tokens.
  std::vector<double> state(K * V), norm(K), o(y.o.size()), n(y.n.size());
  toyRecurrence(y, 2, 0, 14, 1, state, norm, o, n);
  for (size_t i = 0; i < K; ++i)
    EXPECT_NEAR(z[(3 * 2 + 1) * K + i], norm[i], 1e-4);
}

TEST_F(GpuTest, SnapshotsOfSequencesOfAnyLength) {
  Opened opened(dir / "toy");
  ToyTensors x(1, 100, 2), y(1, 100, 2);
  std::vector<int32_t> cu{0, 40, 47, 95}, slots{2, -1, 0};
  std::vector<float> S(5 * 2 * K * V), z(5 * 2 * K);
  RunArgs args = x.args(3);
  std::fill(x.S.begin(), x.S.end(), 0.0f);
  std::fill(x.z.begin(), x.z.end(), 0.0f);
  args.initialStates = args.finalStates;
  args.cuSeqlens = {cu.data(), DType::I32, 4};
  args.slots = {slots.data(), DType::I32, 3};
  args.snapshotEvery = 16;
  args.snapshots = {TensorView::dense(S.data(), DType::F32, 5, 2, K, V),
                    TensorView::dense(z.data(), DType::F32, 5, 2, 1, K)};
  Status status = opened.runner->run(args, {});
  ASSERT_TRUE(status) << status.error().str();
  // Row 47 + 47 is the last of the fifth snapshot.
  std::vector<double> state(K * V), norm(K), o(y.o.size()), n(y.n.size());
  toyRecurrence(y, 0, 47, 95, 1, state, norm, o, n);
  for (size_t i = 0; i < K; ++i)
    EXPECT_NEAR(z[(4 * 2 + 1) * K + i], norm[i], 1e-4);
  state.assign(K * V, 0);
  norm.assign(K, 0);
  toyRecurrence(y, 0, 0, 32, 0, state, norm, o, n);
  for (size_t i = 0; i < K * V; ++i)
    EXPECT_NEAR(S[1 * 2 * K * V + i], state[i], 1e-4);
  EXPECT_EQ(x.n[2 * 42], 777);
}

TEST_F(GpuTest, AFaultNamesItsKernel) {
  Opened opened(dir / "toy");
  ToyTensors x(1, 40, 2);
  auto run = [&](const GpuOptions &options = {}) {
    Status status = opened.runner->run(x.args(), options);
    return status ? "" : status.error().str();
  };
  failCall("cuLaunchKernel", 1, 1);
  EXPECT_EQ(run({.segments = 1}),
            "error: cuLaunchKernel(plum_toy_scan, grid 4, block 96, 60000 B "
            "shared): CUDA_ERROR_INVALID_VALUE (invalid argument)");
  failCall("cuStreamSynchronize", 700, 1);
  EXPECT_EQ(run(), "error: kernel plum_toy_prepare, grid 6: "
                   "CUDA_ERROR_ILLEGAL_ADDRESS");
  failCall("cuMemAlloc_v2", 2, 0);
  EXPECT_EQ(run(), "error: cuMemAlloc(2048 B): CUDA_ERROR_OUT_OF_MEMORY");
  reset();
  EXPECT_EQ(x.o[0], 777); // Nothing has been written.
  std::vector<int32_t> cu{0, 41};
  RunArgs args = x.args();
  args.cuSeqlens = {cu.data(), DType::I32, 2};
  Status status = opened.runner->run(args, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().str(),
            "error: 'cu_seqlens[1]' is 41, expected at most T = 40");
}

namespace {

/// A run of the C interface on tensors in the fake's memory, which is ours.
struct GpuCApiTest : GpuTest {
  plumrt_gpu *gpu = nullptr;
  plumrt_plan *plan = nullptr;
  char error[512] = "";
  ToyTensors x{2, 40, 3};
  alignas(256) char workspace[8192];

  void SetUp() override {
    GpuTest::SetUp();
    ASSERT_EQ(
        plumrt_gpu_open((dir / "toy").c_str(), 0, &gpu, error, sizeof error), 0)
        << error;
    reset();
  }
  void TearDown() override {
    plumrt_plan_destroy(plan);
    plumrt_gpu_close(gpu);
    GpuTest::TearDown();
  }

  struct Lists {
    std::vector<plumrt_tensor> tensors;
    std::vector<void *> addresses;
    explicit Lists(const std::vector<TensorView> &views) {
      for (const TensorView &view : views) {
        plumrt_tensor tensor = {nullptr, int32_t(view.dtype), 0, {}, {}};
        std::copy_n(view.shape, 4, tensor.shape);
        std::copy_n(view.stride, 4, tensor.stride);
        tensors.push_back(tensor);
        addresses.push_back(view.data);
      }
    }
  };
  static plumrt_run_args argsOf(const Lists &inputs, const Lists &params,
                                const Lists &outputs) {
    plumrt_run_args args = {};
    args.size = sizeof args;
    args.inputs = inputs.tensors.data();
    args.params = params.tensors.data();
    args.outputs = outputs.tensors.data();
    return args;
  }
};

} // namespace

TEST_F(GpuCApiTest, PlansOnceAndLaunchesOften) {
  RunArgs views = x.args();
  Lists inputs(views.inputs), params(views.params), outputs(views.outputs),
      finals(views.finalStates);
  plumrt_run_args args = argsOf(inputs, params, outputs);
  args.final_states = finals.tensors.data();
  ASSERT_EQ(plumrt_plan_create(gpu, &args, 2, &plan, error, sizeof error), 0)
      << error;
  plumrt_plan_info info = {};
  info.size = sizeof info;
  ASSERT_EQ(plumrt_plan_query(plan, &info, error, sizeof error), 0) << error;
  // 6 chunks * 3 heads * 320 B, then 2 * 3 * 2 * 192 B, each on 256.
  EXPECT_EQ(info.workspace_bytes, 5888u + 2304u);
  EXPECT_EQ(info.chunk, 16);
  EXPECT_EQ(info.segments, 2);
  EXPECT_EQ(info.form, PLUMRT_CHUNK);
  EXPECT_EQ(info.kernels, 4);
  uint64_t bytes = 0;
  ASSERT_EQ(plumrt_gpu_workspace(gpu, PLUMRT_CHUNK, 0, 2, 40, 3, 0, 2, &bytes,
                                 error, sizeof error),
            0)
      << error;
  EXPECT_EQ(bytes, info.workspace_bytes);

  plumrt_launch launch = {};
  launch.size = sizeof launch;
  launch.inputs = inputs.addresses.data();
  launch.params = params.addresses.data();
  launch.outputs = outputs.addresses.data();
  launch.final_states = finals.addresses.data();
  launch.workspace = workspace;
  launch.workspace_bytes = sizeof workspace;
  ASSERT_EQ(plumrt_plan_launch(plan, &launch, error, sizeof error), 0) << error;
  expectToy(x, views);

  // Each kernel got the same bytes, all of them as the header has it.
  ASSERT_EQ(fake->launchCount, 4);
  plum_gpu_args expected = {};
  auto address = [](const void *pointer) {
    return uint64_t(reinterpret_cast<uintptr_t>(pointer));
  };
  expected.workspace = address(workspace);
  expected.blobs = address(workspace);
  expected.segment_states = address(workspace) + 5888;
  expected.sequences = 2;
  expected.tokens = 40;
  expected.heads = 3;
  expected.chunks = 3;
  expected.segments = 2;
  constexpr uint32_t own = PLUM_GPU_SHARE(1); // No heads are shared.
  const plum_gpu_tensor tensors[] = {
      {address(x.bias.data()), 0, 0, 12, 0, 0, own, 0},
      {address(x.q.data()), 1920, 48, 16, 0, 0, own, 0},
      {address(x.k.data()), 1920, 48, 16, 0, 0, own, 0},
      {address(x.v.data()), 720, 18, 6, 0, 0, own, 0},
      {address(x.g.data()), 480, 12, 4, 0, 0, own, 0},
      {0, 0, 0, 0, 0, 0, own, 0},
      {0, 0, 0, 0, 0, 0, own, 0},
      {address(x.S.data()), 144, 0, 48, 12, 4, own, 0},
      {address(x.z.data()), 48, 0, 16, 4, 4, own, 0},
      {address(x.o.data()), 1440, 36, 12, 0, 0, own, 0},
      {address(x.n.data()), 480, 12, 4, 0, 0, own, 0},
      {0, 0, 0, 0, 0, 0, own, 0},
      {0, 0, 0, 0, 0, 0, own, 0}};
  std::copy(std::begin(tensors), std::end(tensors), expected.tensors);
  const char *symbols[] = {"prepare", "summary", "combine", "scan"};
  const unsigned grids[] = {18, 6, 6, 24}, blocks[] = {128, 96, 32, 96},
                 shared[] = {1024, 2048, 0, 60000};
  for (int i = 0; i < 4; ++i) {
    const fake_launch &got = fake->launches[i];
    EXPECT_EQ(std::string(got.symbol), std::string("plum_toy_") + symbols[i]);
    EXPECT_EQ(std::memcmp(&got.args, &expected, sizeof expected), 0) << i;
    EXPECT_EQ(got.grid[0], grids[i]);
    EXPECT_EQ(got.grid[1] * got.grid[2] * got.block[1] * got.block[2], 1u);
    EXPECT_EQ(got.block[0], blocks[i]);
    EXPECT_EQ(got.sharedBytes, shared[i]);
    EXPECT_EQ(got.stream, nullptr);
  }

  // The bundle may be closed: the plan holds on to it.
  plumrt_gpu_close(gpu);
  gpu = nullptr;
  launch.size -= 8; // Of a caller whose header knew no past.
  EXPECT_EQ(plumrt_plan_launch(plan, &launch, error, sizeof error), 0);
  launch.size -= 8; // Nor a stream.
  EXPECT_EQ(plumrt_plan_launch(plan, &launch, error, sizeof error), 1);
  launch.size = sizeof launch;
  EXPECT_EQ(plumrt_plan_launch(plan, &launch, error, sizeof error), 0);
}

TEST_F(GpuCApiTest, NoStateGrowsHere) {
  RunArgs views = x.args();
  Lists inputs(views.inputs), params(views.params), outputs(views.outputs);
  plumrt_run_args args = argsOf(inputs, params, outputs);
  int64_t past[2] = {0, 0};
  args.past = past;
  args.past_count = 2;
  args.past_dtype = PLUMRT_I64;
  ASSERT_EQ(plumrt_plan_create(gpu, &args, 0, &plan, error, sizeof error), 1);
  EXPECT_STREQ(error, "error: rows of growing states are given, but layer "
                      "'toy' has no such state");
}

TEST_F(GpuCApiTest, LaunchesCanBeCaptured) {
  Result<std::shared_ptr<const Device>> device = Device::open();
  ASSERT_TRUE(device);
  Current current(**device);
  const Driver &driver = (*device)->driver();
  Result<Stream> stream = makeStream(**device);
  ASSERT_TRUE(stream);
  RunArgs views = x.args();
  Lists inputs(views.inputs), params(views.params), outputs(views.outputs);
  plumrt_run_args args = argsOf(inputs, params, outputs);
  ASSERT_EQ(plumrt_plan_create(gpu, &args, 0, &plan, error, sizeof error), 0)
      << error;
  plumrt_launch launch = {};
  launch.size = sizeof launch;
  launch.inputs = inputs.addresses.data();
  launch.params = params.addresses.data();
  launch.outputs = outputs.addresses.data();
  launch.workspace = workspace;
  launch.workspace_bytes = sizeof workspace;
  launch.stream = stream->get();
  ASSERT_EQ(driver.cuStreamBeginCapture(stream->get(), 1), 0);
  ASSERT_EQ(plumrt_plan_launch(plan, &launch, error, sizeof error), 0) << error;
  EXPECT_EQ(x.o[0], 777);
  EXPECT_TRUE(fake->launches[0].captured);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(driver.cuStreamEndCapture(stream->get(), &graph), 0);
  ASSERT_EQ(driver.cuGraphInstantiate(&exec, graph, 0), 0);
  driver.cuGraphLaunch(exec, stream->get());
  EXPECT_NE(x.o[0], 777);
  driver.cuGraphExecDestroy(exec);
  driver.cuGraphDestroy(graph);
}

TEST_F(GpuCApiTest, MistakesOfALaunch) {
  x = ToyTensors(1, 40, 2);
  RunArgs views = x.args(2);
  Lists inputs(views.inputs), params(views.params), outputs(views.outputs),
      finals(views.finalStates);
  for (Lists *states : {&finals})
    for (plumrt_tensor &tensor : states->tensors)
      tensor.shape[0] = 5;
  plumrt_run_args args = argsOf(inputs, params, outputs);
  args.final_states = finals.tensors.data();
  args.cu_count = 3;
  args.cu_dtype = PLUMRT_I32;
  args.slot_count = 2;
  args.slot_dtype = PLUMRT_I64;
  args.form = PLUMRT_CHUNK;
  ASSERT_EQ(plumrt_plan_create(gpu, &args, 0, &plan, error, sizeof error), 0)
      << error;
  int32_t cu[] = {0, 20, 40};
  int64_t slots[] = {0, 1};
  plumrt_launch good = {};
  good.size = sizeof good;
  good.inputs = inputs.addresses.data();
  good.params = params.addresses.data();
  good.outputs = outputs.addresses.data();
  good.final_states = finals.addresses.data();
  good.cu_seqlens = cu;
  good.slots = slots;
  good.workspace = workspace;
  good.workspace_bytes = sizeof workspace;
  auto after = [&](auto change) {
    plumrt_launch launch = good;
    change(launch);
    int failed = plumrt_plan_launch(plan, &launch, error, sizeof error);
    return failed ? std::string(error) : "";
  };
  EXPECT_EQ(after([](auto &) {}), "");
  EXPECT_EQ(after([](auto &l) { l.cu_seqlens = nullptr; }),
            "error: cu_seqlens is null, the plan is for packed sequences");
  EXPECT_EQ(after([](auto &l) { l.slots = nullptr; }),
            "error: slots is null, the plan is for a state pool");
  // 256 for the offsets, (40 / 16 + 2) chunks * 2 heads * 320 B.
  EXPECT_EQ(after([](auto &l) { l.workspace_bytes = 2815; }),
            "error: the workspace has 2815 bytes, expected 2816");
  EXPECT_EQ(after([](auto &l) { l.workspace = nullptr; }),
            "error: the workspace has 0 bytes, expected 2816");
  EXPECT_EQ(after([&](auto &l) { l.workspace = workspace + 128; }),
            "error: the workspace is not on a 256-byte boundary");
  EXPECT_EQ(
      after([&](auto &l) { l.cu_seqlens = reinterpret_cast<char *>(cu) + 2; }),
      "error: cu_seqlens or slots are not aligned to their element size");
  EXPECT_EQ(after([](auto &l) { l.inputs = nullptr; }),
            "error: input 'q' is null");
  EXPECT_EQ(after([&](auto &l) { l.initial_states = finals.addresses.data(); }),
            "error: initial state 'S' is given, the plan was made without");
  std::vector<const void *> shifted(inputs.addresses.begin(),
                                    inputs.addresses.end());
  shifted[1] = x.k.data() + 1;
  EXPECT_EQ(after([&](auto &l) { l.inputs = shifted.data(); }),
            "error: input 'k' is not on a 16-byte boundary");
  EXPECT_EQ(after([](auto &l) { l.size = 100000; }),
            "plumrt: error: launch.size is 100000, expected at most 104");
  EXPECT_EQ(after([](auto &l) { l.final_states = nullptr; }), "");
  EXPECT_EQ(plumrt_plan_launch(nullptr, &good, error, sizeof error), 1);
  plumrt_plan *none = plan;
  args.chunk = 7;
  EXPECT_EQ(plumrt_plan_create(gpu, &args, 0, &none, error, sizeof error), 1);
  EXPECT_EQ(none, nullptr);
  plumrt_gpu *nothing = gpu;
  EXPECT_EQ(
      plumrt_gpu_open((dir / "toy").c_str(), 3, &nothing, error, sizeof error),
      1);
  EXPECT_STREQ(error, "error: there is no GPU 3, the driver shows 1\nnote: "
                      "CUDA_VISIBLE_DEVICES chooses which ones it shows");
  EXPECT_NE(std::string(plumrt_gpu_manifest(gpu)).find("plum_toy_scan"),
            std::string::npos);
}
