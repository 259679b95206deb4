//===- SafetensorsWriter.cpp - Write tensor files -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A new file is written under another name in the same directory and renamed
// at the end. There is no fsync: results can be computed again, and a run
// should not wait for a disk.
//
//===----------------------------------------------------------------------===//

#include "runtime/Json.h"
#include "runtime/Safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace plum::runtime {

Error AtomicFile::failure(int error) const {
  return {path, std::string("cannot be written: ") + strerror(error), {}};
}

Result<AtomicFile> AtomicFile::create(const std::string &path) {
  AtomicFile file;
  file.path = file.target = path;
  struct stat info;
  bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode))
    return file.failure(EISDIR);
  if (exists && access(path.c_str(), W_OK) != 0)
    return file.failure(errno);
  if (exists && !S_ISREG(info.st_mode)) {
    file.descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor < 0)
      return file.failure(errno);
    return file;
  }
  // Replace what a link points to, not the link.
  if (exists)
    if (char *real = realpath(path.c_str(), nullptr)) {
      file.target = real;
      std::free(real);
    }
  for (int attempt = 0;; ++attempt) {
    file.temporary = file.target + ".tmp" + std::to_string(getpid()) + "-" +
                     std::to_string(attempt);
    file.descriptor = open(file.temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.descriptor >= 0)
      return file;
    if (errno != EEXIST || attempt == 100) {
      int error = errno;
      file.temporary.clear();
      return file.failure(error);
    }
  }
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : path(std::move(other.path)), target(std::move(other.target)),
      temporary(std::exchange(other.temporary, {})),
      descriptor(std::exchange(other.descriptor, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor >= 0)
    close(descriptor);
  if (!temporary.empty())
    unlink(temporary.c_str());
}

Status AtomicFile::write(const void *data, size_t size) {
  auto bytes = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t written = ::write(descriptor, bytes, size);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return failure(written < 0 ? errno : EIO);
    bytes += written;
    size -= size_t(written);
  }
  return Status::ok();
}

Status AtomicFile::commit() {
  // close reports what a network file system could not store.
  if (close(std::exchange(descriptor, -1)) != 0)
    return failure(errno);
  if (temporary.empty())
    return Status::ok();
  if (rename(temporary.c_str(), target.c_str()) != 0)
    return failure(errno);
  temporary.clear();
  return Status::ok();
}

Status writeSafetensors(AtomicFile &file,
                        const std::vector<TensorToWrite> &tensors) {
  Json header = Json::object();
  int64_t offset = 0;
  auto bytes = [](const TensorToWrite &tensor) {
    // Unsigned: beside a 0, other extents may be of any size.
    uint64_t product = byteSize(tensor.dtype);
    for (int64_t extent : tensor.shape)
      product *= uint64_t(extent);
    return int64_t(product);
  };
  for (const TensorToWrite &tensor : tensors) {
    int64_t end = offset + bytes(tensor);
    header[tensor.name] = {{"dtype", std::string(fileName(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text =
      header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' '); // Data starts aligned.
  uint64_t length = text.size();
  if (Status status = file.write(&length, sizeof(length)); !status)
    return status;
  if (Status status = file.write(text.data(), text.size()); !status)
    return status;
  for (const TensorToWrite &tensor : tensors)
    if (Status status = file.write(tensor.data, size_t(bytes(tensor))); !status)
      return status;
  return file.commit();
}

Status writeSafetensors(const std::string &path,
                        const std::vector<TensorToWrite> &tensors) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file)
    return file.error();
  return writeSafetensors(*file, tensors);
}

} // namespace plum::runtime
