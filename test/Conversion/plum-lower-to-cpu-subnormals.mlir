// On an x86 a kernel flushes subnormals, and gives back the caller's mode.
// RUN: plum-opt %s --plum-lower-to-cpu='x86=true' | FileCheck %s
// RUN: plum-opt %s --plum-lower-to-cpu='x86=false' | FileCheck %s --check-prefix=OTHER

// CHECK-LABEL: func.func @plum_double_step(
// CHECK: llvm.call_intrinsic "llvm.x86.sse.stmxcsr"(%[[OLD:.*]]) :
// CHECK: arith.ori
// CHECK: llvm.call_intrinsic "llvm.x86.sse.ldmxcsr"(%[[NEW:.*]]) :
// CHECK: scf.for
// CHECK: llvm.call_intrinsic "llvm.x86.sse.ldmxcsr"(%[[OLD]]) :
// CHECK-NEXT: return

// OTHER-NOT: mxcsr
assoc.layer @double args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: f32):
  %y = arith.addf %x, %x : f32
  assoc.yield %y : f32
}
