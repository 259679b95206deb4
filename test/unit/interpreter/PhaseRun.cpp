//===- PhaseRun.cpp - A layer, its data and its phases --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PhaseRun.h"

#include "plum/Frontend/Frontend.h"
#include "plum/Reference/Recurrence.h"
#include "runtime/Errors.h"

#include "gtest/gtest.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>

using namespace plum;
using namespace plum::test;
using namespace plum::runtime;
using interpreter::PhaseProgram;

std::string test::shippedLayer(const std::string &name) {
  std::ifstream file(PLUM_SOURCE_DIR "/docs/layers/" + name + ".plum");
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

PhaseRun::PhaseRun(const std::string &text, CompileOptions given)
    : source("layer.plum", text), options(std::move(given)), diags(source) {
  CompileReport report;
  Result<Manifest> described = describeLayer(source, options, report);
  if (!described) {
    ADD_FAILURE() << described.error().str();
    return;
  }
  manifest = std::move(*described);
  frontend::SpecOptions spec = options.spec;
  spec.stepOnly = true;
  layer = frontend::parseSpec(diags, spec);
  EXPECT_TRUE(layer) << diags.render();
}

void PhaseRun::makeData(int64_t tokens, uint32_t seed) {
  random.clear();
  Result<RandomProblem> made =
      randomProblem(manifest, 1, tokens, 1, seed, pool);
  ASSERT_TRUE(made) << made.error().str();
  random.push_back(std::move(*made));
  args = random.front().args;
  for (size_t i = 0; i < args.finalStates.size(); ++i) {
    const TensorView &view = args.finalStates[i];
    bool isVector = manifest.states[i].shape.size() < 2;
    for (int64_t n = 0; n < view.elements(); ++n) {
      double x = portableNormal(seed, 80 + uint32_t(i), uint32_t(n));
      static_cast<float *>(view.data)[n] =
          float(isVector ? std::fabs(x) : x / 4);
    }
  }
  args.initialStates = args.finalStates;
  Result<Problem> planned = planProblem(manifest, args);
  ASSERT_TRUE(planned) << planned.error().str();
  problem = *planned;
  computeTruth();
}

void PhaseRun::computeTruth() {
  truth = runHeads(manifest, args, problem, pool, [&](reference::Head &head) {
    reference::run(*layer, head);
  });
}

std::string PhaseRun::ir(const std::string &phase) {
  CompileReport report;
  Result<std::string> text = compileToPhase(source, options, phase, report);
  if (text)
    return *text;
  ADD_FAILURE() << text.error().message;
  return "";
}

std::optional<PhaseProgram> PhaseRun::read(const std::string &ir, bool exact) {
  Result<PhaseProgram> program = PhaseProgram::parse(
      ir, exact ? interpreter::constantsOf(*layer) : std::vector<double>());
  if (program)
    return std::move(*program);
  ADD_FAILURE() << program.error().str() << "\n" << ir;
  return std::nullopt;
}

double PhaseRun::error(const PhaseProgram &program,
                       const PhaseProgram::Entry &entry) {
  Status status;
  std::mutex mutex;
  auto runHead = [&](reference::Head &head) {
    Status done = program.run(entry, head);
    std::lock_guard lock(mutex);
    if (status && !done)
      status = done;
  };
  std::vector<ReferenceSequence> found =
      runHeads(manifest, args, problem, pool, runHead);
  if (!status) {
    ADD_FAILURE() << status.error().str();
    return std::numeric_limits<double>::quiet_NaN();
  }
  ErrorMeasures worst;
  for (size_t n = 0; n < found.size(); ++n) {
    for (size_t i = 0; i < found[n].outputs.size(); ++i)
      worst.merge(measure(found[n].outputs[i], truth[n].outputs[i]));
    for (size_t i = 0; i < found[n].states.size(); ++i)
      worst.merge(measure(found[n].states[i], truth[n].states[i]));
  }
  return worst.r;
}
