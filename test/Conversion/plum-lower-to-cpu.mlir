// A planned function becomes a kernel that knows its workspace and products,
// its layer a step kernel; nothing of assoc, chunk or tensor is left.
// RUN: plum-opt %s --phase-chunk=chunks=16 --phase-plan --plum-lower-to-cpu='lanes=8 registers=16' -o %t
// RUN: FileCheck %s < %t
// RUN: FileCheck %s --check-prefix=LEFT < %t

// LEFT-NOT: {{assoc\.(layer|step|read|map)|chunk\.[a-z]+ |tensor<|memref|alloc|call @}}

// CHECK-LABEL: func.func @plum_kda_step(%{{.*}}: !llvm.ptr)
// CHECK-SAME: plum.layer = @kda, plum.matmuls = [{{.*}}], plum.workspace_bytes = {{[0-9]+}} : i64}
// The loop over tokens, and rows of K channels.
// CHECK: scf.for
// CHECK: return

// CHECK-LABEL: func.func @plum_kda_chunk16(%{{.*}}: !llvm.ptr)
// CHECK-SAME: plum.chunk = 16 : i64, plum.layer = @kda
// CHECK-SAME: plum.matmuls = [{k = 8 : i64, m = 16 : i64, n = 16 : i64, what = "scores"}
// CHECK-SAME: {k = 8 : i64, m = 16 : i64, n = 4 : i64, what = "read"}
// CHECK-SAME: {k = 16 : i64, m = 16 : i64, n = 4 : i64, what = "matmul"}
// CHECK-SAME: {k = 16 : i64, m = 8 : i64, n = 4 : i64, what = "carry"}
// CHECK-SAME: plum.workspace_bytes = {{[1-9][0-9]*}} : i64
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> i64
// CHECK: scf.for
// CHECK: math.fma {{.*}} : vector<8xf32>
// CHECK: llvm.store
// CHECK: return
!S = !assoc.state<8, 4, kv, f32, f32>
assoc.layer @kda args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "u">,
    #assoc.arg<input "c">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%a: vector<8xf32>, %k: vector<8xf32>, %u: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : vector<8xf32>) in <-5.0, 0.0>
      erase along(%k) by(%c) at(%k) of(%S) decayed [true] write keys(%k) values(%u) : !S
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1 : vector<4xf32>, !S
}
