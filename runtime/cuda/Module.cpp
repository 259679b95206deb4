//===- Module.cpp - Load the kernels of a bundle onto a GPU ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Module.h"

#include "runtime/Safetensors.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace plum::runtime::cuda {

std::string_view name(CodeSource source) {
  constexpr std::string_view names[] = {"cubin", "cache", "ptx"};
  return names[size_t(source)];
}

std::string cacheDirectory() {
  auto variable = [](const char *name) -> std::string {
    const char *value = std::getenv(name);
    return value ? value : "";
  };
  if (std::string given = variable("PLUM_CACHE"); !given.empty())
    return given + "/gpu";
  if (std::string given = variable("XDG_CACHE_HOME"); !given.empty())
    return given + "/plum/gpu";
  if (std::string home = variable("HOME"); !home.empty())
    return home + "/.cache/plum/gpu";
  return "";
}

Status checkTarget(const std::string &target, const Device &device) {
  // sm_90a: compute capability 9.0 and no other. sm_80: 8.0 and later.
  int number = std::atoi(target.c_str() + 3);
  int own = device.major * 10 + device.minor;
  char suffix = target.back();
  bool exact = suffix == 'a', family = suffix == 'f';
  if (exact ? own == number
            : own >= number && (!family || device.major == number / 10))
    return Status::ok();
  return Error{"",
               "is compiled for " + target + ", this GPU is " +
                   device.architecture() + " (" + device.name + ")",
               {exact ? "code for " + target +
                            " runs on that architecture alone; '--target "
                            "sm_80' makes code for every later one"
                      : "code for an architecture runs on later ones, not on "
                        "earlier ones"}};
}

namespace {

std::optional<std::string> readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad())
    return std::nullopt;
  return text;
}

/// FNV-1a in 128 bits, as hexadecimal.
std::string contentHash(std::string_view text) {
  using Wide = unsigned __int128;
  Wide hash = (Wide(0x6c62272e07bb0142) << 64) | 0x62b821756295c58d;
  const Wide prime = (Wide(0x1000000) << 64) | 0x13b;
  for (char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * prime;
  std::string digits;
  for (int shift = 124; shift >= 0; shift -= 4)
    digits += "0123456789abcdef"[int(hash >> shift) & 15];
  return digits;
}

/// Space for what the driver's compiler has to say.
struct JitLog {
  char info[8192] = "", error[8192] = "";
  int options[4] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                    CU_JIT_ERROR_LOG_BUFFER,
                    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[4] = {info, reinterpret_cast<void *>(sizeof info), error,
                     reinterpret_cast<void *>(sizeof error)};

  /// The text as notes, a line each.
  std::vector<std::string> notes() const {
    std::vector<std::string> lines;
    for (const char *log : {error, info}) {
      std::string_view rest = log;
      while (!rest.empty()) {
        size_t end = std::min(rest.find('\n'), rest.size());
        if (std::string_view line = rest.substr(0, end);
            line.find_first_not_of(" \t\r") != line.npos)
          lines.emplace_back(line);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return lines;
  }
};

class Loader {
public:
  Loader(const Bundle &bundle, const Device &device)
      : bundle(bundle), device(device), driver(device.driver()) {}

  /// From the bundle's cubin, from the cache, or by the driver's compiler.
  Result<Owned<CUmodule>> load(CodeSource &source) {
    const Manifest &manifest = bundle.manifest();
    std::string path = bundle.directory() + "/" + manifest.object;
    source = CodeSource::Cubin;
    std::string cubin =
        std::filesystem::path(path).replace_extension(".cubin").string();
    if (Owned<CUmodule> module = loadCubin(cubin))
      return module;
    std::optional<std::string> ptx = readFile(path);
    if (!ptx)
      return Error{
          path, "cannot be read", {"manifest.json names it as 'object'"}};
    source = CodeSource::Cache;
    std::string cached = cachePath(*ptx);
    if (Owned<CUmodule> module = loadCubin(cached))
      return module;
    source = CodeSource::Ptx;
    if (std::optional<std::string> made = compile(*ptx)) {
      store(cached, *made);
      if (Owned<CUmodule> module = loadImage(*made))
        return module;
    }
    return loadPtx(*ptx, path);
  }

private:
  /// The file's code, when there is any and it is for this GPU.
  Owned<CUmodule> loadCubin(const std::string &path) {
    if (path.empty())
      return {};
    std::optional<std::string> image = readFile(path);
    // The driver takes the length from the headers: a file cut short must not
    // get there.
    return image && completeElf(*image) ? loadImage(*image) : Owned<CUmodule>();
  }

  static bool completeElf(const std::string &image) {
    constexpr size_t headerBytes = 64;
    if (image.size() < headerBytes || image.compare(0, 4,
                                                    "\x7f"
                                                    "ELF") != 0)
      return false;
    uint64_t offset = 0;
    uint16_t size = 0, count = 0;
    std::memcpy(&offset, image.data() + 40, 8); // e_shoff
    std::memcpy(&size, image.data() + 58, 2);   // e_shentsize
    std::memcpy(&count, image.data() + 60, 2);  // e_shnum
    return offset <= image.size() &&
           size_t(size) * count <= image.size() - offset;
  }

  Owned<CUmodule> loadImage(const std::string &image) {
    CUmodule module = nullptr;
    if (driver.cuModuleLoadDataEx(&module, image.data(), 0, nullptr, nullptr))
      return {};
    return Owned<CUmodule>(device, module, &Driver::cuModuleUnload);
  }

  std::string cachePath(const std::string &ptx) const {
    std::string directory = cacheDirectory();
    if (directory.empty())
      return "";
    std::string key = "1\n" + device.architecture() + "\n" +
                      std::to_string(driver.version) + "\n" + ptx;
    return directory + "/" + contentHash(key) + ".cubin";
  }

  /// Machine code for this GPU; nothing when that fails: loadPtx says why.
  std::optional<std::string> compile(const std::string &ptx) {
    JitLog log;
    CUlinkState link = nullptr;
    if (driver.cuLinkCreate(4, log.options, log.values, &link))
      return std::nullopt;
    void *image = nullptr;
    size_t size = 0;
    std::optional<std::string> result;
    if (!driver.cuLinkAddData(link, CU_JIT_INPUT_PTX,
                              const_cast<char *>(ptx.c_str()), ptx.size() + 1,
                              "kernels.ptx", 0, nullptr, nullptr) &&
        !driver.cuLinkComplete(link, &image, &size))
      result.emplace(static_cast<const char *>(image), size);
    driver.cuLinkDestroy(link);
    return result;
  }

  /// No error: the cache only saves time.
  static void store(const std::string &path, const std::string &image) {
    if (path.empty())
      return;
    std::error_code ignored;
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path(), ignored);
    Result<AtomicFile> file = AtomicFile::create(path);
    if (file && file->write(image.data(), image.size()))
      (void)bool(file->commit());
  }

  Result<Owned<CUmodule>> loadPtx(const std::string &ptx,
                                  const std::string &path) {
    JitLog log;
    CUmodule module = nullptr;
    CUresult result = driver.cuModuleLoadDataEx(&module, ptx.c_str(), 4,
                                                log.options, log.values);
    if (result == CUDA_SUCCESS)
      return Owned<CUmodule>(device, module, &Driver::cuModuleUnload);
    Error error = driver.failure("cuModuleLoadDataEx", result);
    error.where = path;
    error.notes = log.notes();
    return error;
  }

  const Bundle &bundle;
  const Device &device;
  const Driver &driver;
};

/// What the driver and the device must grant a kernel.
Status prepare(const Device &device, const ManifestKernel &kernel,
               CUfunction function) {
  const Driver &driver = device.driver();
  if (kernel.sharedBytes > device.sharedBytes)
    return Error{"",
                 "kernel '" + kernel.symbol + "' needs " +
                     std::to_string(kernel.sharedBytes) +
                     " B of shared memory, a block on this GPU has at most " +
                     std::to_string(device.sharedBytes),
                 {}};
  int threads = 0;
  if (Status status = driver.check(
          "cuFuncGetAttribute(" + kernel.symbol + ")",
          driver.cuFuncGetAttribute(
              &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
      !status)
    return status;
  if (kernel.threads > threads)
    return Error{"",
                 "kernel '" + kernel.symbol + "' runs " +
                     std::to_string(kernel.threads) +
                     " threads, its registers allow " + std::to_string(threads),
                 {}};
  return driver.check(
      "cuFuncSetAttribute(" + kernel.symbol + ", " +
          std::to_string(kernel.sharedBytes) + " B shared)",
      driver.cuFuncSetAttribute(function,
                                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                int(kernel.sharedBytes)));
}

} // namespace

Result<Module> Module::load(const Bundle &bundle,
                            std::shared_ptr<const Device> device) {
  auto here = [&](Error error) {
    if (error.where.empty())
      error.where = bundle.directory();
    return error;
  };
  const Manifest &manifest = bundle.manifest();
  if (!manifest.onGpu())
    return here(
        {"", "has no cuda kernel, it was compiled for " + manifest.target, {}});
  if (Status status = checkTarget(manifest.target, *device); !status)
    return here(status.error());
  Current current(*device);
  if (Status status = current.status(); !status)
    return here(status.error());
  Module module;
  module.gpu = std::move(device);
  const Driver &driver = module.gpu->driver();
  Result<Owned<CUmodule>> loaded =
      Loader(bundle, *module.gpu).load(module.from);
  if (!loaded)
    return here(loaded.error());
  module.module = std::move(*loaded);
  for (const ManifestKernel &kernel : manifest.kernels) {
    CUfunction function = nullptr;
    if (Status status = driver.check(
            "cuModuleGetFunction(" + kernel.symbol + ")",
            driver.cuModuleGetFunction(&function, module.module.get(),
                                       kernel.symbol.c_str()));
        !status)
      return here(status.error());
    if (Status status = prepare(*module.gpu, kernel, function); !status)
      return here(status.error());
    module.list.push_back(function);
  }
  return module;
}

} // namespace plum::runtime::cuda
