//===- Memory.cpp - The emulated GPU's global memory ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Emulator/Memory.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

/// Like a GPU's: far from the host's own addresses, and above 32 bits so that
/// a truncated address shows.
static constexpr uint64_t kFirstAddress = 0x7000000000, kGuard = 1 << 20;

struct Memory::Allocation {
  std::string name;
  uint64_t address, bytes;
  uint8_t *data;
  bool constant = false;
  std::vector<uint8_t> storage, defined; ///< Of an owned one; defined: flags.

  uint64_t end() const { return address + bytes; }
};

Memory::Memory() : nextAddress(kFirstAddress) {}
Memory::~Memory() = default;
Memory::Memory(Memory &&) = default;

uint64_t Memory::add(StringRef name, uint64_t bytes, uint8_t *data) {
  auto allocation = std::make_unique<Allocation>();
  allocation->name = name.str();
  allocation->address = nextAddress;
  allocation->bytes = bytes;
  allocation->data = data;
  nextAddress = llvm::alignTo(nextAddress + bytes + kGuard, kGuard);
  // Those at host addresses may lie anywhere: keep the list sorted.
  auto place = llvm::upper_bound(
      allocations, allocation->address,
      [](uint64_t a, const auto &other) { return a < other->address; });
  uint64_t address = allocation->address;
  allocations.insert(place, std::move(allocation));
  return address;
}

uint64_t Memory::allocate(StringRef name, uint64_t bytes) {
  uint64_t address = add(name, bytes, nullptr);
  auto *allocation = const_cast<Allocation *>(find(address));
  allocation->storage.assign(bytes, 0xcd);
  allocation->defined.assign(bytes, 0);
  allocation->data = allocation->storage.data();
  return address;
}
uint64_t Memory::map(StringRef name, void *data, uint64_t bytes) {
  return add(name, bytes, static_cast<uint8_t *>(data));
}
uint64_t Memory::mapConstant(StringRef name, const void *data, uint64_t bytes) {
  uint64_t address = map(name, const_cast<void *>(data), bytes);
  const_cast<Allocation *>(find(address))->constant = true;
  return address;
}
uint64_t Memory::mapAtHostAddress(StringRef name, void *data, uint64_t bytes) {
  uint64_t next = nextAddress;
  nextAddress = reinterpret_cast<uintptr_t>(data);
  uint64_t address = map(name, data, bytes);
  nextAddress = next;
  return address;
}
bool Memory::release(uint64_t address) {
  last = nullptr;
  auto found = llvm::find_if(
      allocations, [&](const auto &a) { return a->address == address; });
  if (found == allocations.end())
    return false;
  allocations.erase(found);
  return true;
}

/// The last allocation that begins at or before `address`.
const Memory::Allocation *Memory::find(uint64_t address) const {
  auto next =
      llvm::upper_bound(allocations, address, [](uint64_t a, const auto &x) {
        return a < x->address;
      });
  return next == allocations.begin() ? nullptr : std::prev(next)->get();
}

const Memory::Allocation *Memory::checked(uint64_t address, uint64_t bytes) {
  if (last && address >= last->address && address + bytes <= last->end() &&
      address + bytes >= address)
    return last;
  const Allocation *a = find(address);
  if (a && address + bytes >= address && address + bytes <= a->end())
    return last = a;
  if (a && address < a->end() + kGuard) {
    why = "past the end of '" + a->name + "' (" + std::to_string(a->bytes) +
          " bytes)";
    return nullptr;
  }
  auto next =
      a ? llvm::find_if(allocations,
                        [&](const auto &x) { return x->address > address; })
        : allocations.begin();
  if (next != allocations.end() && address + kGuard >= (*next)->address)
    why = std::to_string((*next)->address - address) +
          " bytes before the start of '" + (*next)->name + "'";
  else
    why = "in no allocation";
  return nullptr;
}

const uint8_t *Memory::source(uint64_t address, uint64_t bytes) {
  const Allocation *a = checked(address, bytes);
  if (!a)
    return nullptr;
  uint64_t offset = address - a->address;
  if (!a->defined.empty() &&
      std::memchr(a->defined.data() + offset, 0, bytes)) {
    why = "which nothing has written";
    return nullptr;
  }
  return a->data + offset;
}

uint8_t *Memory::destination(uint64_t address, uint64_t bytes) {
  auto *a = const_cast<Allocation *>(checked(address, bytes));
  if (!a)
    return nullptr;
  if (a->constant) {
    why = "but '" + a->name + "' is constant";
    return nullptr;
  }
  uint64_t offset = address - a->address;
  if (!a->defined.empty())
    std::memset(a->defined.data() + offset, 1, bytes);
  return a->data + offset;
}

std::string Memory::describe(uint64_t address) const {
  const Allocation *a = find(address);
  if (!a || address >= a->end() + kGuard)
    return "0x" + llvm::utohexstr(address, /*LowerCase=*/true);
  return a->name + "+0x" +
         llvm::utohexstr(address - a->address, /*LowerCase=*/true);
}

Status Memory::write(uint64_t address, const void *from, uint64_t bytes) {
  if (bytes == 0)
    return Status::ok();
  auto *a = const_cast<Allocation *>(checked(address, bytes));
  if (!a)
    return Error{describe(address),
                 "a copy of " + std::to_string(bytes) +
                     " bytes to the device is " + why,
                 {}};
  uint64_t offset = address - a->address;
  std::memcpy(a->data + offset, from, bytes);
  if (!a->defined.empty())
    std::memset(a->defined.data() + offset, 1, bytes);
  return Status::ok();
}

Status Memory::fill(uint64_t address, uint8_t value, uint64_t bytes) {
  return write(address, std::vector<uint8_t>(bytes, value).data(), bytes);
}

Status Memory::read(uint64_t address, void *to, uint64_t bytes) const {
  if (bytes == 0)
    return Status::ok();
  const Allocation *a = find(address);
  if (!a || address + bytes > a->end())
    return Error{describe(address),
                 "a copy of " + std::to_string(bytes) +
                     " bytes from the device leaves "
                     "the allocation",
                 {}};
  std::memcpy(to, a->data + (address - a->address), bytes);
  return Status::ok();
}

uint64_t Memory::undefinedBytes(uint64_t address, uint64_t bytes) const {
  const Allocation *a = find(address);
  if (!a || address + bytes > a->end())
    return bytes;
  if (a->defined.empty())
    return 0;
  auto from = a->defined.begin() + int64_t(address - a->address);
  return uint64_t(std::count(from, from + int64_t(bytes), 0));
}
