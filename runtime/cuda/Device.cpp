//===- Device.cpp - Open a GPU --------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Device.h"

namespace plum::runtime::cuda {

Result<std::shared_ptr<const Device>> Device::open(int ordinal) {
  Result<std::shared_ptr<const Driver>> opened = Driver::open();
  if (!opened)
    return opened.error();
  const Driver &driver = **opened;
  int count = 0;
  if (Status status =
          driver.check("cuDeviceGetCount", driver.cuDeviceGetCount(&count));
      !status)
    return status.error();
  if (ordinal < 0 || ordinal >= count)
    return Error{"",
                 "there is no GPU " + std::to_string(ordinal) +
                     ", the driver shows " + std::to_string(count),
                 {"CUDA_VISIBLE_DEVICES chooses which ones it shows"}};

  std::shared_ptr<Device> device(new Device);
  device->library = *opened;
  device->ordinal = ordinal;
  char name[256] = "";
  Status status;
  auto call = [&](const char *what, CUresult result) {
    if (status)
      status = driver.check(what, result);
    return bool(status);
  };
  auto attribute = [&](int which, int &value) {
    call("cuDeviceGetAttribute",
         driver.cuDeviceGetAttribute(&value, which, device->handle));
  };
  if (!call("cuDeviceGet", driver.cuDeviceGet(&device->handle, ordinal)))
    return status.error();
  call("cuDeviceGetName",
       driver.cuDeviceGetName(name, sizeof name, device->handle));
  device->name = name;
  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->major);
  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->minor);
  attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->processors);
  attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            device->sharedBytes);
  attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device->l2Bytes);
  call("cuDeviceTotalMem",
       driver.cuDeviceTotalMem(&device->memoryBytes, device->handle));
  call("cuDevicePrimaryCtxRetain",
       driver.cuDevicePrimaryCtxRetain(&device->primary, device->handle));
  if (!status)
    return status.error();
  return std::shared_ptr<const Device>(std::move(device));
}

Device::~Device() {
  if (primary)
    library->cuDevicePrimaryCtxRelease(handle);
}

Result<Memory> allocate(const Device &device, size_t bytes) {
  if (bytes == 0)
    return Memory();
  Current current(device);
  CUdeviceptr address = 0;
  if (Status status =
          device.driver().check("cuMemAlloc(" + std::to_string(bytes) + " B)",
                                device.driver().cuMemAlloc(&address, bytes));
      !status)
    return status.error();
  return Memory(device, address, &Driver::cuMemFree);
}

Result<Stream> makeStream(const Device &device) {
  Current current(device);
  CUstream stream = nullptr;
  if (Status status = device.driver().check(
          "cuStreamCreate",
          device.driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      !status)
    return status.error();
  return Stream(device, stream, &Driver::cuStreamDestroy);
}

Result<Event> makeEvent(const Device &device) {
  Current current(device);
  CUevent event = nullptr;
  if (Status status = device.driver().check(
          "cuEventCreate", device.driver().cuEventCreate(&event, 0));
      !status)
    return status.error();
  return Event(device, event, &Driver::cuEventDestroy);
}

} // namespace plum::runtime::cuda
