//===- Harness.h - A layer, its data, its runs and the truth ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every integration test does: compile a spec in process, make data from
// the portable generator, run the bundle in some form, and compare with the
// float64 recurrence of the same spec on the same rounded data.
//
//   Layer &kda = Layer::get(localSpec("kda_raw", {{"K", 128}, {"V", 128}}));
//   Data data(kda, {.tokens = 200, .heads = 2});
//   data.fill("q", unitRows(101, 1, 128));
//   ...
//   Values truth = reference(kda, data);
//   for (How how : everyForm(kda))
//     expectClose(kda, run(kda, data, how), truth, standard(kda), how.str());
//
// Every run is hostile: 64 rows of NaN lie behind each input, outputs start as
// 777 and have 64 rows more than they should, final states start as NaN.
//
// PLUM_PRINT_ERRORS=1 in the environment prints every error measured.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_INTEGRATION_HARNESS_H
#define PLUM_TEST_INTEGRATION_HARNESS_H

#include "plum/Frontend/Frontend.h"
#include "plum/Pipelines/Compiler.h"
#include "runtime/Errors.h"
#include "runtime/Executor.h"
#include "runtime/Inputs.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace plum::test {

using Dims = std::map<std::string, int64_t>;

/// A spec's text and the dims it is compiled for.
struct Spec {
  std::string name, text;
  Dims dims;
};
Spec shippedSpec(const std::string &name,
                 const Dims &dims = {});                        ///< docs/layers
Spec localSpec(const std::string &name, const Dims &dims = {}); ///< ./layers

/// Four axes in float64, dense: [B, T, H, d] or [N, H, K, V].
struct Tensor {
  int64_t shape[4] = {1, 0, 1, 1};
  std::vector<double> values;

  Tensor() = default;
  Tensor(int64_t a, int64_t b, int64_t c, int64_t d)
      : shape{a, b, c, d}, values(size_t(a * b * c * d)) {}
  double &at(int64_t a, int64_t b, int64_t c, int64_t d) {
    return values[size_t(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  }
  const double &at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return const_cast<Tensor *>(this)->at(a, b, c, d);
  }
};
/// Elements [begin, end) of one axis.
Tensor slice(const Tensor &tensor, int axis, int64_t begin, int64_t end);
double maxAbs(const Tensor &tensor);
double rms(const Tensor &tensor);

/// Outputs and states by name.
using Values = std::map<std::string, Tensor>;

/// A parsed spec and, from the first use on, its bundle. One per process for
/// each (spec, precision): compiling is the slow part of these tests.
class Layer {
public:
  /// `chunks` are the chunk sizes compiled into the bundle.
  static Layer &get(const Spec &spec, Precision precision = Precision::Default,
                    const std::vector<int64_t> &chunks = {16, 32, 64, 128});

  const Spec spec;
  const Precision precision;
  const std::vector<int64_t> chunks;
  const frontend::Layer &ast() const { return *layer; }
  /// The type a tensor is stored as: what the spec says, f32 under F32.
  DType storage(const frontend::Symbol &symbol) const;
  /// Compiles on first use. Null, and a test failure, when that failed.
  const runtime::Bundle *bundle();

  Layer(const Spec &spec, Precision precision, std::vector<int64_t> chunks);

private:
  void compile();
  std::unique_ptr<Source> source;
  std::unique_ptr<frontend::Layer> layer;
  std::unique_ptr<runtime::Bundle> loaded;
  bool tried = false;
};

/// Value of element i (row-major) of a tensor.
using Fill = std::function<double(int64_t i)>;
Fill normal(uint32_t seed, uint32_t tid, double scale = 1);
/// sigmoid(N).
Fill gate01(uint32_t seed, uint32_t tid);
/// Rows of d normals divided by their norm.
Fill unitRows(uint32_t seed, uint32_t tid, int64_t d);
Fill constant(double value);
double softplus(double x);
double sigmoid(double x);

struct Sizes {
  int64_t batch = 1, tokens = 0, heads = 1;
};

/// The tensors of a problem by name, rounded to what they are stored as.
/// Initial states are optional: those not filled are not handed over.
class Data {
public:
  Data(const Layer &layer, Sizes sizes) : layer(&layer), sizes(sizes) {}

  /// Fills an input [B, T, heads, d], a param [1, 1, heads, d] or a state
  /// [N, heads, K, V]; `heads` 0 stands for all of them.
  void fill(const std::string &name, const Fill &value, int64_t heads = 0);
  Tensor &operator[](const std::string &name) { return tensors.at(name); }
  bool has(const std::string &name) const { return tensors.count(name) != 0; }
  /// Cuts the tokens (B = 1) into sequences; call it before filling states.
  void pack(std::vector<int64_t> offsets) { cuSeqlens = std::move(offsets); }
  /// Packed sequence n on its own.
  Data sequence(int64_t n) const;
  /// Tokens [begin, end) of every sequence of a batch.
  Data tokens(int64_t begin, int64_t end) const;
  int64_t sequences() const {
    return cuSeqlens.empty() ? sizes.batch : int64_t(cuSeqlens.size()) - 1;
  }
  int64_t length(int64_t n) const {
    return cuSeqlens.empty() ? sizes.tokens
                             : cuSeqlens[size_t(n) + 1] - cuSeqlens[size_t(n)];
  }

  const Layer *layer;
  Sizes sizes;
  std::map<std::string, Tensor> tensors;
  std::vector<int64_t> cuSeqlens;
};

/// What a model would feed: normal activations and raw gates, params as their
/// papers initialise them, states from something read before. The first input
/// has `keyHeads` heads; 0 stands for all of them.
Data realistic(const Layer &layer, Sizes sizes, uint32_t seed,
               int64_t keyHeads = 0);

/// The float64 recurrence. With `at`, also the states after so many tokens of
/// every sequence, as "S@64".
Values reference(const Layer &layer, const Data &data,
                 const std::vector<int64_t> &at = {});

/// One way to run a bundle.
struct How {
  runtime::Form form = runtime::Form::Chunk;
  int64_t chunk = 64;
  std::string str() const;
};
/// The step form, and the chunk form at each size of the bundle.
std::vector<How> everyForm(const Layer &layer);
std::vector<How> chunkForms(const Layer &layer);

/// Buffers of one run; change `args` before `go` to run from other memory.
class Launch {
public:
  /// Without `ownStates`, final states are the test's to provide.
  Launch(Layer &layer, const Data &data, bool ownStates = true);
  /// False, with a test failure, when the run is refused.
  bool go(How how);
  /// Outputs and final states; checks that nothing else was written.
  Values values() const;

  runtime::RunArgs args;
  struct Buffer {
    std::vector<char> bytes;
    runtime::TensorView view;
  };
  /// A dense buffer of [a, b, c, d] with `spare` more of axis b, all `poison`.
  static Buffer allocate(DType dtype, int64_t a, int64_t b, int64_t c,
                         int64_t d, int64_t spare, double poison);
  static void store(const runtime::TensorView &view, const Tensor &tensor);
  static Tensor load(const runtime::TensorView &view);

private:
  Layer &layer;
  std::vector<Buffer> inputs, params, outputs, initial, final;
  std::vector<char> offsets;
};
Values run(Layer &layer, const Data &data, How how);

struct Limits {
  double r, w, m, stateR;
};
/// 5e-3, 1e-2, 2e-2, 5e-3; with precision F32: 1e-5, 2e-5, 4e-5, 1e-5.
Limits standard(const Layer &layer);
/// Finite; outputs within R, W, M of the truth and states within R, sequence
/// by sequence.
void expectClose(const Data &data, const Values &got, const Values &truth,
                 const Limits &limits, const std::string &what);
/// Equal bytes.
void expectSame(const Values &a, const Values &b, const std::string &what);
/// R of one output against another run's.
double distance(const Tensor &x, const Tensor &ref);
/// A published property of the reference: equal within 1e-3.
void expectPublished(double value, double published, const std::string &what);

} // namespace plum::test

#endif // PLUM_TEST_INTEGRATION_HARNESS_H
