//===- HostTarget.cpp - LLVM code for a CPU ---------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Target/HostTarget.h"

#include "Optimise.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace plum;

HostTarget::HostTarget() = default;
HostTarget::HostTarget(HostTarget &&) = default;
HostTarget::~HostTarget() = default;

/// The features worth checking before an object is loaded elsewhere.
static constexpr llvm::StringLiteral kVectorFeatures[] = {
    "sse4.2",   "avx",        "f16c",      "fma",      "avx2",
    "bmi2",     "avx512f",    "avx512bw",  "avx512cd", "avx512dq",
    "avx512vl", "avx512bf16", "avx512fp16"};

Result<HostTarget> HostTarget::create(const std::string &name) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  HostTarget target;
  llvm::Triple triple(llvm::sys::getProcessTriple());
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return Error{
        "", "no code generator for '" + triple.str() + "': " + error, {}};
  std::string features;
  target.cpu = name;
  if (name == "native") {
    target.cpu = llvm::sys::getHostCPUName().str();
    std::vector<std::string> list;
    for (const auto &[feature, on] : llvm::sys::getHostCPUFeatures())
      list.push_back((on ? "+" : "-") + feature.str());
    std::sort(list.begin(), list.end()); // the map has no order of its own
    features = llvm::join(list, ",");
  }
  // Asked before a target machine is made: that one would complain to stderr.
  std::unique_ptr<llvm::MCSubtargetInfo> known(
      found->createMCSubtargetInfo(triple, "", ""));
  if (!known || !known->isCPUStringValid(target.cpu))
    return Error{"--cpu",
                 "unknown CPU '" + name + "'",
                 {"an LLVM CPU name such as 'x86-64-v3', or 'native'"}};
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  target.machine.reset(found->createTargetMachine(
      triple, target.cpu, features, options, llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Default));
  const llvm::MCSubtargetInfo *info = target.machine->getMCSubtargetInfo();
  for (llvm::StringRef feature : kVectorFeatures)
    if (triple.isX86() && info->checkFeatures(("+" + feature).str()))
      target.vectorFeatures.push_back(feature.str());
  return target;
}

bool HostTarget::isX86() const { return machine->getTargetTriple().isX86(); }

int64_t HostTarget::lanes() const {
  if (!isX86())
    return 4;
  auto has = [&](llvm::StringRef feature) {
    return llvm::is_contained(vectorFeatures, feature);
  };
  return has("avx512f") ? 16 : has("avx") ? 8 : 4;
}

int64_t HostTarget::registers() const {
  return !isX86() || lanes() == 16 ? 32 : 16;
}

Result<std::string> HostTarget::emitObject(mlir::ModuleOp module) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      mlir::translateModuleToLLVMIR(module, context);
  if (!code)
    return Error{"", "the kernels have no LLVM IR", {}};
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *code) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", machine->getTargetCPU());
    function.addFnAttr("target-features", machine->getTargetFeatureString());
    // The kernels are written in full registers on purpose.
    std::string bits = std::to_string(lanes() * 32);
    function.addFnAttr("prefer-vector-width", bits);
    function.addFnAttr("min-legal-vector-width", bits);
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  // Kernels come tiled, vectorised and hoisted; what is left is cleaning up.
  // The default pipeline finds nothing more and takes three times as long.
  if (Status status =
          optimise(*code, *machine,
                   "function(early-cse<memssa>,instcombine<no-verify-fixpoint>,"
                   "loop-mssa(licm),simplifycfg)");
      !status)
    return status.error();

  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   llvm::CodeGenFileType::ObjectFile))
    return Error{"", "no object file can be written for this target", {}};
  codegen.run(*code);
  return std::string(bytes.str());
}

Status plum::linkShared(const std::string &object, const std::string &output) {
  std::string linker;
  for (const char *name : {"ld.lld-22", "ld.lld", "ld"})
    if (auto found = llvm::sys::findProgramByName(name)) {
      linker = *found;
      break;
    }
  if (linker.empty())
    return Error{
        "", "no linker found: install lld-22 (ld.lld-22), or any ld", {}};
  std::string message;
  int code = llvm::sys::ExecuteAndWait(
      linker, {linker, "-shared", "-z", "noexecstack", "-o", output, object},
      std::nullopt, {}, 0, 0, &message);
  if (code)
    return Error{output,
                 "'" + linker + "' could not link the kernels" +
                     (message.empty() ? "" : ": " + message),
                 {}};
  return Status::ok();
}
