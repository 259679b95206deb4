//===- Compile.cpp - plum compile -------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tuning.h"
#include "runtime/Safetensors.h"

#include <cstdio>
#include <memory>

using namespace plum;
using namespace plum::tool;

namespace {

struct CompileVerb {
  SpecArguments spec;
  std::string output, stopAfter, shape;

  int run() const;
};

/// All of `text` to a file that appears complete, or to stdout.
Status writeText(const std::string &text, const std::string &path) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return Status::ok();
  }
  Result<runtime::AtomicFile> file = runtime::AtomicFile::create(path);
  if (!file)
    return file.error();
  if (Status status = file->write(text.data(), text.size()); !status)
    return status;
  return file->commit();
}

int CompileVerb::run() const {
  Result<CompileOptions> options = spec.options();
  if (!options)
    return fail(options.error());
  bool model = isModelDirectory(spec.path) && stopAfter.empty();
  Result<Source> source = model ? Source("", "") : spec.read();
  if (!source)
    return fail(source.error());
  CompileReport report;
  if (!stopAfter.empty()) {
    Result<std::string> text =
        compileToPhase(*source, *options, stopAfter, report);
    if (!text)
      return fail(text.error());
    spec.show(report);
    Status written = writeText(*text, output.empty() ? "-" : output);
    return written ? 0 : fail(written.error());
  }
  if (!output.empty() && isModelDirectory(spec.path)) {
    Status compiled = compileModel(spec, output);
    return compiled ? 0 : fail(compiled.error());
  }
  if (output.empty() || output == "-")
    return fail({"-o",
                 "a bundle needs a directory",
                 {"'-o DIR' names it; '--stop-after PHASE' prints a phase's IR "
                  "instead"}});
  if (!shape.empty()) {
    Result<runtime::TuningShape> sizes = shapeOf(shape);
    if (!sizes)
      return fail(sizes.error());
    auto choice = chooseFor(spec, *source, *options, *sizes, 0);
    if (!choice)
      return fail(choice.error());
    if (*choice)
      showChoice(**choice);
  }
  Status status = compileShown(*source, *options, output, report);
  if (!status)
    return fail(status.error());
  spec.show(report);
  return 0;
}

} // namespace

void plum::tool::addCompile(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "compile",
      "compile a layer spec to a bundle, or print the IR of a phase");
  auto state = std::make_shared<CompileVerb>();
  state->spec.declare(*verb);
  verb->add_option("-o,--output", state->output,
                   "bundle directory; with --stop-after a file, - is stdout");
  verb->add_option("--stop-after", state->stopAfter,
                   "print the IR of this phase (see plum --print-phases)")
      ->type_name("PHASE");
  verb->add_option("--shape", state->shape,
                   "sizes to choose chunk, slice and stages for, from the "
                   "tuning database or else by the cost model")
      ->type_name("B=n,T=n,H=n");
  verb->footer(
      "A bundle holds kernel.so, a C header, manifest.json and the spec; for a "
      "GPU\nkernels.ptx instead, and kernels.cubin where a ptxas is found "
      "(PLUM_PTXAS, PATH).\nplum-run runs it on a machine without a compiler.");
  verb->callback([state, &exitCode] { exitCode = state->run(); });
}
