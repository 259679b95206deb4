// What cannot become PTX: the reason, exit 1, and nothing on stdout.
// RUN: not plum-opt --emit-ptx=sm_70 %s 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not plum-opt --emit-ptx=sm_80 %s -o %t.ptx 2>&1 | FileCheck %s
// RUN: not ls %t.ptx
// RUN: env PLUM_PTXAS=%t.none not plum-opt --emit-resources=sm_80 %S/ptx.mlir 2>&1 | FileCheck %s --check-prefix=NONE

// CHIP: ptx-invalid.mlir: error: unknown chip 'sm_70', expected sm_80, sm_90a
// CHECK: ptx-invalid.mlir: error: the kernels have no LLVM IR: {{.*}} for op: func.func
// NONE: PLUM_PTXAS: error: '{{.*}}.none' is not a program that can be run
func.func @not_a_kernel() {
  return
}
