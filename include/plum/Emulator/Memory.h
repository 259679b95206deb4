//===- Memory.h - The emulated GPU's global memory --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A registry of named allocations. Each gets a device address range of its own
// with unmapped space around it, so that an access outside is always seen and
// can be named: "q+0x4010, past the end of 'q' (16384 bytes)". Addresses of
// allocations are multiples of 512, like a driver's.
//
// An allocation is either owned here, and then every byte is undefined until it
// is written (reading one is an error), or it is a view of host memory.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_EMULATOR_MEMORY_H
#define PLUM_EMULATOR_MEMORY_H

#include "plum/Support/Result.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <cstring>
#include <memory>

namespace plum::emulator {

class Memory {
public:
  Memory();
  ~Memory();
  Memory(Memory &&);

  //===--- Allocations: each returns the device address -------------------===//
  /// Undefined bytes.
  uint64_t allocate(llvm::StringRef name, uint64_t bytes);
  /// The caller's memory, read and written in place.
  uint64_t map(llvm::StringRef name, void *data, uint64_t bytes);
  /// The same; a store to it is an error.
  uint64_t mapConstant(llvm::StringRef name, const void *data, uint64_t bytes);
  /// The caller's memory under its host address. A neighbour in host memory
  /// may be registered too, so an access outside is not always seen.
  uint64_t mapAtHostAddress(llvm::StringRef name, void *data, uint64_t bytes);
  /// Ends an allocation; its addresses are not used again. False if there is
  /// none that begins there.
  bool release(uint64_t address);

  /// allocate() and write().
  template <typename T>
  uint64_t upload(llvm::StringRef name, llvm::ArrayRef<T> values) {
    uint64_t address = allocate(name, values.size() * sizeof(T));
    (void)write(address, values.data(), values.size() * sizeof(T));
    return address;
  }

  //===--- The host's copies ----------------------------------------------===//
  Status write(uint64_t address, const void *from, uint64_t bytes);
  /// Undefined bytes are read as they are.
  Status read(uint64_t address, void *to, uint64_t bytes) const;
  Status fill(uint64_t address, uint8_t value, uint64_t bytes);
  /// How many of these bytes were never written; all when they are unmapped.
  uint64_t undefinedBytes(uint64_t address, uint64_t bytes) const;

  //===--- The emulator's accesses ----------------------------------------===//
  /// Where `bytes` at a device address live, or null: problem() says why.
  const uint8_t *source(uint64_t address, uint64_t bytes);
  uint8_t *destination(uint64_t address, uint64_t bytes);
  const std::string &problem() const { return why; }
  /// "q+0x4010", or the bare number.
  std::string describe(uint64_t address) const;

private:
  struct Allocation;
  const Allocation *find(uint64_t address) const;
  const Allocation *checked(uint64_t address, uint64_t bytes);
  uint64_t add(llvm::StringRef name, uint64_t bytes, uint8_t *data);

  std::vector<std::unique_ptr<Allocation>> allocations; ///< By address.
  mutable const Allocation *last = nullptr;
  uint64_t nextAddress;
  std::string why;
};

} // namespace plum::emulator

#endif // PLUM_EMULATOR_MEMORY_H
