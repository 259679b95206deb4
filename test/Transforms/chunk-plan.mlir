// The split follows from what depends on the loop's states.
// RUN: plum-opt %s --pass-pipeline='builtin.module(assoc-to-chunk{chunks=16},cse,func.func(chunk-plan))' | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>
!R = !assoc.state<4, 2, kv, f32, f32>

// KDA: the inverse and all scores are prepared; reads, U, O and S' are scanned.
// CHECK-LABEL: func.func @kda_chunk16(
// CHECK: scf.for
// CHECK-NEXT: %{{.*}} = chunk.stage prepare {
// CHECK-NOT: chunk.read
// CHECK: chunk.map
// CHECK: chunk.cumsum
// CHECK: chunk.scores
// CHECK: chunk.inverse
// CHECK: chunk.scores
// CHECK-NOT: chunk.matmul
// CHECK: chunk.yield
// CHECK: chunk.stage scan {
// CHECK-NOT: chunk.scores
// CHECK-NOT: chunk.inverse
// CHECK: chunk.read
// CHECK: chunk.scale
// CHECK: arith.addf
// CHECK: chunk.matmul
// CHECK: chunk.read
// CHECK: chunk.matmul
// CHECK: chunk.carry
// CHECK: chunk.output
// CHECK: chunk.yield %{{.*}}, %{{.*}} : tensor<8x4xf32>, tensor<?x4xf32>
// CHECK-NEXT: } : tensor<8x4xf32>, tensor<?x4xf32>
// CHECK-NEXT: scf.yield
assoc.layer @kda args [#assoc.arg<input "a">, #assoc.arg<input "k">, #assoc.arg<input "u">,
    #assoc.arg<input "c">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%a: vector<8xf32>, %k: vector<8xf32>, %u: vector<4xf32>, %c: f32, %S: !S):
  %S1 = assoc.step %S decay log(%a : vector<8xf32>) in <-5.0, 0.0>
      erase along(%k) by(%c) at(%k) of(%S) decayed [true] write keys(%k) values(%u) : !S
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1 : vector<4xf32>, !S
}

// Outputs are carried by the loop, so they are written in the scan even where
// there is no state.
// CHECK-LABEL: func.func @stateless_chunk16(
// CHECK-NOT: chunk.stage prepare
// CHECK: chunk.stage scan {
// CHECK: chunk.output
assoc.layer @stateless args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: vector<8xf32>):
  %t = math.tanh %x : vector<8xf32>
  assoc.yield %t : vector<8xf32>
}

// In a cascade the second state's rows are made of what the first one reads:
// they are scanned, and so are their scores.
// CHECK-LABEL: func.func @cascade_chunk16(
// CHECK: chunk.stage prepare {
// CHECK: chunk.scores {{.*}} tensor<16x8xf32>, tensor<16x8xf32>
// CHECK: chunk.stage scan {
// CHECK-DAG: chunk.map
// CHECK-DAG: chunk.scores {{.*}} tensor<16x4xf32>, tensor<16x4xf32>
// CHECK-DAG: chunk.carry {{.*}} : tensor<8x4xf32>
// CHECK-DAG: chunk.carry {{.*}} : tensor<4x2xf32>
assoc.layer @cascade args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "w">,
    #assoc.arg<state "S">, #assoc.arg<state "R">] outputs ["o"] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %w: vector<2xf32>, %S: !S, %R: !R):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %r = assoc.read %S1 at %k : !S
  %t = math.tanh %r : vector<4xf32>
  %R1 = assoc.step %R write keys(%t) values(%w) : !R
  %o = assoc.read %R1 at %t : !R
  assoc.yield %o, %S1, %R1 : vector<2xf32>, !S, !R
}

// Functions that no layer made are left alone.
// CHECK-LABEL: func.func @other
// CHECK-NOT: chunk.stage
func.func @other(%n: index, %x: f32) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> f32 {
    %t = arith.addf %s, %x : f32
    scf.yield %t : f32
  }
  return %y : f32
}
