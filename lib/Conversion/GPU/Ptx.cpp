//===- Ptx.cpp - The instructions that GPU kernels are made of --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Ptx.h"

#include "plum/ABI/GpuABI.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plum::gpu;

static constexpr StringLiteral kSharedName = "plum_shared";
static constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

Ptx::Ptx(ModuleOp module, StringRef name, Chip chip)
    : ImplicitLocOpBuilder(module.getLoc(), module.getContext()), chip(chip) {
  setInsertionPointToEnd(module.getBody());
  MLIRContext *ctx = getContext();
  if (!module.lookupSymbol(kSharedName)) {
    auto shared = LLVM::GlobalOp::create(
        *this, LLVM::LLVMArrayType::get(getI8Type(), 0), /*isConstant=*/false,
        LLVM::Linkage::External, kSharedName, Attribute(), /*alignment=*/1024,
        kSharedSpace);
    (void)shared;
  }
  auto pointer = LLVM::LLVMPointerType::get(ctx);
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(ctx), {pointer});
  func = LLVM::LLVMFuncOp::create(*this, name, type);
  auto bytes = LLVM::LLVMArrayType::get(getI8Type(), sizeof(plum_gpu_args));
  func.setArgAttr(0, "llvm.byval", TypeAttr::get(bytes));
  func.setArgAttr(0, "llvm.align", getI64IntegerAttr(16));
  func.setArgAttr(0, "nvvm.grid_constant", getUnitAttr());
  func->setAttr("nvvm.kernel", getUnitAttr());
  // Decays end in subnormals; an ex2 that flushes is one instruction.
  func->setAttr("passthrough",
                getArrayAttr({getArrayAttr(
                    {getStringAttr("denormal-fp-math-f32"),
                     getStringAttr("preserve-sign,preserve-sign")})}));
  Block *entry = func.addEntryBlock(*this);
  args = entry->getArgument(0);
  setInsertionPointToStart(entry);
}

void Ptx::finish(const KernelShape &shape) {
  LLVM::ReturnOp::create(*this, ValueRange());
  auto counts = [&](int64_t n) {
    return getDenseI32ArrayAttr({static_cast<int32_t>(n)});
  };
  func->setAttr("nvvm.reqntid", counts(shape.threads));
  if (shape.registers)
    func->setAttr("nvvm.maxnreg", getI32IntegerAttr(shape.registers));
  if (shape.ctasPerSM > 1 && !shape.registers)
    func->setAttr("nvvm.minctasm", getI32IntegerAttr(shape.ctasPerSM));
  func->setAttr("plum.shared_bytes", getI64IntegerAttr(shape.sharedBytes));
}

Value Ptx::assembly(StringRef text, StringRef constraints, ValueRange operands,
                    Type result, bool sideEffects) {
  auto op = LLVM::InlineAsmOp::create(
      *this, result ? TypeRange(result) : TypeRange(), operands, text,
      constraints, sideEffects, /*is_align_stack=*/false,
      LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr::get(getContext(), LLVM::AsmDialect::AD_ATT),
      ArrayAttr());
  return result ? op.getResult(0) : Value();
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

static std::optional<int64_t> constantOf(Value v) {
  IntegerAttr attr;
  if (matchPattern(v, m_Constant(&attr)))
    return attr.getInt();
  return std::nullopt;
}

Value Ptx::i32(int64_t v) {
  return arith::ConstantOp::create(*this,
                                   getI32IntegerAttr(static_cast<int32_t>(v)));
}
Value Ptx::i64(int64_t v) {
  return arith::ConstantOp::create(*this, getI64IntegerAttr(v));
}
Value Ptx::f32(double v) {
  return arith::ConstantOp::create(*this,
                                   getF32FloatAttr(static_cast<float>(v)));
}
Value Ptx::boolean(bool v) {
  return arith::ConstantOp::create(*this, getBoolAttr(v));
}

// Folding while building keeps unrolled address arithmetic small.
template <typename Op> static Value fold(Ptx &b, Value x, Value y) {
  return b.createOrFold<Op>(x, y);
}

static Value like(Ptx &b, Value a, int64_t v) {
  return a.getType().isInteger(64) ? b.i64(v) : b.i32(v);
}

Value Ptx::add(Value a, Value b) { return fold<arith::AddIOp>(*this, a, b); }
Value Ptx::add(Value a, int64_t b) { return b ? add(a, like(*this, a, b)) : a; }
Value Ptx::sub(Value a, Value b) { return fold<arith::SubIOp>(*this, a, b); }
Value Ptx::mul(Value a, Value b) { return fold<arith::MulIOp>(*this, a, b); }
Value Ptx::mul(Value a, int64_t b) {
  return b == 1 ? a : mul(a, like(*this, a, b));
}
Value Ptx::mulHigh(Value a, Value b) {
  return toI32(shr(mul(toU64(a), toU64(b)), 32));
}
Value Ptx::divu(Value a, Value b) { return fold<arith::DivUIOp>(*this, a, b); }
Value Ptx::remu(Value a, Value b) { return fold<arith::RemUIOp>(*this, a, b); }
Value Ptx::divu(Value a, int64_t b) {
  return b == 1 ? a : divu(a, like(*this, a, b));
}
Value Ptx::remu(Value a, int64_t b) { return remu(a, like(*this, a, b)); }
Value Ptx::shl(Value a, int64_t bits) {
  return fold<arith::ShLIOp>(*this, a, like(*this, a, bits));
}
Value Ptx::shr(Value a, int64_t bits) {
  return fold<arith::ShRUIOp>(*this, a, like(*this, a, bits));
}
Value Ptx::bitAnd(Value a, int64_t mask) {
  return fold<arith::AndIOp>(*this, a, like(*this, a, mask));
}
Value Ptx::bitXor(Value a, Value b) { return fold<arith::XOrIOp>(*this, a, b); }
Value Ptx::bitOr(Value a, Value b) { return fold<arith::OrIOp>(*this, a, b); }
Value Ptx::minimum(Value a, Value b) {
  return fold<arith::MinSIOp>(*this, a, b);
}
Value Ptx::maximum(Value a, Value b) {
  return fold<arith::MaxSIOp>(*this, a, b);
}
Value Ptx::cmp(arith::CmpIPredicate p, Value a, Value b) {
  return createOrFold<arith::CmpIOp>(p, a, b);
}
Value Ptx::both(Value a, Value b) { return fold<arith::AndIOp>(*this, a, b); }
Value Ptx::select(Value condition, Value a, Value b) {
  return createOrFold<arith::SelectOp>(condition, a, b);
}
Value Ptx::toI64(Value a) {
  return a.getType().isInteger(64)
             ? a
             : createOrFold<arith::ExtSIOp>(getI64Type(), a);
}
Value Ptx::toU64(Value a) {
  return createOrFold<arith::ExtUIOp>(getI64Type(), a);
}
Value Ptx::toI32(Value a) {
  return a.getType().isInteger(32)
             ? a
             : createOrFold<arith::TruncIOp>(getI32Type(), a);
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

Value Ptx::tid() { return NVVM::ThreadIdXOp::create(*this, getI32Type()); }
Value Ptx::ctaid() { return NVVM::BlockIdXOp::create(*this, getI32Type()); }
Value Ptx::lane() { return bitAnd(tid(), 31); }
Value Ptx::warp() { return shr(tid(), 5); }

//===----------------------------------------------------------------------===//
// Floating point
//===----------------------------------------------------------------------===//

Value Ptx::fadd(Value a, Value b) { return arith::AddFOp::create(*this, a, b); }
Value Ptx::fsub(Value a, Value b) { return arith::SubFOp::create(*this, a, b); }
Value Ptx::fmul(Value a, Value b) { return arith::MulFOp::create(*this, a, b); }
Value Ptx::fma(Value a, Value b, Value c) {
  return LLVM::FMAOp::create(*this, a, b, c);
}
Value Ptx::fmax(Value a, Value b) {
  return arith::MaximumFOp::create(*this, a, b);
}
Value Ptx::fmin(Value a, Value b) {
  return arith::MinimumFOp::create(*this, a, b);
}
Value Ptx::fneg(Value a) { return arith::NegFOp::create(*this, a); }
Value Ptx::fabs(Value a) { return floatOf(bitAnd(bitsOf(a), 0x7fffffff)); }
Value Ptx::fcmp(arith::CmpFPredicate p, Value a, Value b) {
  return arith::CmpFOp::create(*this, p, a, b);
}

static Value
unary(Ptx &b, StringRef mnemonic, Value x,
      function_ref<Value(StringRef, StringRef, ValueRange, Type)> assemble) {
  return assemble((mnemonic + " $0, $1;").str(), "=f,f", x, x.getType());
}
#define PLUM_UNARY(METHOD, MNEMONIC)                                           \
  Value Ptx::METHOD(Value x) {                                                 \
    return unary(*this, MNEMONIC, x,                                           \
                 [&](StringRef t, StringRef c, ValueRange o, Type r) {         \
                   return assembly(t, c, o, r, false);                         \
                 });                                                           \
  }
PLUM_UNARY(ex2, "ex2.approx.ftz.f32")
PLUM_UNARY(lg2, "lg2.approx.ftz.f32")
PLUM_UNARY(rcp, "rcp.approx.ftz.f32")
PLUM_UNARY(rsqrt, "rsqrt.approx.ftz.f32")
PLUM_UNARY(sqrt, "sqrt.approx.ftz.f32")
#undef PLUM_UNARY

Value Ptx::tanh(Value x) {
  // 1 - 2 / (1 + e^(2x)): right at both ends, and rcp(inf) is 0. Near zero it
  // cancels, to 1e-7 absolute; that is a rounding of the result's neighbours.
  Value e = ex2(fmul(x, f32(2.8853900817779268)));
  return fma(f32(-2.0), rcp(fadd(e, f32(1.0))), f32(1.0));
}

//===----------------------------------------------------------------------===//
// Pairs of bf16
//===----------------------------------------------------------------------===//

Value Ptx::pack(Value lo, Value hi) {
  return assembly("cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", {hi, lo},
                  getI32Type(), false);
}
Value Ptx::low(Value pair) { return floatOf(shl(pair, 16)); }
Value Ptx::high(Value pair) { return floatOf(bitAnd(pair, 0xffff0000)); }
Value Ptx::mulPair(Value a, Value b) {
  // mul.bf16x2 needs sm_90; a product plus -0 is the same number.
  Value minusZero = i32(static_cast<int32_t>(0x80008000));
  return assembly("fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r",
                  {a, b, minusZero}, getI32Type(), false);
}
Value Ptx::bitsOf(Value f) {
  return LLVM::BitcastOp::create(*this, getI32Type(), f);
}
Value Ptx::floatOf(Value bits) {
  return LLVM::BitcastOp::create(*this, getF32Type(), bits);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value Ptx::shared(int64_t bytes) {
  auto pointer = LLVM::LLVMPointerType::get(getContext(), kSharedSpace);
  Value base = LLVM::AddressOfOp::create(*this, pointer, kSharedName);
  return at(base, bytes);
}

/// Splits a pointer into a base and a constant.
static std::pair<Value, int64_t> splitOffset(Value pointer) {
  int64_t offset = 0;
  while (auto gep = pointer.getDefiningOp<LLVM::GEPOp>()) {
    auto index = dyn_cast<IntegerAttr>(gep.getIndices()[0]);
    if (!index)
      break;
    offset += index.getInt();
    pointer = gep.getBase();
  }
  return {pointer, offset};
}

Value Ptx::at(Value pointer, Value bytes) {
  if (auto constant = constantOf(bytes))
    return at(pointer, *constant);
  // The constant stays outermost, where an instruction can hold it.
  auto [base, offset] = splitOffset(pointer);
  Value moved = LLVM::GEPOp::create(*this, pointer.getType(), getI8Type(), base,
                                    ArrayRef<LLVM::GEPArg>{bytes});
  return at(moved, offset);
}
Value Ptx::at(Value pointer, int64_t bytes) {
  auto [base, offset] = splitOffset(pointer);
  if (offset + bytes == 0)
    return base;
  return LLVM::GEPOp::create(
      *this, pointer.getType(), getI8Type(), base,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset + bytes)});
}
Value Ptx::address(Value sharedPointer) {
  return LLVM::PtrToIntOp::create(*this, getI32Type(), sharedPointer);
}
Value Ptx::global(Value address64) {
  return LLVM::IntToPtrOp::create(
      *this, LLVM::LLVMPointerType::get(getContext(), kGlobalSpace), address64);
}

static unsigned bytesOf(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.getNumElements() * bytesOf(vector.getElementType());
  return type.getIntOrFloatBitWidth() / 8;
}

Value Ptx::load(Type type, Value pointer) {
  return LLVM::LoadOp::create(*this, type, pointer, bytesOf(type));
}
void Ptx::store(Value value, Value pointer) {
  LLVM::StoreOp::create(*this, value, pointer, bytesOf(value.getType()));
}
Value Ptx::loadHalf(Value pointer, bool bf16) {
  Value bits = load(getI16Type(), pointer);
  if (!bf16) {
    Value half = LLVM::BitcastOp::create(*this, getF16Type(), bits);
    return arith::ExtFOp::create(*this, getF32Type(), half);
  }
  return floatOf(shl(createOrFold<arith::ExtUIOp>(getI32Type(), bits), 16));
}
void Ptx::storeHalf(Value value, Value pointer, bool bf16) {
  Value bits;
  if (bf16) {
    bits = createOrFold<arith::TruncIOp>(getI16Type(), pack(value, value));
  } else {
    Value half = arith::TruncFOp::create(*this, getF16Type(), value);
    bits = LLVM::BitcastOp::create(*this, getI16Type(), half);
  }
  store(bits, pointer);
}
Type Ptx::vec(Type element, int64_t n) { return VectorType::get({n}, element); }
Value Ptx::element(Value vector, int64_t i) {
  return LLVM::ExtractElementOp::create(*this, vector, i32(i));
}
Value Ptx::vector(ArrayRef<Value> elements) {
  Value v = LLVM::UndefOp::create(
      *this, vec(elements.front().getType(), elements.size()));
  for (auto [i, e] : llvm::enumerate(elements))
    v = LLVM::InsertElementOp::create(*this, v, e, i32(i));
  return v;
}

static Value loadArgument(Ptx &b, Type type, Value pointer) {
  return LLVM::LoadOp::create(b, type, pointer, bytesOf(type),
                              /*isVolatile=*/false, /*isNonTemporal=*/false,
                              /*isInvariant=*/true);
}
Value Ptx::argument(int64_t offset, Type type) {
  return loadArgument(*this, type, at(args, offset));
}
Value Ptx::argument(Value offset, Type type) {
  return loadArgument(*this, type, at(args, offset));
}

/// `[$n+c]` for a pointer to shared memory whose constant part goes into the
/// instruction.
namespace {
struct SharedOperand {
  Value base; ///< i32.
  std::string text;
};
} // namespace
static SharedOperand sharedOperand(Ptx &b, Value pointer, int64_t n) {
  auto [base, offset] = splitOffset(pointer);
  std::string text = "[$" + std::to_string(n);
  if (offset)
    text += "+" + std::to_string(offset);
  return {b.address(base), text + "]"};
}

//===----------------------------------------------------------------------===//
// Within a warp
//===----------------------------------------------------------------------===//

static Value shuffle(Ptx &b, Value v, NVVM::ShflKind kind, Value by,
                     int64_t clamp) {
  return NVVM::ShflOp::create(b, v.getType(), b.i32(-1), v, by, b.i32(clamp),
                              kind, UnitAttr());
}
Value Ptx::shuffleXor(Value v, int64_t mask) {
  return shuffle(*this, v, NVVM::ShflKind::bfly, i32(mask), 31);
}
Value Ptx::shuffleIndex(Value v, Value lane) {
  return shuffle(*this, v, NVVM::ShflKind::idx, lane, 31);
}
Value Ptx::undefined() { return LLVM::UndefOp::create(*this, getF32Type()); }
Value Ptx::shuffleUp(Value v, int64_t delta) {
  return shuffle(*this, v, NVVM::ShflKind::up, i32(delta), 0);
}

static Values unpackStruct(Ptx &b, Value s, int64_t n) {
  Values out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(LLVM::ExtractValueOp::create(b, s, i));
  return out;
}
static Type structOf(Ptx &b, Type element, int64_t n) {
  return LLVM::LLVMStructType::getLiteral(b.getContext(),
                                          SmallVector<Type>(n, element));
}

Values Ptx::ldmatrix4(Value pointer, bool transposed) {
  auto [base, text] = sharedOperand(*this, pointer, 4);
  std::string code = std::string("ldmatrix.sync.aligned.m8n8.x4.") +
                     (transposed ? "trans." : "") +
                     "shared.b16 {$0, $1, $2, $3}, " + text + ";";
  return unpackStruct(*this,
                      assembly(code, "=r,=r,=r,=r,r,~{memory}", base,
                               structOf(*this, getI32Type(), 4), true),
                      4);
}
void Ptx::stmatrix4(Value pointer, ArrayRef<Value> tiles, bool transposed) {
  auto [base, text] = sharedOperand(*this, pointer, 0);
  std::string code = std::string("stmatrix.sync.aligned.m8n8.x4.") +
                     (transposed ? "trans." : "") + "shared.b16 " + text +
                     ", {$1, $2, $3, $4};";
  assembly(code, "r,r,r,r,r,~{memory}",
           {base, tiles[0], tiles[1], tiles[2], tiles[3]}, Type(), true);
}
Values Ptx::mma(ArrayRef<Value> a, Value b0, Value b1, ArrayRef<Value> c) {
  Values operands(a.begin(), a.end());
  operands.append({b0, b1});
  operands.append(c.begin(), c.end());
  return unpackStruct(
      *this,
      assembly("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
               "{$10, $11, $12, $13};",
               "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", operands,
               structOf(*this, getF32Type(), 4), false),
      4);
}
void Ptx::syncWarp() {
  assembly("bar.warp.sync 0xffffffff;", "~{memory}", {}, Type(), true);
}
Value Ptx::anyLane(Value condition) {
  Value bits = createOrFold<arith::ExtUIOp>(getI32Type(), condition);
  Value any = assembly("{ .reg .pred p; setp.ne.u32 p, $1, 0; "
                       "vote.sync.any.pred p, p, 0xffffffff; "
                       "selp.u32 $0, 1, 0, p; }",
                       "=r,r", bits, getI32Type(), true);
  return cmp(arith::CmpIPredicate::ne, any, i32(0));
}

//===----------------------------------------------------------------------===//
// Across warps
//===----------------------------------------------------------------------===//

void Ptx::barrier(Value id, int64_t threads) {
  assembly("bar.sync $0, " + std::to_string(threads) + ";", "r,~{memory}", id,
           Type(), true);
}
void Ptx::barrierArrive(Value id, int64_t threads) {
  assembly("bar.arrive $0, " + std::to_string(threads) + ";", "r,~{memory}", id,
           Type(), true);
}
void Ptx::barrierInit(Value mbar, int64_t arrivals) {
  auto [base, text] = sharedOperand(*this, mbar, 0);
  assembly("mbarrier.init.shared.b64 " + text + ", " +
               std::to_string(arrivals) + ";",
           "r,~{memory}", base, Type(), true);
}
void Ptx::fenceBarrierInit() {
  // Waiting threads see the init through the block barrier that follows; the
  // copy engine needs this.
  if (chip.hopper())
    assembly("fence.mbarrier_init.release.cluster;", "~{memory}", {}, Type(),
             true);
}
void Ptx::arrive(Value mbar) {
  auto [base, text] = sharedOperand(*this, mbar, 0);
  assembly("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, " + text + "; }",
           "r,~{memory}", base, Type(), true);
}
void Ptx::arriveExpect(Value mbar, Value bytes) {
  auto [base, text] = sharedOperand(*this, mbar, 0);
  assembly("mbarrier.arrive.expect_tx.shared::cta.b64 _, " + text + ", $1;",
           "r,r,~{memory}", {base, bytes}, Type(), true);
}
void Ptx::wait(Value mbar, Value parity) {
  auto [base, text] = sharedOperand(*this, mbar, 0);
  // test_wait.parity is there from sm_80 on; try_wait sleeps instead of
  // spinning. Leaving the loop by a branch, never by a trap: a trap makes
  // ptxas give up the larger register count of setmaxnreg.
  StringRef instruction = chip.hopper()
                              ? "mbarrier.try_wait.parity.shared::cta.b64"
                              : "mbarrier.test_wait.parity.shared.b64";
  std::string limit = chip.hopper() ? "1000000" : "100000000";
  std::string code =
      ("{ .reg .pred p, q; .reg .u32 n; mov.u32 n, 0; PLUM_WAIT_${:uid}: " +
       instruction + " p, " + text +
       ", $1; @p bra PLUM_DONE_${:uid}; add.u32 n, n, 1; setp.lt.u32 q, n, " +
       limit + "; @q bra PLUM_WAIT_${:uid}; PLUM_DONE_${:uid}: }")
          .str();
  assembly(code, "r,r,~{memory}", {base, parity}, Type(), true);
}
void Ptx::setMaxRegisters(bool increase, int64_t count) {
  assembly((Twine("setmaxnreg.") + (increase ? "inc" : "dec") +
            ".sync.aligned.u32 " + Twine(count) + ";")
               .str(),
           "~{memory}", {}, Type(), true);
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static Value address64(Ptx &b, Value globalPointer) {
  return LLVM::PtrToIntOp::create(b, b.getI64Type(), globalPointer);
}

void Ptx::copy16(Value sharedPointer, Value globalPointer, Value sourceBytes) {
  auto [base, text] = sharedOperand(*this, sharedPointer, 0);
  assembly("cp.async.cg.shared.global " + text + ", [$1], 16, $2;",
           "r,l,r,~{memory}",
           {base, address64(*this, globalPointer), sourceBytes}, Type(), true);
}
void Ptx::copyCommit() {
  assembly("cp.async.commit_group;", "~{memory}", {}, Type(), true);
}
void Ptx::copyWait(int64_t groupsLeft) {
  assembly("cp.async.wait_group " + std::to_string(groupsLeft) + ";",
           "~{memory}", {}, Type(), true);
}
void Ptx::copyArrive(Value mbar) {
  auto [base, text] = sharedOperand(*this, mbar, 0);
  assembly("cp.async.mbarrier.arrive.noinc.shared.b64 " + text + ";",
           "r,~{memory}", base, Type(), true);
}
void Ptx::bulkLoad(Value sharedPointer, Value globalPointer, int64_t bytes,
                   Value mbar) {
  auto [to, toText] = sharedOperand(*this, sharedPointer, 0);
  auto [bar, barText] = sharedOperand(*this, mbar, 2);
  assembly(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " +
          toText + ", [$1], " + std::to_string(bytes) + ", " + barText + ";",
      "r,l,r,~{memory}", {to, address64(*this, globalPointer), bar}, Type(),
      true);
}
void Ptx::bulkStore(Value globalPointer, Value sharedPointer, int64_t bytes) {
  auto [from, fromText] = sharedOperand(*this, sharedPointer, 1);
  assembly("cp.async.bulk.global.shared::cta.bulk_group [$0], " + fromText +
               ", " + std::to_string(bytes) + ";",
           "l,r,~{memory}", {address64(*this, globalPointer), from}, Type(),
           true);
}
void Ptx::bulkCommit() {
  assembly("cp.async.bulk.commit_group;", "~{memory}", {}, Type(), true);
}
void Ptx::bulkWaitRead(int64_t groupsLeft) {
  assembly("cp.async.bulk.wait_group.read " + std::to_string(groupsLeft) + ";",
           "~{memory}", {}, Type(), true);
}
void Ptx::bulkWait(int64_t groupsLeft) {
  assembly("cp.async.bulk.wait_group " + std::to_string(groupsLeft) + ";",
           "~{memory}", {}, Type(), true);
}
void Ptx::fenceAsync() {
  if (chip.hopper())
    assembly("fence.proxy.async.shared::cta;", "~{memory}", {}, Type(), true);
}

//===----------------------------------------------------------------------===//
// wgmma
//===----------------------------------------------------------------------===//

/// `text` with every value as an operand tied to a result: "=f,=f,0,1".
Values Ptx::through(StringRef text, ArrayRef<Value> values) {
  std::string outs, ins;
  SmallVector<Type> types;
  for (auto [i, v] : llvm::enumerate(values)) {
    outs += v.getType().isF32() ? "=f," : "=r,";
    ins += std::to_string(i) + ",";
    types.push_back(v.getType());
  }
  std::string constraints = outs + ins + "~{memory}";
  if (values.empty()) {
    assembly(text, constraints, {}, Type(), true);
    return {};
  }
  if (values.size() == 1)
    return {assembly(text, constraints, values, types[0], true)};
  Value s =
      assembly(text, constraints, values,
               LLVM::LLVMStructType::getLiteral(getContext(), types), true);
  return unpackStruct(*this, s, values.size());
}

Values Ptx::wgmmaFence(ArrayRef<Value> values) {
  return through("wgmma.fence.sync.aligned;", values);
}
void Ptx::wgmmaCommit() {
  assembly("wgmma.commit_group.sync.aligned;", "~{memory}", {}, Type(), true);
}
Values Ptx::wgmmaWait(int64_t groupsLeft, ArrayRef<Value> values) {
  return through("wgmma.wait_group.sync.aligned " + std::to_string(groupsLeft) +
                     ";",
                 values);
}
Values Ptx::wgmmaWaitAfter(Value first, ArrayRef<Value> values) {
  // A loop of one turn: what its condition is made of does not move into it.
  Values all{first};
  all.append(values.begin(), values.end());
  all = through("{ .reg .pred p; PLUM_WAIT_${:uid}: "
                "wgmma.wait_group.sync.aligned 0; setp.lt.f32 p, $0, "
                "0f00000000; @p bra PLUM_WAIT_${:uid}; }",
                all);
  all.erase(all.begin());
  return all;
}

/// "{$first, $first+1, ...}".
static std::string listOf(int64_t first, int64_t count) {
  std::string text = "{";
  for (int64_t i = 0; i < count; ++i)
    text += (i ? ", $" : "$") + std::to_string(first + i);
  return text + "}";
}

Values Ptx::wgmma(int64_t n, ArrayRef<Value> d, ArrayRef<Value> a,
                  Value descriptor, bool zero, bool transposed) {
  // One i64 is a descriptor of A, four i32 are A.
  const int64_t count = n / 2, lefts = a.size();
  const bool shared = lefts == 1;
  std::string code =
      "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) +
      "k16.f32.bf16.bf16 " + listOf(0, count) + ", " +
      (shared ? "$" + std::to_string(count) : listOf(count, lefts)) + ", $" +
      std::to_string(count + lefts) + ", " + (zero ? "0" : "1") + ", 1, 1, " +
      (shared ? "0, " : "") + (transposed ? "1" : "0") + ";";
  std::string constraints;
  for (int64_t i = 0; i < count; ++i)
    constraints += "=f,";
  constraints += shared ? "l,l" : "r,r,r,r,l";
  for (int64_t i = 0; i < count; ++i)
    constraints += "," + std::to_string(i);
  Values operands(a.begin(), a.end());
  operands.push_back(descriptor);
  operands.append(d.begin(), d.end());
  return unpackStruct(*this,
                      assembly(code, constraints, operands,
                               structOf(*this, getF32Type(), count), true),
                      count);
}
Values Ptx::wgmma(int64_t n, ArrayRef<Value> d, Value left, Value descriptor,
                  bool zero, bool transposed) {
  return wgmma(n, d, ArrayRef<Value>(left), descriptor, zero, transposed);
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

void Ptx::ifThen(Value condition, function_ref<void()> then) {
  auto op = scf::IfOp::create(*this, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(op.thenBlock());
  then();
}
Values Ptx::ifElse(Value condition, TypeRange types,
                   function_ref<Values()> then,
                   function_ref<Values()> otherwise) {
  auto op = scf::IfOp::create(*this, types, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(*this);
  // IfOp makes the terminator itself when there are no results.
  for (auto [block, body] : {std::pair(op.thenBlock(), then),
                             std::pair(op.elseBlock(), otherwise)}) {
    setInsertionPointToStart(block);
    Values results = body();
    if (!types.empty())
      scf::YieldOp::create(*this, results);
  }
  return Values(op.getResults());
}
void Ptx::loop(Value begin, Value end, int64_t step,
               function_ref<void(Value)> body) {
  auto op = scf::ForOp::create(*this, begin, end, i32(step));
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(op.getBody());
  body(op.getInductionVar());
}
Values Ptx::loop(Value begin, Value end, int64_t step, ValueRange init,
                 function_ref<Values(Value, ValueRange)> body) {
  if (init.empty()) {
    loop(begin, end, step, [&](Value i) { body(i, {}); });
    return {};
  }
  auto op = scf::ForOp::create(*this, begin, end, i32(step), init);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(op.getBody());
  Values next = body(op.getInductionVar(), op.getRegionIterArgs());
  scf::YieldOp::create(*this, next);
  return Values(op.getResults());
}
