//===- CApi.h - What the parts of the C interface share ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Between plumrt.h and the C++ behind it: errors as texts, structs of callers
// that were built against an older header, lists of tensors.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CAPI_H
#define PLUM_RUNTIME_CAPI_H

#include "runtime/Executor.h"
#include "runtime/plumrt.h"

#include <algorithm>
#include <cstring>
#include <exception>

namespace plum::runtime::capi {

inline int fail(const std::string &message, char *error, size_t size) {
  if (error && size > 0) {
    size_t length = std::min(message.size(), size - 1);
    std::memcpy(error, message.data(), length);
    error[length] = '\0';
  }
  return 1;
}

/// No exception crosses the C interface; what can still throw is memory.
template <typename Fn> int guarded(char *error, size_t size, Fn body) {
  try {
    Status status = body();
    return status ? 0 : fail(status.error().str(), error, size);
  } catch (const std::exception &exception) {
    return fail(std::string("error: ") + exception.what(), error, size);
  } catch (...) {
    return fail("error: unknown", error, size);
  }
}

inline Error misuse(const std::string &message) {
  return {"plumrt", message, {}};
}

inline Status convert(const char *what, const plumrt_tensor *tensors,
                      size_t count, bool optional,
                      std::vector<TensorView> &views) {
  if (!tensors && count > 0 && !optional)
    return misuse(std::string(what) + " is NULL, expected " +
                  std::to_string(count) + " tensors");
  for (size_t i = 0; tensors && i < count; ++i) {
    const plumrt_tensor &tensor = tensors[i];
    if (tensor.dtype < PLUMRT_F32 || tensor.dtype > PLUMRT_I64)
      return misuse(std::string(what) + "[" + std::to_string(i) +
                    "].dtype is " + std::to_string(tensor.dtype) +
                    ", expected a PLUMRT_ dtype");
    TensorView view;
    view.data = tensor.data;
    view.dtype = DType(tensor.dtype);
    std::copy_n(tensor.shape, 4, view.shape);
    std::copy_n(tensor.stride, 4, view.stride);
    views.push_back(view);
  }
  return Status::ok();
}

inline Status convert(const char *what, const void *data, int64_t count,
                      int32_t dtype, IndexView &view) {
  if (!data)
    return Status::ok();
  if (count < 0 || (dtype != PLUMRT_I32 && dtype != PLUMRT_I64))
    return misuse(std::string(what) + " has count " + std::to_string(count) +
                  " and dtype " + std::to_string(dtype) +
                  ", expected a count and PLUMRT_I32 or PLUMRT_I64");
  view = {data, DType(dtype), count};
  return Status::ok();
}

inline Status inRange(const char *what, int32_t value, int32_t last) {
  if (value >= 0 && value <= last)
    return Status::ok();
  return misuse(std::string(what) + " is " + std::to_string(value) +
                ", expected 0 to " + std::to_string(last));
}

/// The fields that the caller knows; the others are zero. `least` is where the
/// fields start that may be left out.
template <typename Struct>
Status known(const char *what, const Struct &given, size_t least,
             Struct &fields) {
  fields = {};
  if (given.size < least || given.size > sizeof(Struct))
    return misuse(std::string(what) + ".size is " + std::to_string(given.size) +
                  ", expected at most " + std::to_string(sizeof(Struct)));
  std::memcpy(&fields, &given, given.size);
  return Status::ok();
}

/// Everything but cu_seqlens, slots and past.
Status convertTensors(const Manifest &manifest, const plumrt_run_args &args,
                      RunArgs &run);

} // namespace plum::runtime::capi

#endif // PLUM_RUNTIME_CAPI_H
