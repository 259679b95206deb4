//===- main.cpp - plum ------------------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler's driver.
//
//===----------------------------------------------------------------------===//

#include "Tuning.h"
#include "plum/Pipelines/Phases.h"

#include <cstdio>

int main(int argc, char **argv) {
  CLI::App app("Compiles state-space layers from the equations of one token.",
               "plum");
  app.set_version_flag("--version", "plum " PLUM_VERSION);
  app.footer(
      "plum VERB --help says what a verb takes. The spec language is described "
      "in\n"
      "docs/spec-language.md, layers to start from are in docs/layers/.\n"
      "Exit code: 0 done, 1 an error or a failed check.");
  bool printPhases = false;
  app.add_flag("--print-phases", printPhases,
               "list the phases of a compilation");
  int exitCode = 0;
  plum::tool::addCompile(app, exitCode);
  plum::tool::addForwarded(app, exitCode);
  plum::tool::addCheck(app, exitCode);
  plum::tool::addTune(app, exitCode);
  plum::tool::addModelVerbs(app, exitCode);
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &success) {
    return app.exit(success); // --help, --version
  } catch (const CLI::ParseError &error) {
    std::fprintf(stderr,
                 "plum: error: %s\nnote: 'plum --help' lists what there is\n",
                 error.what());
    return 1;
  } catch (const std::exception &error) { // Out of memory, for one.
    std::fprintf(stderr, "plum: error: %s\n", error.what());
    return 1;
  }
  if (printPhases)
    for (const plum::Phase &phase : plum::phases())
      std::printf("%-8s %-4s %s\n", phase.name.data(),
                  plum::stringify(phase.machine).data(),
                  phase.description.data());
  else if (app.get_subcommands().empty())
    std::fputs(app.help().c_str(), stdout);
  return exitCode;
}
