//===- main.cpp - plum-run ------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs, checks and times compiled layers on a machine that has no compiler.
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/Common.h"

#include <cstdio>
#include <exception>

using namespace plum::runtime::tool;

int main(int argc, char **argv) {
  CLI::App app("Runs layers and models: bundles that 'plum compile' wrote.",
               "plum-run");
  app.require_subcommand(1);
  app.footer("plum-run VERB --help says what a verb reads and writes.\n"
             "Exit code: 0 done, 1 an error or a failed check.");
  int exitCode = 0;
  addRun(app, exitCode);
  addCheck(app, exitCode);
  addBench(app, exitCode);
  addInfo(app, exitCode);
  addDevice(app, exitCode);
  addLogits(app, exitCode);
  addGenerate(app, exitCode);
  addPerplexity(app, exitCode);
  addMoe(app, exitCode);
  addTune(app, exitCode);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &success) {
    return app.exit(success); // --help
  } catch (const CLI::ParseError &error) {
    std::fprintf(stderr, "plum-run: error: %s\n", error.what());
    std::fprintf(stderr, "note: 'plum-run --help' lists what there is\n");
    return 1;
  } catch (const std::exception &error) { // Out of memory, for one.
    std::fprintf(stderr, "plum-run: error: %s\n", error.what());
    return 1;
  }
  return exitCode;
}
