// Several states: taken in the order in which they read one another.
// RUN: plum-opt %s --assoc-to-chunk=chunks=16 --cse | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>
!R = !assoc.state<4, 2, kv, f32, f32>

// What is read from S is the key that R writes along: R comes second, though
// it is declared first. Its rows are made from the O of S.
// CHECK-LABEL: func.func @cascade_chunk16(
// CHECK: chunk.map
// CHECK: %[[O:.*]] = chunk.matmul {{.*}} onto(%{{.*}} : tensor<16x4xf32>)
// CHECK: %[[K:.*]], %{{.*}} = chunk.map 16 at %{{.*}} of %{{.*}}(%[[O]], %{{.*}} : tensor<16x4xf32>, tensor<?x2xf32>)
// CHECK: math.tanh
// CHECK-DAG: %[[S1:.*]] = chunk.carry {{.*}} : tensor<8x4xf32>
// CHECK-DAG: %[[R1:.*]] = chunk.carry %{{.*}} keys(%[[K]] : tensor<16x4xf32>) {{.*}} : tensor<4x2xf32>
// CHECK: scf.yield %[[R1]], %[[S1]] : tensor<4x2xf32>, tensor<8x4xf32>
assoc.layer @cascade args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "w">,
    #assoc.arg<state "R">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %w: vector<2xf32>, %R: !R, %S: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %o = assoc.read %S1 at %k : !S
  %t = math.tanh %o : vector<4xf32>
  %R1 = assoc.step %R write keys(%t) values(%w) : !R
  assoc.yield %R1, %S1 : !R, !S
}

// A state that no step touches passes through.
// CHECK-LABEL: func.func @untouched_chunk16(
// CHECK: iter_args(%[[S:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) -> (tensor<8x4xf32>, tensor<?x4xf32>)
// CHECK: %[[O:.*]] = chunk.read %[[S]]
// CHECK-NOT: chunk.carry
// CHECK: scf.yield %[[S]], %{{.*}}
assoc.layer @untouched args [#assoc.arg<input "k">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%k: vector<8xf32>, %S: !S):
  %o = assoc.read %S at %k : !S
  assoc.yield %o, %S : vector<4xf32>, !S
}

// What depends on params alone is computed once, before the loop.
// CHECK-LABEL: func.func @hoisted_chunk16(
// CHECK: %[[G:.*]] = math.exp %{{.*}} : f32
// CHECK: scf.for
// CHECK-NOT: math.exp
// CHECK: chunk.map {{.*}}()
// CHECK-NEXT: chunk.yield %[[G]] : f32
assoc.layer @hoisted args [#assoc.arg<param "g">, #assoc.arg<state "S">] outputs [] {
^bb0(%g: f32, %S: !S):
  %e = math.exp %g : f32
  %S1 = assoc.step %S decay linear(%e : f32) : !S
  assoc.yield %S1 : !S
}
