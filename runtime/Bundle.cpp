//===- Bundle.cpp - Load a compiled layer ---------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Bundle.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace plum::runtime {

std::string missingFeature(const std::vector<std::string> &features) {
#if defined(__x86_64__)
  __builtin_cpu_init();
// The builtin takes only literals, hence a macro. Spelled as LLVM does.
#define PLUM_FEATURE(NAME) {NAME, __builtin_cpu_supports(NAME) != 0}
  const std::pair<std::string_view, bool> known[] = {
      PLUM_FEATURE("popcnt"),       PLUM_FEATURE("sse3"),
      PLUM_FEATURE("ssse3"),        PLUM_FEATURE("sse4.1"),
      PLUM_FEATURE("sse4.2"),       PLUM_FEATURE("avx"),
      PLUM_FEATURE("avx2"),         PLUM_FEATURE("fma"),
      PLUM_FEATURE("bmi"),          PLUM_FEATURE("bmi2"),
      PLUM_FEATURE("f16c"),         PLUM_FEATURE("lzcnt"),
      PLUM_FEATURE("movbe"),        PLUM_FEATURE("avx512f"),
      PLUM_FEATURE("avx512cd"),     PLUM_FEATURE("avx512bw"),
      PLUM_FEATURE("avx512dq"),     PLUM_FEATURE("avx512vl"),
      PLUM_FEATURE("avx512ifma"),   PLUM_FEATURE("avx512vbmi"),
      PLUM_FEATURE("avx512vbmi2"),  PLUM_FEATURE("avx512vnni"),
      PLUM_FEATURE("avx512bitalg"), PLUM_FEATURE("avx512vpopcntdq"),
      PLUM_FEATURE("avx512bf16"),   PLUM_FEATURE("avx512fp16"),
      PLUM_FEATURE("avxvnni"),      PLUM_FEATURE("gfni"),
      PLUM_FEATURE("vpclmulqdq"),   PLUM_FEATURE("vaes"),
      PLUM_FEATURE("amx-tile"),     PLUM_FEATURE("amx-int8"),
      PLUM_FEATURE("amx-bf16")};
#undef PLUM_FEATURE
  for (const std::string &feature : features)
    for (auto [name, present] : known)
      if (feature == name && !present)
        return feature;
#endif
  return {};
}

static Status checkHost(const Manifest &manifest, const std::string &path) {
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
  if (info.onGpu())
    return bundle;
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
