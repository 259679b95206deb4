//===- ToyLayer.h - A small bundle and tensors for it -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layer toy, K = 4 and V = 3: a decayed outer-product memory S, a vector state
// z, one param, inputs of both widths, a row and a scalar output.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_RUNTIME_TOYLAYER_H
#define PLUM_TEST_UNIT_RUNTIME_TOYLAYER_H

#include "runtime/Executor.h"
#include "runtime/Safetensors.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

namespace plum::runtime::test {

constexpr int64_t K = 4, V = 3;

/// A directory that goes away with the object.
struct TempDir {
  TempDir();
  ~TempDir();
  std::string operator/(const std::string &name) const {
    return path + "/" + name;
  }
  /// Names in it, sorted.
  std::vector<std::string> list() const;
  std::string path;
};

std::string readFile(const std::string &path);
void writeFile(const std::string &path, const std::string &text);

/// The manifest of layer toy; kernels step, chunk 4, chunk 16.
Manifest toyManifest();
/// The same layer for a GPU: a step kernel and one plan for chunks of 16.
Manifest toyGpuManifest();
/// Writes a bundle for it, or for a changed manifest.
void writeToyBundle(const std::string &directory,
                    const Manifest &manifest = toyManifest());

/// How the toy kernels were called since reset.
struct ToyLog {
  ToyLog();
  void reset();
  /// "16x32 1x3": chunk x tokens of each call.
  std::string calls() const;
  int64_t misaligned() const;

private:
  std::unique_ptr<void, int (*)(void *)> object;
};

/// A bundle of toy kernels in dir / "toy" and its executor. Kernels must find
/// their workspace aligned.
struct ToyRun : testing::Test {
  TempDir dir;
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Executor> executor;
  ToyLog log;

  /// After the bundle was written.
  void open() {
    Result<Bundle> opened = Bundle::open(dir / "toy");
    ASSERT_TRUE(opened) << opened.error().str();
    bundle = std::make_unique<Bundle>(std::move(*opened));
    executor = std::make_unique<Executor>(*bundle);
    log.reset();
  }
  void TearDown() override { EXPECT_EQ(log.misaligned(), 0); }

  void run(const RunArgs &args, const RunOptions &options = {}) {
    Status status = executor->run(args, options);
    EXPECT_TRUE(status) << status.error().str();
  }
  std::string error(const RunArgs &args, const RunOptions &options = {}) {
    Status status = executor->run(args, options);
    return status ? "" : status.error().str();
  }
};

/// Dense tensors of a run [B, T, H, ...] with reproducible small values.
struct ToyTensors {
  ToyTensors(int64_t batch, int64_t tokens, int64_t heads);

  int64_t batch, tokens, heads;
  std::vector<float> q, k, g, bias;
  std::vector<uint16_t> v;
  std::vector<float> o, n; ///< Start as 777.
  std::vector<float> S, z; ///< [N, H, ...], final states; start as 777.

  /// Views of all this; final states for N = `sequences`.
  RunArgs args(int64_t sequences);
  RunArgs args() { return args(batch); }
};

/// The recurrence in double over rows begin .. end of one batch and head, from
/// states S [K, V] and z [K]; writes those and o, n rows.
void toyRecurrence(const ToyTensors &tensors, int64_t batch, int64_t begin,
                   int64_t end, int64_t head, std::vector<double> &S,
                   std::vector<double> &z, std::vector<double> &o,
                   std::vector<double> &n);

/// A file to write: name -> dtype, shape, bytes. Change it, then write it.
struct ToyFile {
  struct Entry {
    DType dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Entry> tensors;

  template <typename T>
  void set(const std::string &name, DType dtype, std::vector<int64_t> shape,
           const std::vector<T> &values) {
    tensors[name] = {dtype, std::move(shape),
                     std::string(reinterpret_cast<const char *>(values.data()),
                                 values.size() * sizeof(T))};
  }
  void write(const std::string &path) const;
};

/// The inputs and params of `tensors` without a batch axis.
ToyFile toyFile(const ToyTensors &tensors);
std::vector<double> fileValues(const std::string &path,
                               const std::string &name);

} // namespace plum::runtime::test

#endif // PLUM_TEST_UNIT_RUNTIME_TOYLAYER_H
