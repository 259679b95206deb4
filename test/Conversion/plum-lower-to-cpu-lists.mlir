// Growing states on a CPU: rows behind those that there are, and a softmax that
// keeps the largest score so far.
// RUN: plum-opt %s --plum-lower-to-cpu='lanes=4 registers=16' | FileCheck %s --check-prefixes=STEP
// RUN: plum-opt %s --assoc-to-chunk=chunks=16 --plum-lower-to-cpu='lanes=4 registers=16' | FileCheck %s --check-prefixes=CHUNK

!L = !assoc.list<8, f32>

// The step form takes the rows where they lie.
// STEP-LABEL: func.func @plum_attention_step(
// STEP-DAG: llvm.getelementptr inbounds %arg0[%c48
// STEP-DAG: llvm.getelementptr inbounds %arg0[%c56
// STEP: scf.for
// STEP: llvm.store %{{.*}} : vector<8xf32>
// STEP: scf.for {{.*}} step %c64
// STEP: vector.reduction <add>
// STEP: vector.reduction <maximumf>
// STEP: math.exp %{{.*}} : f32
// STEP: math.exp %{{.*}} : vector<4xf32>

// The chunk form gathers blocks of 64 rows for products.
// CHUNK-LABEL: func.func @plum_attention_chunk16(
// CHUNK: scf.for {{.*}} step %c16
// CHUNK: scf.for {{.*}} step %c64
// CHUNK: vector.shuffle
// CHUNK: math.fma
// CHUNK: vector.reduction <maximumf>
// CHUNK: math.exp
assoc.layer @attention args [#assoc.arg<input "x">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%x: vector<8xf32>, %L: !L):
  %L1 = assoc.append %L, %x : !L
  %o = assoc.attend(%x) keys(%L1 : !L) values(%L1 : !L) : vector<8xf32>
  assoc.yield %o, %L1 : vector<8xf32>, !L
}
