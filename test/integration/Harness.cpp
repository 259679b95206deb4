//===- Harness.cpp - A layer, its data, its runs and the truth ------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/integration/Harness.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;
using runtime::portableUniform;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Specs and layers
//===----------------------------------------------------------------------===//

static Spec readSpec(const std::string &path, const std::string &name,
                     const Dims &dims) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file) << "no spec " << path;
  return {name, text.str(), dims};
}

Spec test::shippedSpec(const std::string &name, const Dims &dims) {
  return readSpec(PLUM_SOURCE_DIR "/docs/layers/" + name + ".plum", name, dims);
}

Spec test::localSpec(const std::string &name, const Dims &dims) {
  return readSpec(PLUM_SOURCE_DIR "/test/integration/layers/" + name + ".plum",
                  name, dims);
}

/// A directory of this process for bundles, removed at its end.
static const fs::path &scratch() {
  struct Directory {
    fs::path path = fs::temp_directory_path() /
                    ("plum-integration-" + std::to_string(getpid()));
    Directory() { fs::create_directories(path); }
    ~Directory() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  };
  static Directory directory;
  return directory.path;
}

Layer &Layer::get(const Spec &spec, Precision precision,
                  const std::vector<int64_t> &chunks) {
  static std::map<std::string, std::unique_ptr<Layer>> layers;
  std::string key =
      spec.name + '\n' + spec.text + '\n' + std::to_string(int(precision));
  for (const auto &[name, value] : spec.dims)
    key += ' ' + name + '=' + std::to_string(value);
  for (int64_t chunk : chunks)
    key += ' ' + std::to_string(chunk);
  std::unique_ptr<Layer> &layer = layers[key];
  if (!layer)
    layer = std::make_unique<Layer>(spec, precision, chunks);
  return *layer;
}

Layer::Layer(const Spec &spec, Precision precision, std::vector<int64_t> chunks)
    : spec(spec), precision(precision), chunks(std::move(chunks)),
      source(std::make_unique<Source>(spec.name + ".plum", spec.text)) {
  Diagnostics diags(*source);
  frontend::SpecOptions options;
  options.dims = spec.dims;
  options.stepOnly = this->chunks.empty();
  layer = frontend::parseSpec(diags, options);
  if (!layer)
    ADD_FAILURE() << diags.render();
}

DType Layer::storage(const frontend::Symbol &symbol) const {
  return precision == Precision::F32 ? DType::F32 : symbol.dtype;
}

const runtime::Bundle *Layer::bundle() {
  if (!tried) {
    tried = true;
    compile();
  }
  EXPECT_TRUE(loaded) << "no bundle of " << spec.name;
  return loaded.get();
}

void Layer::compile() {
  static int number = 0;
  std::string dir = scratch() / (spec.name + std::to_string(number++));
  CompileOptions options;
  options.spec.dims = spec.dims;
  options.precision = precision;
  options.form = chunks.empty() ? Form::Step : Form::Auto;
  options.spec.stepOnly = chunks.empty();
  options.chunks = chunks;
  CompileReport report;
  if (Status status = compileBundle(*source, options, dir, report); !status) {
    ADD_FAILURE() << status.error().str() << "\nspec:\n" << spec.text;
    return;
  }
  Result<runtime::Bundle> opened = runtime::Bundle::open(dir);
  if (!opened) {
    ADD_FAILURE() << opened.error().str();
    return;
  }
  loaded = std::make_unique<runtime::Bundle>(std::move(*opened));
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

double test::softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double test::sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Fill test::normal(uint32_t seed, uint32_t tid, double scale) {
  return [=](int64_t i) {
    return scale * runtime::portableNormal(seed, tid, uint32_t(i));
  };
}
Fill test::gate01(uint32_t seed, uint32_t tid) {
  return [=](int64_t i) {
    return sigmoid(runtime::portableNormal(seed, tid, uint32_t(i)));
  };
}
Fill test::unitRows(uint32_t seed, uint32_t tid, int64_t d) {
  // The row of the last call; elements are asked for in order.
  struct Row {
    int64_t number = -1;
    std::vector<double> values;
  };
  return [=, row = Row()](int64_t i) mutable {
    if (row.number != i / d) {
      row = {i / d, {}};
      double sum = 0;
      for (int64_t c = 0; c < d; ++c) {
        double x = runtime::portableNormal(seed, tid, uint32_t(i / d * d + c));
        row.values.push_back(x);
        sum += x * x;
      }
      for (double &x : row.values)
        x /= std::sqrt(sum);
    }
    return row.values[size_t(i % d)];
  };
}
Fill test::constant(double value) {
  return [=](int64_t) { return value; };
}

static double rounded(double value, DType dtype) {
  char storage[8];
  storeFromDouble(storage, dtype, 0, value);
  return loadAsDouble(storage, dtype, 0);
}

/// The symbol `name`, with its kind.
static const frontend::Symbol *find(const frontend::Layer &layer,
                                    const std::string &name) {
  for (const auto *list : {&layer.inputs, &layer.params, &layer.states})
    for (const frontend::Symbol *symbol : *list)
      if (symbol->name == name)
        return symbol;
  return nullptr;
}

void Data::fill(const std::string &name, const Fill &value, int64_t heads) {
  const frontend::Symbol *symbol = find(layer->ast(), name);
  ASSERT_NE(symbol, nullptr) << "the layer has no '" << name << "'";
  heads = heads ? heads : sizes.heads;
  int64_t d = symbol->shape.cols;
  Tensor tensor = symbol->kind == frontend::SymbolKind::Input
                      ? Tensor(sizes.batch, sizes.tokens, heads, d)
                  : symbol->kind == frontend::SymbolKind::Param
                      ? Tensor(1, 1, heads, symbol->shape.rows * d)
                      : Tensor(sequences(), heads, symbol->shape.rows, d);
  DType dtype = layer->storage(*symbol);
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = rounded(value(int64_t(i)), dtype);
  tensors[name] = std::move(tensor);
}

Tensor test::slice(const Tensor &tensor, int axis, int64_t begin, int64_t end) {
  int64_t shape[4], from[4] = {0, 0, 0, 0};
  std::copy(tensor.shape, tensor.shape + 4, shape);
  shape[axis] = end - begin;
  from[axis] = begin;
  Tensor part(shape[0], shape[1], shape[2], shape[3]);
  for (int64_t a = 0; a < shape[0]; ++a)
    for (int64_t b = 0; b < shape[1]; ++b)
      for (int64_t c = 0; c < shape[2]; ++c)
        for (int64_t d = 0; d < shape[3]; ++d)
          part.at(a, b, c, d) =
              tensor.at(from[0] + a, from[1] + b, from[2] + c, from[3] + d);
  return part;
}

Data Data::tokens(int64_t begin, int64_t end) const {
  Data part = *this;
  part.cuSeqlens.clear();
  part.sizes.tokens = end - begin;
  for (const frontend::Symbol *input : layer->ast().inputs) {
    auto found = tensors.find(input->name);
    if (found != tensors.end())
      part.tensors[input->name] = slice(found->second, 1, begin, end);
  }
  return part;
}

Data Data::sequence(int64_t n) const {
  Data part = tokens(cuSeqlens[size_t(n)], cuSeqlens[size_t(n) + 1]);
  for (const frontend::Symbol *state : layer->ast().states)
    if (has(state->name))
      part.tensors[state->name] = slice(tensors.at(state->name), 0, n, n + 1);
  return part;
}

Data test::realistic(const Layer &layer, Sizes sizes, uint32_t seed,
                     int64_t keyHeads) {
  Data data(layer, sizes);
  uint32_t tid = 1;
  bool first = true;
  for (const frontend::Symbol *input : layer.ast().inputs) {
    data.fill(input->name, normal(seed, tid++), first ? keyHeads : 0);
    first = false;
  }
  for (const frontend::Symbol *param : layer.ast().params) {
    ++tid;
    auto with = [&](double (*value)(double n, double u, int64_t i)) {
      data.fill(param->name, [=](int64_t i) {
        return value(portableNormal(seed, tid, uint32_t(i)),
                     portableUniform(seed, tid + 100, uint32_t(i)), i);
      });
    };
    if (param->name == "A_log")
      with([](double, double u, int64_t) { return std::log(1 + 15 * u); });
    else if (param->name == "dt_bias")
      with([](double n, double, int64_t) { return n - 3; });
    else if (param->name == "log_gamma")
      with([](double, double, int64_t h) {
        return std::log1p(-std::exp2(-5. - double(h)));
      });
    else if (param->name == "xi")
      with([](double n, double, int64_t) { return 1 + 0.3 * n; });
    else
      with([](double n, double, int64_t) { return n; });
  }
  for (const frontend::Symbol *state : layer.ast().states) {
    ++tid;
    // A normaliser counts what was written: positive.
    data.fill(state->name, [=](int64_t i) {
      double n = portableNormal(seed, tid, uint32_t(i));
      return state->shape.kind == frontend::Shape::Row ? 1 + std::abs(n)
                                                       : 0.25 * n;
    });
  }
  return data;
}

double test::maxAbs(const Tensor &tensor) {
  double most = 0;
  for (double x : tensor.values)
    most = std::max(most, std::abs(x));
  return most;
}

double test::rms(const Tensor &tensor) {
  double sum = 0;
  for (double x : tensor.values)
    sum += x * x;
  return std::sqrt(sum / double(tensor.values.size()));
}

//===----------------------------------------------------------------------===//
// Forms and comparisons
//===----------------------------------------------------------------------===//

std::string How::str() const {
  return form == runtime::Form::Step ? "step form"
         : form == runtime::Form::Auto
             ? "auto form"
             : "chunk form, C = " + std::to_string(chunk);
}

std::vector<How> test::chunkForms(const Layer &layer) {
  std::vector<How> list;
  for (int64_t chunk : layer.chunks)
    list.push_back({runtime::Form::Chunk, chunk});
  return list;
}

std::vector<How> test::everyForm(const Layer &layer) {
  std::vector<How> list = chunkForms(layer);
  list.push_back({runtime::Form::Step, 0});
  return list;
}

Limits test::standard(const Layer &layer) {
  if (layer.precision == Precision::F32)
    return {1e-5, 2e-5, 4e-5, 1e-5};
  return {5e-3, 1e-2, 2e-2, 5e-3};
}

/// One tensor of one sequence: finite first, then each measure by name.
static void expectMeasures(const Tensor &x, const Tensor &ref, bool output,
                           const Limits &limits, const std::string &what) {
  ASSERT_EQ(x.values.size(), ref.values.size()) << what;
  if (x.values.empty())
    return;
  if (maxAbs(ref) == 0) {
    EXPECT_EQ(maxAbs(x), 0) << what << ": the truth is zero";
    return;
  }
  runtime::ErrorMeasures errors =
      output ? runtime::measure(x.values, ref.values, x.shape[1], x.shape[2],
                                x.shape[3])
             : runtime::measure(x.values, ref.values);
  static const bool print = std::getenv("PLUM_PRINT_ERRORS") != nullptr;
  if (print)
    std::printf("%s: R %.2e W %.2e M %.2e\n", what.c_str(), errors.r, errors.w,
                errors.m);
  ASSERT_EQ(errors.nonFinite, 0) << what << ": values are not finite";
  EXPECT_LE(errors.r, output ? limits.r : limits.stateR) << what << ": R";
  if (!output)
    return;
  EXPECT_LE(errors.w, limits.w) << what << ": W, the worst window";
  EXPECT_LE(errors.m, limits.m) << what << ": M, the worst value";
}

void test::expectClose(const Data &data, const Values &got, const Values &truth,
                       const Limits &limits, const std::string &what) {
  ASSERT_FALSE(got.empty()) << what << ": no results";
  const frontend::Layer &layer = data.layer->ast();
  int64_t count = data.sequences();
  for (int64_t n = 0; n < count; ++n) {
    std::string where =
        count > 1 ? what + ", sequence " + std::to_string(n) : what;
    for (const frontend::Symbol *output : layer.outputs) {
      const Tensor &x = got.at(output->name), &ref = truth.at(output->name);
      auto cut = [&](const Tensor &tensor) {
        return data.cuSeqlens.empty()
                   ? slice(tensor, 0, n, n + 1)
                   : slice(tensor, 1, data.cuSeqlens[size_t(n)],
                           data.cuSeqlens[size_t(n) + 1]);
      };
      expectMeasures(cut(x), cut(ref), true, limits,
                     where + ", " + output->name);
    }
    for (const frontend::Symbol *state : layer.states)
      expectMeasures(slice(got.at(state->name), 0, n, n + 1),
                     slice(truth.at(state->name), 0, n, n + 1), false, limits,
                     where + ", " + state->name);
  }
}

void test::expectSame(const Values &a, const Values &b,
                      const std::string &what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto &[name, x] : a) {
    const Tensor &y = b.at(name);
    ASSERT_EQ(x.values.size(), y.values.size()) << what << ", " << name;
    size_t different = 0;
    for (size_t i = 0; i < x.values.size(); ++i)
      different += std::memcmp(&x.values[i], &y.values[i], sizeof(double)) != 0;
    EXPECT_EQ(different, 0u)
        << what << ", " << name << ": of " << x.values.size()
        << " values differ (R = " << distance(x, y) << ")";
  }
}

double test::distance(const Tensor &x, const Tensor &ref) {
  return runtime::measure(x.values, ref.values).r;
}

void test::expectPublished(double value, double published,
                           const std::string &what) {
  EXPECT_NEAR(value, published, 1e-3 * published)
      << what << " of the reference";
}
