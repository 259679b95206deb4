//===- Ptxas.cpp - Cubins, and what kernels take ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ptxas is run as a program on files in a directory of its own. libnvJitLink
// compiles the same PTX in the process, with the same messages, and could take
// its place where no toolkit is installed; the driver needs neither.
//
//===----------------------------------------------------------------------===//

#include "plum/Target/NVPTXTarget.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace plum;
namespace fs = llvm::sys::fs;

static constexpr const char *kToolkitBin = "/usr/local/cuda/bin";

Result<std::string> plum::findPtxas(const std::string &preferred) {
  if (!preferred.empty()) {
    if (fs::can_execute(preferred))
      return preferred;
    return Error{"PLUM_PTXAS",
                 "'" + preferred + "' is not a program that can be run",
                 {}};
  }
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  if (auto found = llvm::sys::findProgramByName("ptxas", {kToolkitBin}))
    return *found;
  return Error{
      "",
      "no ptxas found to assemble PTX with",
      {std::string("looked at PLUM_PTXAS, in PATH and in ") + kToolkitBin,
       "the PTX itself ('--stop-after ptx', or a bundle) needs none: "
       "the GPU's driver compiles it"}};
}

/// The integer that stands before `what`, "0 bytes spill stores" -> 0.
static int64_t numberBefore(llvm::StringRef line, llvm::StringRef what) {
  llvm::StringRef before = line.substr(0, line.find(what)).rtrim();
  size_t digits = before.size();
  while (digits && llvm::isDigit(before[digits - 1]))
    --digits;
  int64_t value = 0;
  before.substr(digits).getAsInteger(10, value);
  return line.contains(what) ? value : 0;
}

/// The text between the first pair of quotes.
static llvm::StringRef quoted(llvm::StringRef line) {
  return line.split('\'').second.split('\'').first;
}

void plum::parsePtxasLog(std::string_view log, AssembledKernels &into) {
  KernelResources *current = nullptr;
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(log.data(), log.size()).split(lines, '\n');
  for (llvm::StringRef line : lines) {
    if (line.contains("Compiling entry function")) {
      into.kernels.push_back({quoted(line).str()});
      current = &into.kernels.back();
    } else if (line.contains("spill stores") && current) {
      current->stackBytes = numberBefore(line, " bytes stack frame");
      current->spillStoreBytes = numberBefore(line, " bytes spill stores");
      current->spillLoadBytes = numberBefore(line, " bytes spill loads");
    } else if (line.contains("Used ") && current) {
      current->registers = numberBefore(line, " registers");
      current->barriers = numberBefore(line, " barriers");
      current->sharedBytes = numberBefore(line, " bytes smem");
    } else if (size_t code = line.find("(C7"); code != line.npos) {
      // ptxas info : (C7514) Potential Performance Loss: wgmma ...
      into.warnings.push_back(line.substr(code + 1).str());
      std::string &warning = into.warnings.back();
      if (size_t close = warning.find(')'); close != warning.npos)
        warning.replace(close, 1, ":");
    } else if (line.contains("warning")) {
      into.warnings.push_back(line.trim().str());
    }
  }
}

std::string plum::describe(const KernelResources &kernel) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << kernel.symbol << ": " << kernel.registers << " registers, "
      << kernel.spillStoreBytes + kernel.spillLoadBytes << " spilled bytes, "
      << kernel.stackBytes << " stack bytes, " << kernel.barriers
      << " barriers, " << kernel.sharedBytes << " static shared bytes";
  return text;
}

std::string plum::describe(const AssembledKernels &kernels) {
  std::string text;
  for (const KernelResources &kernel : kernels.kernels)
    text += describe(kernel) + "\n";
  for (const std::string &warning : kernels.warnings)
    text += "warning: " + warning + "\n";
  return text;
}

static std::string readAll(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// ptxas's errors, each with the line that it is about:
///   ptxas FILE, line 31; error : Feature '.x' requires .target sm_90 or higher
static std::vector<std::string> complaints(llvm::StringRef log,
                                           llvm::StringRef ptx) {
  constexpr size_t kMost = 8;
  llvm::SmallVector<llvm::StringRef> lines, source;
  log.split(lines, '\n', -1, /*KeepEmpty=*/false);
  ptx.split(source, '\n');
  std::vector<std::string> notes;
  for (llvm::StringRef line : lines) {
    auto [place, what] = line.split("error");
    size_t number = 0;
    if (what.empty() || notes.size() == kMost)
      continue;
    std::string note = what.ltrim(" :").str();
    llvm::StringRef digits = place.split("line ").second;
    if (!digits.consumeInteger(10, number) && number && number <= source.size())
      note += ": " + source[number - 1].trim().str();
    if (!llvm::is_contained(notes, note))
      notes.push_back(note);
  }
  return notes;
}

Result<AssembledKernels> plum::assemblePTX(const std::string &ptx,
                                           const GpuChip &chip,
                                           const std::string &ptxas) {
  llvm::SmallString<128> dir;
  if (std::error_code code = fs::createUniqueDirectory("plum-ptxas", dir))
    return Error{"", "no directory for ptxas's files: " + code.message(), {}};
  llvm::scope_exit remove([&] { fs::remove_directories(dir); });
  std::string base = std::string(dir) + "/";
  std::string input = base + "kernels.ptx", output = base + "kernels.cubin",
              log = base + "log";
  {
    std::error_code code;
    llvm::raw_fd_ostream out(input, code);
    if (!code) {
      out << ptx;
      out.close();
      code = out.error();
      out.clear_error();
    }
    if (code)
      return Error{input, "cannot be written: " + code.message(), {}};
  }
  // A thread for each kernel: ptxas is most of a compilation.
  std::string message;
  int code = llvm::sys::ExecuteAndWait(
      ptxas,
      {ptxas, "-arch=" + std::string(chip.name), "-v", "-split-compile=0", "-o",
       output, input},
      std::nullopt,
      {llvm::StringRef(), llvm::StringRef(log), llvm::StringRef(log)},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  AssembledKernels result;
  std::string text = readAll(log);
  if (code) {
    return Error{"",
                 "'" + ptxas + "' refuses the kernels" +
                     (message.empty() ? "" : ": " + message),
                 complaints(text, ptx)};
  }
  parsePtxasLog(text, result);
  // ptxas names them in an order of its own.
  llvm::sort(result.kernels, [&](const auto &a, const auto &b) {
    return ptx.find(".entry " + a.symbol + "(") <
           ptx.find(".entry " + b.symbol + "(");
  });
  result.cubin = readAll(output);
  if (result.cubin.empty())
    return Error{"", "'" + ptxas + "' wrote no cubin", {}};
  return result;
}
