// A function per chunk size, named after it; 64 by default.
// RUN: plum-opt %s --assoc-to-chunk=chunks=1,256 | FileCheck %s
// RUN: plum-opt %s --assoc-to-chunk | FileCheck %s --check-prefix=DEFAULT
// RUN: not plum-opt %s --assoc-to-chunk=chunks=48 2>&1 | FileCheck %s --check-prefix=SIZE48
// RUN: not plum-opt %s --assoc-to-chunk=chunks=0 2>&1 | FileCheck %s --check-prefix=SIZE0
// RUN: not plum-opt %s --assoc-to-chunk=chunks=64,512 2>&1 | FileCheck %s --check-prefix=SIZE512

// SIZE48: error: expects a chunk size that is a power of two from 1 to 256, got 48
// SIZE0: error: expects a chunk size that is a power of two from 1 to 256, got 0
// SIZE512: error: expects a chunk size that is a power of two from 1 to 256, got 512

!S = !assoc.state<8, 4, kv, f32, f32>

// One end of the dial: C = 1 is the recurrence.
// CHECK: assoc.layer @add
// CHECK-DAG: func.func @add_chunk256({{.*}} attributes {plum.chunk = 256 : i64, plum.layer = @add}
// CHECK-DAG: func.func @add_chunk1({{.*}} attributes {plum.chunk = 1 : i64, plum.layer = @add}
// CHECK-DAG: chunk.scores {{.*}} -> tensor<1x1xf32>
// CHECK-DAG: chunk.scores {{.*}} -> tensor<256x256xf32>
// DEFAULT: func.func @add_chunk64(
// DEFAULT-NOT: func.func
assoc.layer @add args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1 : vector<4xf32>, !S
}
