// Growing states: rows are appended for a whole chunk, then attended.
// RUN: plum-opt %s --assoc-to-chunk=chunks=16 --cse | FileCheck %s

!L = !assoc.list<8, f32>

// CHECK-LABEL: func.func @attention_chunk16(
// CHECK-SAME: %[[T:[^:]*]]: index
// CHECK: scf.for %[[t:.*]] = %{{.*}} to %[[T]] {{.*}} iter_args(%[[L:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) -> (!assoc.list<8, f32>, tensor<?x8xf32>)
// CHECK: %[[X:.*]], %[[Q:.*]] = chunk.map
// CHECK: %[[L1:.*]] = chunk.append %[[L]], %[[X]] at %[[t]] of %[[T]]
// CHECK: chunk.attend own(%[[Q]] : tensor<16x8xf32>) keys(%[[L1]] : !assoc.list<8, f32>) values(%[[L1]] : !assoc.list<8, f32>)
assoc.layer @attention args [#assoc.arg<input "x">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%x: vector<8xf32>, %L: !L):
  %L1 = assoc.append %L, %x : !L
  %q = arith.addf %x, %x : vector<8xf32>
  %o = assoc.attend(%q) keys(%L1 : !L) values(%L1 : !L) : vector<8xf32>
  assoc.yield %o, %L1 : vector<8xf32>, !L
}

// Before its own row: the chunk's rows are appended first all the same, and a
// row sees one less.
// CHECK-LABEL: func.func @before_chunk16(
// CHECK: %[[L1:.*]] = chunk.append
// CHECK: chunk.attend(%{{.*}} : tensor<16x8xf32>) keys(%[[L1]]
assoc.layer @before args [#assoc.arg<input "x">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%x: vector<8xf32>, %L: !L):
  %o = assoc.attend(%x) keys(%L : !L) values(%L : !L) : vector<8xf32>
  %L1 = assoc.append %L, %x : !L
  assoc.yield %o, %L1 : vector<8xf32>, !L
}

// What is attended in one list is appended to the next, and read from a state
// of fixed size: three levels.
// CHECK-LABEL: func.func @levels_chunk16(
// CHECK: chunk.map
// CHECK: %[[A:.*]] = chunk.append
// CHECK: %[[O:.*]] = chunk.attend own(%{{.*}}) keys(%[[A]]
// CHECK: chunk.map 16 at %{{.*}} of %{{.*}}(%[[O]], %arg1 : tensor<16x8xf32>, tensor<?x8xf32>)
// CHECK: %[[B:.*]] = chunk.append
// CHECK: %[[P:.*]] = chunk.attend own(%{{.*}}) keys(%[[B]]
// CHECK: chunk.carry %{{.*}} values(%[[P]]
assoc.layer @levels args [#assoc.arg<input "x">, #assoc.arg<state "S">, #assoc.arg<state "B">,
    #assoc.arg<state "A">] outputs [] {
^bb0(%x: vector<8xf32>, %S: !assoc.state<8, 8, kv, f32, f32>, %B: !L, %A: !L):
  %A1 = assoc.append %A, %x : !L
  %o = assoc.attend(%x) keys(%A1 : !L) values(%A1 : !L) : vector<8xf32>
  %y = arith.addf %o, %o : vector<8xf32>
  %B1 = assoc.append %B, %y : !L
  %p = assoc.attend(%x) keys(%B1 : !L) values(%B1 : !L) : vector<8xf32>
  %S1 = assoc.step %S write keys(%x) values(%p) : !assoc.state<8, 8, kv, f32, f32>
  assoc.yield %S1, %B1, %A1 : !assoc.state<8, 8, kv, f32, f32>, !L, !L
}
