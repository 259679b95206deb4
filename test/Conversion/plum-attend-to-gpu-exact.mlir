// Rows that bf16 does not hold: step kernels in plain fp32.
// RUN: plum-opt %s --plum-attend-to-gpu | FileCheck %s --implicit-check-not=mma --implicit-check-not=ldmatrix --implicit-check-not=cp.async

// CHECK: llvm.func @plum_exact_carry(
// CHECK: llvm.func @plum_exact_append(
// CHECK: llvm.func @plum_exact_attend(
// CHECK-SAME: plum.blob_bytes = 1152{{.*}}plum.form = "step"{{.*}}plum.grid = "tokens"{{.*}}plum.role = "attend"{{.*}}plum.slices = 16{{.*}}plum.threads = 128
// Heads, and of each the keys: four at a time in f32 or bf16, 16 apart.
// CHECK-NOT: cvt.rn.bf16x2
// CHECK: scf.for
// CHECK: scf.for {{.*}} step %c64
// CHECK: scf.if
// CHECK-COUNT-8: llvm.load {{.*}} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: } else {
// CHECK-COUNT-4: llvm.load {{.*}} : !llvm.ptr<1> -> vector<4xi32>
// CHECK-COUNT-12: nvvm.shfl.sync bfly
// CHECK-COUNT-5: ex2.approx.ftz.f32
// CHECK: scf.yield
// Four groups of a warp, then four warps.
// CHECK: nvvm.shfl.sync bfly
// CHECK-COUNT-2: "bar.sync $0, 128;"
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> vector<2xf32>
// CHECK-NOT: cvt.rn.bf16x2
// CHECK: llvm.func @plum_exact_merge(
assoc.layer @exact args [#assoc.arg<param "scale">, #assoc.arg<input "q">, #assoc.arg<input "k">,
    #assoc.arg<input "v">, #assoc.arg<state "keys">, #assoc.arg<state "values">] outputs ["o"] {
^bb0(%scale: f32, %q: vector<32xf32>, %k: vector<32xf32>, %v: vector<16xf32>,
     %keys: !assoc.list<32, f32>, %values: !assoc.list<16, f32>):
  %K = assoc.append %keys, %k : !assoc.list<32, f32>
  %V = assoc.append %values, %v : !assoc.list<16, f32>
  %0 = vector.broadcast %scale : f32 to vector<32xf32>
  %1 = arith.mulf %0, %q : vector<32xf32>
  %o = assoc.attend(%1) keys(%K : !assoc.list<32, f32>) values(%V : !assoc.list<16, f32>) : vector<32xf32>
  assoc.yield %o, %K, %V : vector<16xf32>, !assoc.list<32, f32>, !assoc.list<16, f32>
}
