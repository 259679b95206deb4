//===- Bundle.cpp - Load a compiled layer ---------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Bundle.h"

#include <dlfcn.h>

#include <cstdlib>

namespace plum::runtime {

std::string missingFeature(const std::vector<std::string> &features) {
#if defined(__x86_64__)
  __builtin_cpu_init();
// The builtin takes only literals, hence a list. Spelled as LLVM does.
#define PLUM_FEATURES(X)                                                       \
  X("popcnt")                                                                  \
  X("sse3")                                                                    \
  X("ssse3")                                                                   \
  X("sse4.1")                                                                  \
  X("sse4.2")                                                                  \
  X("avx")                                                                     \
  X("avx2")                                                                    \
  X("fma")                                                                     \
  X("bmi")                                                                     \
  X("bmi2")                                                                    \
  X("f16c")                                                                    \
  X("lzcnt")                                                                   \
  X("movbe") X("avx512f") X("avx512cd") X("avx512bw") X("avx512dq")            \
      X("avx512vl") X("avx512ifma") X("avx512vbmi") X("avx512vbmi2")           \
          X("avx512vnni") X("avx512bitalg") X("avx512vpopcntdq")               \
              X("avx512bf16") X("avx512fp16") X("avxvnni") X("gfni")           \
                  X("vpclmulqdq") X("vaes") X("amx-tile") X("amx-int8")        \
                      X("amx-bf16")
  for (const std::string &feature : features) {
#define PLUM_CHECK(NAME)                                                       \
  if (feature == NAME && !__builtin_cpu_supports(NAME))                        \
    return feature;
    PLUM_FEATURES(PLUM_CHECK)
#undef PLUM_CHECK
  }
#undef PLUM_FEATURES
#endif
  return {};
}

static Status checkHost(const Manifest &manifest, const std::string &path) {
  if (manifest.target != "cpu")
    return Error{path,
                 "is for target '" + manifest.target +
                     "', this runtime runs 'cpu'",
                 {}};
  std::string missing = missingFeature(manifest.features);
  if (missing.empty())
    return Status::ok();
  return Error{path,
               "needs the CPU feature '" + missing + "', which this CPU lacks",
               {"it was compiled for '" + manifest.cpu +
                "'; compile the layer on this machine"}};
}

Result<Bundle> Bundle::open(const std::string &directory) {
  Result<Manifest> manifest = readManifest(directory);
  if (!manifest)
    return manifest.error();
  Bundle bundle;
  bundle.path = directory;
  bundle.contents = std::make_unique<const Manifest>(std::move(*manifest));
  const Manifest &info = *bundle.contents;
  if (Status status = checkHost(info, directory); !status)
    return status.error();

  // An absolute path: dlopen searches elsewhere for a plain name.
  std::string objectPath = directory + "/" + info.object;
  std::unique_ptr<char, void (*)(void *)> full(
      realpath(objectPath.c_str(), nullptr), std::free);
  if (!full)
    return Error{
        objectPath, "does not exist", {"manifest.json names it as 'object'"}};
  bundle.object = {dlopen(full.get(), RTLD_NOW | RTLD_LOCAL), dlclose};
  if (!bundle.object)
    return Error{objectPath, std::string("cannot be loaded: ") + dlerror(), {}};
  for (const ManifestKernel &kernel : info.kernels) {
    void *symbol = dlsym(bundle.object.get(), kernel.symbol.c_str());
    if (!symbol)
      return Error{objectPath,
                   "has no symbol '" + kernel.symbol + "'",
                   {"manifest.json names it as a kernel"}};
    bundle.list.push_back({&kernel, reinterpret_cast<plum_kernel>(symbol)});
  }
  return bundle;
}

const Kernel *Bundle::step() const {
  for (const Kernel &kernel : list)
    if (kernel.info->form == KernelForm::Step)
      return &kernel;
  return nullptr;
}

const Kernel *Bundle::chunk(int64_t chunk) const {
  for (const Kernel &kernel : list)
    if (kernel.info->form == KernelForm::Chunk &&
        (chunk == 0 || kernel.info->chunk == chunk))
      return &kernel;
  return nullptr;
}

} // namespace plum::runtime
