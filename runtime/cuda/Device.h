//===- Device.h - A GPU and what lives on it --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A GPU by its number, used through its primary context, which it shares with
// whoever else in the process uses it (PyTorch, cuBLAS): addresses and streams
// are good on both sides. Memory, streams, events and graphs are owned by small
// objects that must not outlive the device.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_DEVICE_H
#define PLUM_RUNTIME_CUDA_DEVICE_H

#include "runtime/cuda/Driver.h"

#include <utility>

namespace plum::runtime::cuda {

class Device {
public:
  static Result<std::shared_ptr<const Device>> open(int ordinal = 0);
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;
  ~Device();

  const Driver &driver() const { return *library; }
  CUcontext context() const { return primary; }
  /// "sm_90".
  std::string architecture() const {
    return "sm_" + std::to_string(major) + std::to_string(minor);
  }

  int ordinal = 0;
  std::string name;
  int major = 0, minor = 0; ///< Compute capability.
  int processors = 0;       ///< SMs.
  int sharedBytes = 0;      ///< Most that one block may have.
  int l2Bytes = 0;
  size_t memoryBytes = 0;

private:
  Device() = default;
  std::shared_ptr<const Driver> library;
  CUdevice handle = 0;
  CUcontext primary = nullptr;
};

/// Makes the device's context current in this thread while it lives.
class Current {
public:
  explicit Current(const Device &device) : driver(device.driver()) {
    CUcontext now = nullptr;
    if (driver.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == device.context())
      return;
    error = driver.cuCtxPushCurrent(device.context());
    pushed = error == CUDA_SUCCESS;
  }
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;
  ~Current() {
    CUcontext ignored;
    if (pushed)
      driver.cuCtxPopCurrent(&ignored);
  }
  Status status() const { return driver.check("cuCtxPushCurrent", error); }

private:
  const Driver &driver;
  CUresult error = CUDA_SUCCESS;
  bool pushed = false;
};

/// A handle of the driver and the function that ends it.
template <typename Handle> class Owned {
public:
  Owned() = default;
  Owned(const Device &device, Handle handle,
        CUresult (*Driver::*destroy)(Handle))
      : device(&device), handle(handle), destroy(destroy) {}
  Owned(Owned &&other) noexcept { swap(other); }
  Owned &operator=(Owned &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Owned() {
    if (!device)
      return;
    Current current(*device);
    (device->driver().*destroy)(handle);
  }
  Handle get() const { return handle; }
  explicit operator bool() const { return device != nullptr; }

private:
  void swap(Owned &other) {
    std::swap(device, other.device);
    std::swap(handle, other.handle);
    std::swap(destroy, other.destroy);
  }
  const Device *device = nullptr;
  Handle handle = {};
  CUresult (*Driver::*destroy)(Handle) = nullptr;
};

using Memory = Owned<CUdeviceptr>;
using Stream = Owned<CUstream>;
using Event = Owned<CUevent>;
using Graph = Owned<CUgraphExec>;

/// At least 256-byte aligned; of 0 bytes, an empty object with address 0.
Result<Memory> allocate(const Device &device, size_t bytes);
Result<Stream> makeStream(const Device &device);
Result<Event> makeEvent(const Device &device);

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_DEVICE_H
