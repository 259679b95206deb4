//===- NVPTXTarget.cpp - PTX and cubins for a GPU ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels come scheduled: tiles are unrolled, loads are placed, waits are
// where they belong. So LLVM only cleans up (common subexpressions, address
// arithmetic) and does nothing that moves work or raises register pressure:
// no unrolling, no hoisting out of loops, no vectoriser. ptxas is told to leave
// the loops alone as well.
//
// Kernels know nothing of each other, so each is compiled on its own, by as
// many threads as there are.
//
// Two things MLIR leaves undone are done on the LLVM IR: inline assembly that
// more than one thread takes part in becomes convergent, and loops say that
// they do not want to be unrolled.
//
//===----------------------------------------------------------------------===//

#include "plum/Target/NVPTXTarget.h"

#include "Optimise.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Threading.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm-c/Target.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace plum;

void plum::registerNVPTXTranslations(mlir::DialectRegistry &registry) {
  mlir::registerNVVMDialectTranslation(registry);
}

//===----------------------------------------------------------------------===//
// MLIR
//===----------------------------------------------------------------------===//

namespace {
/// Threads of a context, while they are wanted.
class Threads {
public:
  explicit Threads(mlir::MLIRContext &context)
      : context(context), off(!context.isMultithreadingEnabled()) {
    if (off)
      context.enableMultithreading();
  }
  ~Threads() {
    if (off)
      context.disableMultithreading();
  }

private:
  mlir::MLIRContext &context;
  const bool off;
};
} // namespace

/// A module for each kernel, with what lies outside of kernels, in a module.
static mlir::OwningOpRef<mlir::ModuleOp> split(mlir::ModuleOp module) {
  std::vector<mlir::Operation *> kernels, others;
  for (mlir::Operation &op : *module.getBody()) {
    auto function = llvm::dyn_cast<mlir::LLVM::LLVMFuncOp>(op);
    (function && !function.isExternal() ? kernels : others).push_back(&op);
  }
  if (kernels.empty())
    kernels.push_back(nullptr);
  auto all = mlir::ModuleOp::create(module.getLoc());
  for (mlir::Operation *kernel : kernels) {
    auto part = mlir::ModuleOp::create(module.getLoc());
    part->setAttrs(module->getAttrDictionary());
    for (mlir::Operation *op : others)
      part.push_back(op->clone());
    if (kernel)
      part.push_back(kernel->clone());
    all.push_back(part);
  }
  return all;
}

/// Each module in `modules` down to the llvm dialect.
static mlir::LogicalResult lower(mlir::ModuleOp modules) {
  mlir::PassManager all(modules.getContext());
  mlir::OpPassManager &pm = all.nest<mlir::ModuleOp>();
  pm.addPass(mlir::createSCFToControlFlowPass());
  pm.addPass(mlir::createArithToLLVMConversionPass());
  pm.addPass(mlir::createConvertControlFlowToLLVMPass());
  pm.addPass(mlir::createConvertNVVMToLLVMPass());
  pm.addPass(mlir::createReconcileUnrealizedCastsPass());
  return all.run(modules);
}

//===----------------------------------------------------------------------===//
// LLVM IR
//===----------------------------------------------------------------------===//

/// Says of inline assembly what MLIR does not: arithmetic touches no memory,
/// and whatever is not arithmetic of one thread alone must stay where it is.
static void markAssembly(llvm::Function &function) {
  for (llvm::BasicBlock &block : function)
    for (llvm::Instruction &instruction : block) {
      auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction);
      if (!call || !call->isInlineAsm())
        continue;
      auto *code = llvm::cast<llvm::InlineAsm>(call->getCalledOperand());
      bool pure = !code->hasSideEffects();
      if (!pure || llvm::StringRef(code->getAsmString()).contains(".sync"))
        call->addFnAttr(llvm::Attribute::Convergent);
      if (pure &&
          !llvm::StringRef(code->getConstraintString()).contains("{memory}"))
        call->setDoesNotAccessMemory();
      call->addFnAttr(llvm::Attribute::NoUnwind);
    }
}

/// LLVM prints `.pragma "nounroll"` for such a loop, which ptxas obeys.
static void forbidUnrolling(llvm::Function &function) {
  llvm::DominatorTree dominators(function);
  llvm::LoopInfo loops(dominators);
  llvm::LLVMContext &context = function.getContext();
  for (llvm::Loop *loop : loops.getLoopsInPreorder()) {
    llvm::MDNode *disable = llvm::MDNode::get(
        context, llvm::MDString::get(context, "llvm.loop.unroll.disable"));
    llvm::MDNode *id = llvm::MDNode::getDistinct(context, {nullptr, disable});
    id->replaceOperandWith(0, id);
    loop->setLoopID(id);
  }
}

/// Shared memory is addressed in 32 bits: half the registers and instructions
/// for every address. LLVM 22 has no way to ask for that but its command line.
static void useShortPointers() {
  auto &options = llvm::cl::getRegisteredOptions();
  auto found = options.find("nvptx-short-ptr");
  if (found != options.end())
    static_cast<llvm::cl::opt<bool> *>(found->second)->setValue(true);
}

static Result<std::unique_ptr<llvm::TargetMachine>>
targetMachine(const GpuChip &chip) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    useShortPointers();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return Error{"", "this LLVM has no code generator for PTX: " + error, {}};
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, chip.name, chip.ptx, options, std::nullopt, std::nullopt,
      llvm::CodeGenOptLevel::Default));
}

// Kernels come unrolled and scheduled; what is left is cleaning up.
static constexpr llvm::StringLiteral kPipeline =
    "function(early-cse,instcombine<no-verify-fixpoint>,simplifycfg,early-cse)";

namespace {
/// LLVM IR ready for the code generator.
struct Translation {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::Module> code;
  std::shared_ptr<std::string> messages = std::make_shared<std::string>();
};
} // namespace

/// Of a module of the llvm dialect.
static Result<Translation> translate(mlir::ModuleOp module,
                                     const GpuChip &chip) {
  Translation result;
  Result<std::unique_ptr<llvm::TargetMachine>> machine = targetMachine(chip);
  if (!machine)
    return machine.error();
  result.machine = std::move(*machine);
  result.context = std::make_unique<llvm::LLVMContext>();
  result.context->setDiagnosticHandlerCallBack(
      [](const llvm::DiagnosticInfo *info, void *messages) {
        if (info->getSeverity() != llvm::DS_Error)
          return;
        llvm::raw_string_ostream out(*static_cast<std::string *>(messages));
        llvm::DiagnosticPrinterRawOStream printer(out);
        info->print(printer);
        out << "; ";
      },
      result.messages.get());
  result.code = mlir::translateModuleToLLVMIR(module, *result.context);
  if (!result.code)
    return Error{"", "the kernels have no LLVM IR", {}};
  result.code->setTargetTriple(result.machine->getTargetTriple());
  result.code->setDataLayout(result.machine->createDataLayout());
  for (llvm::Function &function : *result.code)
    if (!function.isDeclaration())
      markAssembly(function);
  if (Status status = optimise(*result.code, *result.machine, kPipeline);
      !status)
    return status.error();
  for (llvm::Function &function : *result.code)
    if (!function.isDeclaration())
      forbidUnrolling(function);
  return result;
}

static Result<std::string> ptxOf(const Translation &translation) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager codegen;
  if (translation.machine->addPassesToEmitFile(
          codegen, stream, nullptr, llvm::CodeGenFileType::AssemblyFile,
          /*DisableVerify=*/true))
    return Error{"", "no PTX can be written for this target", {}};
  codegen.run(*translation.code);
  if (!translation.messages->empty())
    return Error{"", "the kernels have no PTX: " + *translation.messages, {}};
  return std::string(text.str());
}

static Result<std::string> llvmTextOf(const Translation &translation) {
  std::string text;
  llvm::raw_string_ostream out(text);
  translation.code->print(out, nullptr);
  return text;
}

/// What `write` makes of each kernel, in their order.
static Result<std::vector<std::string>> translateEach(
    mlir::ModuleOp module, const GpuChip &chip,
    llvm::function_ref<Result<std::string>(const Translation &)> write) {
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(
      module.getContext(), [&](mlir::Diagnostic &diag) {
        if (diag.getSeverity() == mlir::DiagnosticSeverity::Error)
          messages += (messages.empty() ? ": " : "; ") + diag.str();
        return mlir::success();
      });
  mlir::OwningOpRef<mlir::ModuleOp> modules = split(module);
  Threads threads(*module.getContext());
  if (mlir::failed(lower(*modules)))
    return Error{"", "the kernels cannot be lowered to LLVM IR" + messages, {}};
  auto parts = llvm::to_vector(modules->getOps<mlir::ModuleOp>());
  std::vector<Result<std::string>> results(parts.size(), std::string());
  mlir::parallelFor(module.getContext(), 0, parts.size(), [&](size_t i) {
    Result<Translation> translation = translate(parts[i], chip);
    results[i] = translation ? write(*translation)
                             : Result<std::string>(translation.error());
  });
  std::vector<std::string> texts;
  for (Result<std::string> &result : results) {
    if (!result) {
      result.error().message += messages;
      return result.error();
    }
    texts.push_back(std::move(*result));
  }
  return texts;
}

/// `text` without what a module's PTX begins with, as the one before has it.
static llvm::StringRef withoutHeader(llvm::StringRef text) {
  text = text.split(".address_size 64\n\n").second;
  size_t shared = text.find(".extern .shared"); // After a comment.
  return shared == text.npos ? text : text.substr(shared).split("\n\n").second;
}

Result<std::string> plum::translateToPTX(mlir::ModuleOp module,
                                         const GpuChip &chip) {
  Result<std::vector<std::string>> texts = translateEach(module, chip, ptxOf);
  if (!texts)
    return texts.error();
  std::string all = texts->front();
  for (llvm::StringRef text : llvm::drop_begin(*texts))
    all += withoutHeader(text);
  return all;
}

Result<std::string> plum::translateToLLVMText(mlir::ModuleOp module,
                                              const GpuChip &chip) {
  Result<std::vector<std::string>> texts =
      translateEach(module, chip, llvmTextOf);
  if (!texts)
    return texts.error();
  return llvm::join(*texts, "\n");
}
