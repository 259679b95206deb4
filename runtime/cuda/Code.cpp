//===- Code.cpp - Machine code for a GPU ----------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Code.h"

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

std::optional<std::string> readCode(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad())
    return std::nullopt;
  return text;
}

namespace {

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

bool completeElf(const std::string &image) {
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

Owned<CUmodule> loadImage(const Device &device, const std::string &image) {
  CUmodule module = nullptr;
  if (device.driver().cuModuleLoadDataEx(&module, image.data(), 0, nullptr,
                                         nullptr))
    return {};
  return Owned<CUmodule>(device, module, &Driver::cuModuleUnload);
}

std::string cachePath(const Device &device, const std::string &ptx) {
  std::string directory = cacheDirectory();
  if (directory.empty())
    return "";
  std::string key = "1\n" + device.architecture() + "\n" +
                    std::to_string(device.driver().version) + "\n" + ptx;
  return directory + "/" + contentHash(key) + ".cubin";
}

/// Machine code for this GPU; nothing when that fails: compileAndLoad says why.
std::optional<std::string> compile(const Device &device,
                                   const std::string &ptx) {
  const Driver &driver = device.driver();
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
void store(const std::string &path, const std::string &image) {
  if (path.empty())
    return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      ignored);
  Result<AtomicFile> file = AtomicFile::create(path);
  if (file && file->write(image.data(), image.size()))
    (void)bool(file->commit());
}

/// As the driver does it in one call; with its reasons where it refuses.
Result<Owned<CUmodule>> compileAndLoad(const Device &device,
                                       const std::string &ptx,
                                       const std::string &where) {
  const Driver &driver = device.driver();
  JitLog log;
  CUmodule module = nullptr;
  CUresult result = driver.cuModuleLoadDataEx(&module, ptx.c_str(), 4,
                                              log.options, log.values);
  if (result == CUDA_SUCCESS)
    return Owned<CUmodule>(device, module, &Driver::cuModuleUnload);
  Error error = driver.failure("cuModuleLoadDataEx", result);
  error.where = where;
  error.notes = log.notes();
  return error;
}

} // namespace

Owned<CUmodule> loadCubin(const Device &device, const std::string &path) {
  if (path.empty())
    return {};
  std::optional<std::string> image = readCode(path);
  // The driver takes the length from the headers: a file cut short must not
  // get there.
  return image && completeElf(*image) ? loadImage(device, *image)
                                      : Owned<CUmodule>();
}

Result<Owned<CUmodule>> loadPtx(const Device &device, const std::string &ptx,
                                const std::string &where, CodeSource &source) {
  source = CodeSource::Cache;
  std::string cached = cachePath(device, ptx);
  if (Owned<CUmodule> module = loadCubin(device, cached))
    return module;
  source = CodeSource::Ptx;
  if (std::optional<std::string> made = compile(device, ptx)) {
    store(cached, *made);
    if (Owned<CUmodule> module = loadImage(device, *made))
      return module;
  }
  return compileAndLoad(device, ptx, where);
}

} // namespace plum::runtime::cuda
