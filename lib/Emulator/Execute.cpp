//===- Execute.cpp - A warp's arithmetic and control ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arithmetic takes all 32 lanes, so that the compiler makes vectors of it.
//
//===----------------------------------------------------------------------===//

#include "Cta.h"
#include "Floats.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

template <typename T> static T *lanes(Warp &warp, Slot slot) {
  return reinterpret_cast<T *>(warp.frame[slot].v);
}

template <typename To, typename From, typename F>
static inline void map1(Warp &warp, const Inst &inst, F f) {
  To *dst = lanes<To>(warp, inst.dst);
  const From *a = lanes<From>(warp, inst.a);
  for (uint32_t i = 0; i < kLanes; ++i)
    dst[i] = f(a[i]);
}

template <typename To, typename From, typename F>
static inline void map2(Warp &warp, const Inst &inst, F f) {
  To *__restrict dst = lanes<To>(warp, inst.dst);
  const From *a = lanes<From>(warp, inst.a), *b = lanes<From>(warp, inst.b);
  for (uint32_t i = 0; i < kLanes; ++i)
    dst[i] = f(a[i], b[i]);
}

template <typename T> static inline void choose(Warp &warp, const Inst &inst) {
  T *__restrict dst = lanes<T>(warp, inst.dst);
  const uint32_t *condition = lanes<uint32_t>(warp, inst.a);
  const T *a = lanes<T>(warp, inst.b), *b = lanes<T>(warp, inst.c);
  for (uint32_t i = 0; i < kLanes; ++i)
    dst[i] = condition[i] ? a[i] : b[i];
}

template <typename U, typename S>
static void compare(Warp &warp, const Inst &inst) {
  using P = arith::CmpIPredicate;
  switch (static_cast<P>(inst.imm)) {
  case P::eq:
    return map2<uint32_t, U>(warp, inst, [](U a, U b) { return a == b; });
  case P::ne:
    return map2<uint32_t, U>(warp, inst, [](U a, U b) { return a != b; });
  case P::slt:
    return map2<uint32_t, S>(warp, inst, [](S a, S b) { return a < b; });
  case P::sle:
    return map2<uint32_t, S>(warp, inst, [](S a, S b) { return a <= b; });
  case P::sgt:
    return map2<uint32_t, S>(warp, inst, [](S a, S b) { return a > b; });
  case P::sge:
    return map2<uint32_t, S>(warp, inst, [](S a, S b) { return a >= b; });
  case P::ult:
    return map2<uint32_t, U>(warp, inst, [](U a, U b) { return a < b; });
  case P::ule:
    return map2<uint32_t, U>(warp, inst, [](U a, U b) { return a <= b; });
  case P::ugt:
    return map2<uint32_t, U>(warp, inst, [](U a, U b) { return a > b; });
  case P::uge:
    return map2<uint32_t, U>(warp, inst, [](U a, U b) { return a >= b; });
  }
}

/// Bit 0: less, 1: equal, 2: greater, 3: unordered.
static uint32_t outcomes(arith::CmpFPredicate predicate) {
  using P = arith::CmpFPredicate;
  switch (predicate) {
  case P::AlwaysFalse:
    return 0;
  case P::OLT:
    return 1;
  case P::OEQ:
    return 2;
  case P::OLE:
    return 3;
  case P::OGT:
    return 4;
  case P::ONE:
    return 5;
  case P::OGE:
    return 6;
  case P::ORD:
    return 7;
  case P::UNO:
    return 8;
  case P::ULT:
    return 9;
  case P::UEQ:
    return 10;
  case P::ULE:
    return 11;
  case P::UGT:
    return 12;
  case P::UNE:
    return 13;
  case P::UGE:
    return 14;
  case P::AlwaysTrue:
    return 15;
  }
  return 0;
}

static void compareFloats(Warp &warp, const Inst &inst) {
  uint32_t accepted = outcomes(static_cast<arith::CmpFPredicate>(inst.imm));
  map2<uint32_t, float>(warp, inst, [&](float a, float b) {
    uint32_t outcome = a < b ? 0 : a == b ? 1 : a > b ? 2 : 3;
    return accepted >> outcome & 1;
  });
}

static void fusedLanes(float *__restrict dst, const float *a, const float *b,
                       const float *c) {
  for (uint32_t i = 0; i < kLanes; ++i)
    dst[i] = __builtin_fmaf(a[i], b[i], c[i]);
}
#ifdef __x86_64__
// A call of libm for each lane otherwise.
__attribute__((target("avx2,fma"))) static void
fusedLanesFast(float *__restrict dst, const float *a, const float *b,
               const float *c) {
  for (uint32_t i = 0; i < kLanes; ++i)
    dst[i] = __builtin_fmaf(a[i], b[i], c[i]);
}
static const bool kHasFma = __builtin_cpu_supports("fma");
#endif

static void fused(Warp &warp, const Inst &inst) {
  float *dst = warp.f32(inst.dst);
  const float *a = warp.f32(inst.a), *b = warp.f32(inst.b);
  const float *c = warp.f32(inst.c);
#ifdef __x86_64__
  if (kHasFma)
    return fusedLanesFast(dst, a, b, c);
#endif
  fusedLanes(dst, a, b, c);
}

/// Pairs of bf16: each product and sum rounded once, as if exact.
static void fusedPairs(Warp &warp, const Inst &inst) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    uint32_t a = warp.u32(inst.a)[i], b = warp.u32(inst.b)[i];
    uint32_t c = warp.u32(inst.c)[i];
    auto half = [](uint32_t a, uint32_t b, uint32_t c) {
      // A product has 16 bits. Rounding the sum to 53 and then 8 bits is
      // rounding once but for ties that c's last bits would break: those go
      // to odd first.
      double product = double(fromBFloat(a)) * double(fromBFloat(b));
      double addend = fromBFloat(c), sum = product + addend;
      double back = sum - product;
      double lost = (product - (sum - back)) + (addend - back);
      if (lost != 0 && std::isfinite(sum)) {
        uint64_t bits = std::bit_cast<uint64_t>(sum);
        if (!(bits & 1))
          sum = std::nextafter(sum, lost > 0 ? INFINITY : -INFINITY);
      }
      // f32 keeps the sticky bit the same way.
      float narrow = static_cast<float>(sum);
      if (double(narrow) != sum && std::isfinite(narrow)) {
        uint32_t bits = std::bit_cast<uint32_t>(narrow);
        if (!(bits & 1))
          narrow = std::nextafter(narrow,
                                  sum > double(narrow) ? INFINITY : -INFINITY);
      }
      return toBFloat(narrow);
    };
    warp.u32(inst.dst)[i] = half(a & 0xffff, b & 0xffff, c & 0xffff) |
                            half(a >> 16, b >> 16, c >> 16) << 16;
  }
}

/// NaN if either is.
template <typename Better>
static inline float extreme(float a, float b, Better better) {
  if (std::isnan(a) || std::isnan(b))
    return std::bit_cast<float>(0x7fffffffu);
  if (a == b)
    return better(std::bit_cast<int32_t>(a), std::bit_cast<int32_t>(b)) ? a : b;
  return better(a, b) ? a : b;
}

static int32_t toSigned(float x) {
  if (std::isnan(x))
    return 0;
  if (x >= 2147483648.0f)
    return INT32_MAX;
  return x < -2147483648.0f ? INT32_MIN : static_cast<int32_t>(x);
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

/// The lanes of a mask's 16 lower bits, each twice.
static uint32_t doubled(uint32_t mask) {
  uint32_t out = 0;
  for (uint32_t i = 0; i < kLanes; ++i)
    out |= (mask >> (i / 2) & 1) << i;
  return out;
}

static void move(Warp &warp, const Program &program, const Inst &inst) {
  const Slot *to = &program.lists[inst.dst], *from = &program.lists[inst.a];
  SmallVector<SlotLanes, 0> copies;
  if (inst.flags)
    for (uint32_t k = 0; k < inst.count; ++k)
      copies.push_back(warp.frame[from[k]]);
  for (uint32_t k = 0; k < inst.count; ++k) {
    const SlotLanes &source = inst.flags ? copies[k] : warp.frame[from[k]];
    SlotLanes &target = warp.frame[to[k] & ~(kWideLow | kWideHigh)];
    uint32_t mask = warp.mask;
    if (mask == ~0u) {
      target = source;
      continue;
    }
    if (to[k] & (kWideLow | kWideHigh))
      mask = doubled(to[k] & kWideHigh ? mask >> 16 : mask);
    for (uint32_t i = 0; i < kLanes; ++i)
      target.v[i] = mask >> i & 1 ? source.v[i] : target.v[i];
  }
}

static uint32_t lanesWhere(const uint32_t *condition) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kLanes; ++i)
    mask |= uint32_t(condition[i] != 0) << i;
  return mask;
}

static uint32_t lanesBelow(Warp &warp, const Inst &inst) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    bool below;
    if (inst.flags & 2) {
      uint64_t a = warp.u64(inst.a)[i], b = warp.u64(inst.b)[i];
      below = inst.flags & 1 ? a < b : int64_t(a) < int64_t(b);
    } else {
      uint32_t a = warp.u32(inst.a)[i], b = warp.u32(inst.b)[i];
      below = inst.flags & 1 ? a < b : int32_t(a) < int32_t(b);
    }
    mask |= uint32_t(below) << i;
  }
  return mask;
}

//===----------------------------------------------------------------------===//
// The switch
//===----------------------------------------------------------------------===//

#define PLUM_BOTH(NAME, UNSIGNED, EXPRESSION)                                  \
  case Code::NAME##32:                                                         \
    map2<uint32_t, std::conditional_t<UNSIGNED, uint32_t, int32_t>>(           \
        warp, inst, [](auto a, auto b) { return EXPRESSION; });                \
    break;                                                                     \
  case Code::NAME##64:                                                         \
    map2<uint64_t, std::conditional_t<UNSIGNED, uint64_t, int64_t>>(           \
        warp, inst, [](auto a, auto b) { return EXPRESSION; });                \
    break;
#define PLUM_FLOAT2(NAME, EXPRESSION)                                          \
  case Code::NAME:                                                             \
    map2<float, float>(warp, inst,                                             \
                       [](float a, float b) { return EXPRESSION; });           \
    break;
#define PLUM_APPROXIMATE(NAME, EXPRESSION)                                     \
  case Code::NAME:                                                             \
    map1<float, float>(warp, inst, [](float a) {                               \
      return approximate(a, [](double x) { return EXPRESSION; });              \
    });                                                                        \
    break;

template <typename T> static constexpr int kBits = 8 * sizeof(T);

Step Cta::execute(Warp &warp, int64_t budget) {
  const Inst *code = program.code.data();
  for (; budget > 0; --budget, ++instructions) {
    const Inst &inst = code[warp.pc];
    switch (inst.code) {
      PLUM_BOTH(Add, true, a + b)
      PLUM_BOTH(Sub, true, a - b)
      PLUM_BOTH(Mul, true, a * b)
      PLUM_BOTH(And, true, a & b)
      PLUM_BOTH(Or, true, a | b)
      PLUM_BOTH(Xor, true, a ^ b)
      PLUM_BOTH(MinU, true, a < b ? a : b)
      PLUM_BOTH(MaxU, true, a > b ? a : b)
      PLUM_BOTH(MinS, false, a < b ? a : b)
      PLUM_BOTH(MaxS, false, a > b ? a : b)
      // Lanes that are not active divide whatever they hold.
      PLUM_BOTH(DivU, true, b ? a / b : ~decltype(a)(0))
      PLUM_BOTH(RemU, true, b ? a % b : a)
      PLUM_BOTH(DivS, false,
                b == 0 ? decltype(a)(-1)
                : b == -1
                    ? decltype(a)(0 - std::make_unsigned_t<decltype(a)>(a))
                    : decltype(a)(a / b))
      PLUM_BOTH(RemS, false, b == 0 ? a : b == -1 ? decltype(a)(0) : a % b)
      // As in PTX: shifting by too much shifts everything out.
      PLUM_BOTH(Shl, true, b < kBits<decltype(a)> ? a << b : 0)
      PLUM_BOTH(ShrU, true, b < kBits<decltype(a)> ? a >> b : 0)
      PLUM_BOTH(ShrS, false,
                a >> (std::make_unsigned_t<decltype(b)>(b) < kBits<decltype(a)>
                          ? b
                          : kBits<decltype(a)> - 1))
    case Code::Cmp32:
      compare<uint32_t, int32_t>(warp, inst);
      break;
    case Code::Cmp64:
      compare<uint64_t, int64_t>(warp, inst);
      break;
    case Code::Select32:
      choose<uint32_t>(warp, inst);
      break;
    case Code::Select64:
      choose<uint64_t>(warp, inst);
      break;
    case Code::AndImm32:
      map1<uint32_t, uint32_t>(
          warp, inst, [&](uint32_t a) { return a & uint32_t(inst.imm); });
      break;
    case Code::AddImm32:
      map1<uint32_t, uint32_t>(
          warp, inst, [&](uint32_t a) { return a + uint32_t(inst.imm); });
      break;
    case Code::AddImm64:
      map1<uint64_t, uint64_t>(
          warp, inst, [&](uint64_t a) { return a + uint64_t(inst.imm); });
      break;
    case Code::SignExtend32:
      map1<uint32_t, uint32_t>(warp, inst, [&](uint32_t a) {
        return uint32_t(int32_t(a << (32 - inst.imm)) >> (32 - inst.imm));
      });
      break;
    case Code::SignExtend64:
      map1<uint64_t, uint32_t>(warp, inst, [&](uint32_t a) {
        return uint64_t(int64_t(uint64_t(a) << (64 - inst.imm)) >>
                        (64 - inst.imm));
      });
      break;
    case Code::ZeroExtend64:
      map1<uint64_t, uint32_t>(warp, inst,
                               [](uint32_t a) { return uint64_t(a); });
      break;
    case Code::Truncate64:
      map1<uint32_t, uint64_t>(warp, inst, [&](uint64_t a) {
        return uint32_t(a) & uint32_t(inst.imm);
      });
      break;
    case Code::MulAddress32:
    case Code::MulAddress64:
      for (uint32_t i = 0; i < kLanes; ++i) {
        int64_t by = inst.c ? int64_t(warp.u64(inst.b)[i])
                            : int64_t(int32_t(warp.u32(inst.b)[i]));
        if (inst.code == Code::MulAddress64)
          warp.u64(inst.dst)[i] = warp.u64(inst.a)[i] + uint64_t(by * inst.imm);
        else
          warp.u32(inst.dst)[i] = warp.u32(inst.a)[i] + uint32_t(by * inst.imm);
      }
      break;

      PLUM_FLOAT2(AddF, a + b)
      PLUM_FLOAT2(SubF, a - b)
      PLUM_FLOAT2(MulF, a * b)
      PLUM_FLOAT2(DivF, a / b)
      PLUM_FLOAT2(MaxF, extreme(a, b, [](auto x, auto y) { return x > y; }))
      PLUM_FLOAT2(MinF, extreme(a, b, [](auto x, auto y) { return x < y; }))
      PLUM_FLOAT2(MaxNumF, std::fmax(a, b))
      PLUM_FLOAT2(MinNumF, std::fmin(a, b))
    case Code::NegF:
      map1<uint32_t, uint32_t>(warp, inst,
                               [](uint32_t a) { return a ^ 0x80000000; });
      break;
    case Code::FmaF:
      fused(warp, inst);
      break;
    case Code::CmpF:
      compareFloats(warp, inst);
      break;
    case Code::HalfToF32:
      map1<float, uint32_t>(warp, inst, fromHalf);
      break;
    case Code::F32ToHalf:
      map1<uint32_t, float>(warp, inst, toHalf);
      break;
    case Code::BFloatToF32:
      map1<float, uint32_t>(warp, inst, fromBFloat);
      break;
    case Code::F32ToBFloat:
      map1<uint32_t, float>(warp, inst, toBFloat);
      break;
    case Code::SignedToF32:
      map1<float, int32_t>(warp, inst, [](int32_t a) { return float(a); });
      break;
    case Code::UnsignedToF32:
      map1<float, uint32_t>(warp, inst, [](uint32_t a) { return float(a); });
      break;
    case Code::F32ToSigned:
      map1<int32_t, float>(warp, inst, toSigned);
      break;
      PLUM_APPROXIMATE(Ex2, std::exp2(x))
      PLUM_APPROXIMATE(Lg2, std::log2(x))
      PLUM_APPROXIMATE(Rcp, 1 / x)
      PLUM_APPROXIMATE(Rsqrt, 1 / std::sqrt(x))
      PLUM_APPROXIMATE(Sqrt, std::sqrt(x))
    case Code::PackBFloat: // The first operand is the upper half.
      map2<uint32_t, float>(warp, inst, [](float high, float low) {
        return toBFloat(high) << 16 | toBFloat(low);
      });
      break;
    case Code::FmaBFloatPair:
      fusedPairs(warp, inst);
      break;

    case Code::ThreadId:
      for (uint32_t i = 0; i < kLanes; ++i)
        warp.u32(inst.dst)[i] = warp.index * kLanes + i;
      break;
    case Code::BlockId:
      for (uint32_t i = 0; i < kLanes; ++i)
        warp.u32(inst.dst)[i] = uint32_t(index);
      break;

    case Code::Move:
      move(warp, program, inst);
      break;
    case Code::NoteWrite:
      warp.writtenAt[inst.a] = warp.wgmmaFences + 1;
      break;
    case Code::IfBegin: {
      uint32_t outside = warp.mask;
      uint32_t taken = lanesWhere(warp.u32(inst.a)) & outside;
      warp.scopes.push_back({outside, outside & ~taken});
      warp.mask = taken;
      if (!taken) {
        warp.pc = inst.imm;
        continue;
      }
      break;
    }
    case Code::Else:
      warp.mask = warp.scopes.back().otherwise;
      if (!warp.mask) {
        warp.pc = inst.imm;
        continue;
      }
      break;
    case Code::EndIf:
    case Code::LoopEnd:
      warp.mask = warp.scopes.pop_back_val().outside;
      break;
    case Code::LoopBegin:
      warp.scopes.push_back({warp.mask, 0});
      break;
    case Code::LoopTest:
    case Code::WhileTest:
      warp.mask &= inst.code == Code::LoopTest ? lanesBelow(warp, inst)
                                               : lanesWhere(warp.u32(inst.a));
      if (!warp.mask) {
        warp.pc = inst.imm;
        continue;
      }
      break;
    case Code::Jump:
      warp.pc = inst.imm;
      continue;
    case Code::Return:
      warp.done = true;
      return Step::Next;

    default:
      if (Step step = effect(warp, inst); step != Step::Next)
        return step;
      break;
    }
    ++warp.pc;
  }
  return Step::Next;
}

Step Cta::effect(Warp &warp, const Inst &inst) {
  switch (inst.code) {
  case Code::LoadArgument:
    return loadArgument(warp, inst);
  case Code::LoadGlobal:
    return loadGlobal(warp, inst);
  case Code::StoreGlobal:
    return storeGlobal(warp, inst);
  case Code::LoadShared:
    return loadShared(warp, inst);
  case Code::StoreShared:
    return storeShared(warp, inst);
  case Code::Shuffle:
    return shuffle(warp, inst);
  case Code::LoadMatrix:
  case Code::LoadMatrixTransposed:
    return loadMatrix(warp, inst, inst.code == Code::LoadMatrixTransposed);
  case Code::StoreMatrix:
  case Code::StoreMatrixTransposed:
    return storeMatrix(warp, inst, inst.code == Code::StoreMatrixTransposed);
  case Code::Mma:
    return mma(warp, inst);
  case Code::SyncWarp:
  case Code::SetMaxRegisters:
    if (!converged(warp))
      return diverged(warp);
    if (inst.code == Code::SyncWarp)
      syncLanes(warp);
    return Step::Next;
  case Code::VoteAny:
    if (!converged(warp))
      return diverged(warp);
    std::fill_n(warp.u32(inst.dst), kLanes,
                lanesWhere(warp.u32(inst.a)) ? 1u : 0u);
    return Step::Next;
  case Code::Barrier:
  case Code::BarrierArrive:
    return barrier(warp, inst);
  case Code::BarrierInit:
    return barrierInit(warp, inst);
  case Code::FenceBarrierInit:
    return fenceBarrierInit(warp);
  case Code::Arrive:
  case Code::ArriveExpect:
    return arrive(warp, inst, inst.code == Code::ArriveExpect);
  case Code::Wait:
    return wait(warp, inst);
  case Code::Copy16:
    return copy16(warp, inst);
  case Code::CopyCommit:
    forLanes(warp.mask, [&](uint32_t lane) {
      for (AsyncCopy &copy : warp.copies[lane])
        if (copy.group < 0)
          copy.group = warp.copyGroups[lane];
      ++warp.copyGroups[lane];
      return true;
    });
    return Step::Next;
  case Code::CopyWait:
    return copyWait(warp, inst);
  case Code::CopyArrive:
    return copyArrive(warp, inst);
  case Code::BulkLoad:
    return bulkLoad(warp, inst);
  case Code::BulkStore:
    return bulkStore(warp, inst);
  case Code::BulkCommit:
    for (BulkStore &store : warp.stores)
      if (store.group < 0 && warp.mask >> store.lane & 1)
        store.group = warp.bulkGroups[store.lane];
    forLanes(warp.mask,
             [&](uint32_t lane) { return ++warp.bulkGroups[lane] > 0; });
    return Step::Next;
  case Code::BulkWaitRead:
  case Code::BulkWait:
    return bulkWait(warp, inst);
  case Code::FenceAsync:
    shared.fenceProxy(warp.index, warp.mask);
    return fenceBarrierInit(warp);
  case Code::WgmmaFence:
    if (!converged(warp))
      return diverged(warp);
    ++warp.wgmmaFences;
    return Step::Next;
  case Code::WgmmaCommit:
    if (!converged(warp))
      return diverged(warp);
    for (PendingWgmma &pending : warp.wgmmas)
      if (pending.group < 0)
        pending.group = warp.wgmmaGroups;
    ++warp.wgmmaGroups;
    return Step::Next;
  case Code::WgmmaWait:
    return wgmmaWait(warp, inst);
  case Code::Wgmma:
    return wgmma(warp, inst);
  case Code::CheckReady:
    return checkReady(warp, inst);
  default:
    return fail(warp, -1, "an instruction without a meaning");
  }
}
