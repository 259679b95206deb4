//===- BundleWriter.cpp - The files of a bundle -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BundleWriter.h"

#include "lib/Pipelines/KernelABIText.h"
#include "plum/Target/HostTarget.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace plum;
using namespace plum::runtime;
namespace fs = llvm::sys::fs;

static std::string shapeText(const ManifestTensor &tensor) {
  std::string text = tensor.grows ? "[*" : "[";
  for (int64_t d : tensor.shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(d);
  return text + "] " + std::string(name(tensor.dtype));
}

/// "chunk form, chunks of 64 tokens".
static std::string formText(const ManifestKernel &kernel) {
  std::string text = std::string(name(kernel.form)) + " form";
  if (kernel.form == KernelForm::Chunk)
    text += ", chunks of " + std::to_string(kernel.chunk) + " tokens";
  return text;
}

/// Declares the functions of kernel.so.
static void declareFunctions(const Manifest &m, llvm::raw_ostream &out) {
  out << "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
  for (const ManifestKernel &kernel : m.kernels)
    out << "/* " << formText(kernel) << " */\n#define "
        << llvm::StringRef(kernel.symbol).upper() << "_WORKSPACE_BYTES "
        << kernel.workspaceBytes << "\nvoid " << kernel.symbol
        << "(const plum_kernel_args *args);\n\n";
  out << "#ifdef __cplusplus\n}\n#endif\n\n";
}

/// Names the kernels of a GPU module and how each is launched.
static void defineLaunches(const Manifest &m, llvm::raw_ostream &out) {
  for (const ManifestKernel &kernel : m.kernels) {
    std::string blocks = std::to_string(kernel.slices) +
                         (kernel.slices == 1 ? " block" : " blocks");
    out << "/* " << formText(kernel) << ": " << name(kernel.role) << ", "
        << (kernel.grid == KernelGrid::One ? "one block"
            : kernel.grid == KernelGrid::Chunks
                ? blocks + " a chunk and head"
                : blocks + " a sequence and head")
        << " */\n";
    std::string stem = llvm::StringRef(kernel.symbol).upper();
    out << "#define " << stem << " \"" << kernel.symbol << "\"\n";
    for (auto [what, value] : {std::pair("THREADS", kernel.threads),
                               std::pair("SHARED_BYTES", kernel.sharedBytes),
                               std::pair("BLOB_BYTES", kernel.blobBytes),
                               std::pair("SEGMENT_BYTES", kernel.segmentBytes)})
      out << "#define " << stem << "_" << what << " " << value << "\n";
    out << "\n";
  }
}

static const char *abiHeader(const Manifest &m) {
  return m.onGpu() ? "GpuABI.h" : "KernelABI.h";
}

std::string plum::bundleHeader(const Manifest &m) {
  std::string text;
  llvm::raw_string_ostream out(text);
  std::string guard = "PLUM_BUNDLE_" + llvm::StringRef(m.layer).upper() + "_H";
  out << "/* Layer '" << m.layer << "', compiled by plum " << m.plum << " for "
      << (m.onGpu() ? m.target : m.cpu) << ".\n * "
      << (m.onGpu() ? "Kernels take a plum_gpu_args by value"
                    : "One call runs one head of one sequence")
      << "; see plum/ABI/" << abiHeader(m) << ".\n *\n";
  auto list = [&](const char *field,
                  const std::vector<ManifestTensor> &tensors) {
    for (size_t i = 0; i < tensors.size(); ++i)
      out << " * " << field << "[" << i << "]  " << tensors[i].name << " : "
          << shapeText(tensors[i]) << "\n";
  };
  list("params", m.params);
  list("inputs", m.inputs);
  std::vector<ManifestTensor> fixed, growing;
  for (const ManifestTensor &state : m.states)
    (state.grows ? growing : fixed).push_back(state);
  list("states", fixed);
  list("growing", growing);
  list("outputs", m.outputs);
  out << " */\n#ifndef " << guard << "\n#define " << guard << "\n\n#include \""
      << abiHeader(m) << "\"\n\n";
  if (m.onGpu())
    defineLaunches(m, out);
  else
    declareFunctions(m, out);
  out << "#endif /* " << guard << " */\n";
  return text;
}

static Status writeFile(const llvm::Twine &path, llvm::StringRef contents) {
  std::error_code code;
  llvm::raw_fd_ostream out(path.str(), code);
  if (!code) {
    out << contents;
    out.close();
    code = out.error();
    out.clear_error();
  }
  if (code)
    return Error{path.str(), "cannot be written: " + code.message(), {}};
  return Status::ok();
}

/// The code, as files that start with `base`.
static Status writeCode(const std::string &base, const Manifest &manifest,
                        const BundleCode &code) {
  if (!manifest.onGpu()) {
    std::string object = base + "kernel.o";
    if (Status s = writeFile(object, code.object); !s)
      return s;
    if (Status s = linkShared(object, base + manifest.object); !s)
      return s;
    fs::remove(object);
    return Status::ok();
  }
  if (Status s = writeFile(base + manifest.object, code.ptx); !s)
    return s;
  return code.cubin.empty() ? Status::ok()
                            : writeFile(base + "kernels.cubin", code.cubin);
}

static bool isBundle(const std::string &dir) {
  return fs::exists(dir + "/manifest.json");
}

/// Renames a finished directory to its place. Another process may be doing the
/// same: whoever finds a bundle there keeps it or moves it out of the way.
static Status moveIntoPlace(const std::string &finished,
                            const std::string &target, bool keepExisting) {
  constexpr int kAttempts = 10;
  std::error_code code;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (keepExisting && isBundle(target)) {
      fs::remove_directories(finished);
      return Status::ok();
    }
    if (!(code = fs::rename(finished, target)))
      return Status::ok();
    if (!isBundle(target))
      continue;
    llvm::SmallString<128> old;
    fs::createUniquePath(target + ".%%%%%%%%", old, /*MakeAbsolute=*/false);
    if (!fs::rename(target, old))
      fs::remove_directories(old);
  }
  return Error{target, "cannot be written: " + code.message(), {}};
}

Status plum::writeBundle(const std::string &dir, const Manifest &manifest,
                         const BundleCode &code, std::string_view spec,
                         bool keepExisting) {
  std::string target = llvm::StringRef(dir).rtrim('/').str();
  if (target.empty())
    return Error{dir, "is not a directory that a bundle can be written to", {}};
  std::error_code error;
  bool exists = fs::exists(target);
  if (exists && !fs::is_directory(target))
    return Error{target, "is a file, expected a directory for the bundle", {}};
  if (exists && !isBundle(target) &&
      fs::directory_iterator(target, error) != fs::directory_iterator())
    return Error{target,
                 "holds files that are not a bundle; nothing was written",
                 {"give a new or empty directory, or a bundle to replace"}};
  llvm::StringRef parent = llvm::sys::path::parent_path(target);
  if (!parent.empty() && (error = fs::create_directories(parent)))
    return Error{parent.str(), "cannot be created: " + error.message(), {}};
  llvm::SmallString<128> temporary;
  fs::createUniquePath(target + ".%%%%%%%%", temporary, /*MakeAbsolute=*/false);
  if ((error = fs::create_directory(temporary)))
    return Error{target, "cannot be written: " + error.message(), {}};

  auto write = [&]() -> Status {
    std::string base = std::string(temporary) + "/";
    if (Status s = writeCode(base, manifest, code); !s)
      return s;
    if (Status s = writeFile(base + manifest.source,
                             llvm::StringRef(spec.data(), spec.size()));
        !s)
      return s;
    if (Status s =
            writeFile(base + manifest.layer + ".h", bundleHeader(manifest));
        !s)
      return s;
    if (Status s = writeFile(base + abiHeader(manifest),
                             manifest.onGpu() ? kGpuABIText : kKernelABIText);
        !s)
      return s;
    return writeFile(base + "manifest.json", writeManifest(manifest));
  };
  Status status = write();
  if (status)
    status = moveIntoPlace(std::string(temporary), target, keepExisting);
  if (!status)
    fs::remove_directories(temporary);
  return status;
}
