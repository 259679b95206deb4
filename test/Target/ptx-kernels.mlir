// Kernels are compiled side by side, and their PTX is one text: what it begins
// with stands there once, and the kernels in the order of the module.
// RUN: plum-opt --emit-ptx=sm_80 %s | FileCheck %s
// RUN: plum-opt --emit-llvm=sm_80 %s | FileCheck %s --check-prefix=IR

// CHECK: .version
// CHECK: .extern .shared .align 1024 .b8 plum_shared[];
// CHECK-NOT: .version
// CHECK-NOT: .extern
// CHECK: .visible .entry first(
// CHECK: st.shared.b32
// CHECK-NOT: .version
// CHECK-NOT: .extern
// CHECK: .visible .entry second(
// CHECK-NOT: .version
// CHECK-NOT: .extern
// CHECK: .visible .entry third(
// CHECK: st.shared.b32

// IR: define ptx_kernel void @first(
// IR: define ptx_kernel void @second(
// IR: define ptx_kernel void @third(

llvm.mlir.global external @plum_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

llvm.func @first() attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %shared = llvm.mlir.addressof @plum_shared : !llvm.ptr<3>
  llvm.store %tid, %shared : i32, !llvm.ptr<3>
  llvm.return
}

llvm.func @second() attributes {nvvm.kernel} {
  llvm.return
}

llvm.func @third() attributes {nvvm.kernel} {
  %one = llvm.mlir.constant(1 : i32) : i32
  %shared = llvm.mlir.addressof @plum_shared : !llvm.ptr<3>
  llvm.store %one, %shared : i32, !llvm.ptr<3>
  llvm.return
}
