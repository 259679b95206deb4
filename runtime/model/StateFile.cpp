//===- StateFile.cpp - A sequence's state as a file -----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A safetensors file: "plum.state" I64 [4] is {version, tokens, the model's
// identity, a checksum of everything else}, "plum.tokens" I32 [tokens], then
// every state by its name, f32. Restoring checks all of it before the slot is
// touched.
//
//===----------------------------------------------------------------------===//

#include "runtime/Safetensors.h"
#include "runtime/model/Backend.h"
#include "runtime/model/States.h"

#include <algorithm>
#include <cstring>

namespace plum::model {

using namespace runtime;

namespace {

constexpr int64_t version = 1;
constexpr const char *headName = "plum.state", *tokensName = "plum.tokens";

/// FNV-1a, eight bytes at a time.
class Checksum {
public:
  void add(const void *data, size_t size) {
    auto bytes = static_cast<const unsigned char *>(data);
    for (; size >= 8; size -= 8, bytes += 8) {
      uint64_t word;
      std::memcpy(&word, bytes, 8);
      mix(word);
    }
    for (; size > 0; --size)
      mix(*bytes++);
  }
  int64_t value() const { return int64_t(state); }

private:
  void mix(uint64_t word) {
    state = (state ^ word) * 0x100000001b3u;
    state ^= state >> 29;
  }
  uint64_t state = 0xcbf29ce484222325u;
};

} // namespace

Status StatePool::save(int64_t slot, const std::string &path) const {
  const Sequence &sequence = sequences[size_t(slot)];
  int64_t count = int64_t(sequence.tokens.size());
  std::vector<TensorToWrite> tensors;
  tensors.push_back({tokensName, DType::I32, {count}, sequence.tokens.data()});
  const float *fixed = block(slot);
  std::vector<float> copied;
  if (backend) {
    copied.resize(size_t(layout->block));
    backend->copyOut(copied.data(), fixed, copied.size() * sizeof(float));
    fixed = copied.data();
  }
  for (const StateLayout::Fixed &state : layout->fixed)
    tensors.push_back(
        {state.name, DType::F32, state.shape, fixed + state.offset});
  std::vector<std::vector<float>> growing;
  for (size_t g = 0; g < layout->growing.size(); ++g) {
    growing.push_back(readGrowing(slot, g));
    tensors.push_back({layout->growing[g].name,
                       DType::F32,
                       {count, layout->growing[g].width},
                       growing.back().data()});
  }
  if (backend)
    if (Status status = backend->status(); !status)
      return status;
  Checksum sum;
  for (const TensorToWrite &tensor : tensors) {
    size_t size = byteSize(tensor.dtype);
    for (int64_t extent : tensor.shape)
      size *= size_t(extent);
    sum.add(tensor.data, size);
  }
  int64_t head[4] = {version, count, int64_t(identity), sum.value()};
  tensors.insert(tensors.begin(), {headName, DType::I64, {4}, head});
  return writeSafetensors(path, tensors);
}

Status StatePool::restore(int64_t slot, const std::string &path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file)
    return file.error();
  Error wrong{path, "", {}};
  auto take = [&](const std::string &name, DType type,
                  const std::vector<int64_t> &shape) -> const FileTensor * {
    const FileTensor *tensor = file->find(name);
    if (!tensor)
      wrong.message = "has no tensor '" + name + "'";
    else if (tensor->dtype != type || tensor->shape != shape)
      wrong.message = "tensor '" + name + "' is " + tensor->dtypeName + " " +
                      shapeText(tensor->shape) + ", expected " +
                      std::string(fileName(type)) + " " + shapeText(shape);
    else
      return tensor;
    return nullptr;
  };
  const FileTensor *headTensor = take(headName, DType::I64, {4});
  if (!headTensor) {
    wrong.notes.push_back("a file that a sequence was saved to has it");
    return wrong;
  }
  int64_t head[4];
  std::memcpy(head, headTensor->data.data(), sizeof(head));
  if (head[0] != version)
    return Error{path,
                 "has version " + std::to_string(head[0]) + ", expected " +
                     std::to_string(version),
                 {}};
  if (uint64_t(head[2]) != identity)
    return Error{path, "holds the state of another model", {}};
  int64_t count = head[1];

  std::vector<const FileTensor *> tensors{
      take(tokensName, DType::I32, {count})};
  for (const StateLayout::Fixed &state : layout->fixed)
    if (tensors.back())
      tensors.push_back(take(state.name, DType::F32, state.shape));
  for (const StateLayout::Growing &state : layout->growing)
    if (tensors.back())
      tensors.push_back(take(state.name, DType::F32, {count, state.width}));
  if (!tensors.back())
    return wrong;
  Checksum sum;
  for (const FileTensor *tensor : tensors)
    sum.add(tensor->data.data(), tensor->data.size());
  if (sum.value() != head[3])
    return Error{path, "is damaged: its checksum does not fit", {}};

  Sequence sequence;
  auto values = [](const FileTensor *tensor) {
    std::vector<float> list(tensor->data.size() / sizeof(float));
    std::memcpy(list.data(), tensor->data.data(), tensor->data.size());
    return list;
  };
  auto next = tensors.begin();
  sequence.tokens.resize(size_t(count));
  std::memcpy(sequence.tokens.data(), (*next)->data.data(),
              (*next)->data.size());
  std::vector<float> fixed(size_t(layout->block), 0.0f);
  for (const StateLayout::Fixed &state : layout->fixed) {
    std::vector<float> list = values(*++next);
    std::copy(list.begin(), list.end(), fixed.begin() + state.offset);
  }
  for (size_t g = 0; g < layout->growing.size(); ++g) {
    Growth &growth = sequence.growing.emplace_back();
    if (!writeGrowing(growth, values(*++next)))
      return Error{path, "no memory for its states", {}};
    growth.rows = count;
  }
  size_t bytes = fixed.size() * sizeof(float);
  if (backend)
    backend->copyIn(block(slot), fixed.data(), bytes);
  else
    copyBytes(nullptr, block(slot), fixed.data(), bytes);
  sequences[size_t(slot)] = std::move(sequence);
  dropCheckpoints(slot);
  return Status::ok();
}

} // namespace plum::model
