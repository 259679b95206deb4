// Updates become steps: what each one turns into, and where a step ends.
// RUN: plum-opt %s --pass-pipeline='builtin.module(assoc.layer(assoc-normalize))' | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>

// A decay and a write are one step.
// CHECK-LABEL: assoc.layer @decay_then_write
// CHECK: %[[S1:.*]] = assoc.step %S decay log(%a : vector<8xf32>) in <{{.*}}> write keys(%k) values(%v) :
// CHECK-NEXT: assoc.yield %[[S1]]
assoc.layer @decay_then_write args [#assoc.arg<input "a">, #assoc.arg<input "k">,
    #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: vector<8xf32>, %k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.decay %S by log %a : !S
  %S2 = assoc.add %S1, %k, %v : !S
  assoc.yield %S2 : !S
}

// A write before a decay is decayed too, so the decay begins a step.
// CHECK-LABEL: assoc.layer @decay_after_write
// CHECK: %[[S1:.*]] = assoc.step %S write keys(%k) values(%v) :
// CHECK: %[[S2:.*]] = assoc.step %[[S1]] decay log(%a : f32)
// CHECK: assoc.yield %[[S2]]
assoc.layer @decay_after_write args [#assoc.arg<input "a">, #assoc.arg<input "k">,
    #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.add %S, %k, %v : !S
  %S2 = assoc.gate %S1 by log %a : !S
  assoc.yield %S2 : !S
}

// A delta is an erase and a write along one key: read after the decay.
// CHECK-LABEL: assoc.layer @decay_then_delta
// CHECK: %[[C:.*]] = arith.negf %b : f32
// CHECK: %[[B:.*]] = vector.broadcast %b : f32 to vector<4xf32>
// CHECK: %[[U:.*]] = arith.mulf %[[B]], %v
// CHECK: assoc.step %S decay log(%a : vector<8xf32>) in <{{.*}}> erase along(%k) by(%[[C]]) at(%k) of(%S) decayed [true] write keys(%k) values(%[[U]]) :
assoc.layer @decay_then_delta args [#assoc.arg<input "a">, #assoc.arg<input "k">,
    #assoc.arg<input "v">, #assoc.arg<input "b">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: vector<8xf32>, %k: vector<8xf32>, %v: vector<4xf32>, %b: f32, %S: !S):
  %S1 = assoc.decay %S by log %a : !S
  %S2 = assoc.delta %S1, %k, %v, %b : !S
  assoc.yield %S2 : !S
}

// A delta reads what was written before it: two steps, none of them decayed.
// CHECK-LABEL: assoc.layer @delta_after_write
// CHECK: %[[S1:.*]] = assoc.step %S write keys(%k) values(%v) :
// CHECK: assoc.step %[[S1]] erase along(%k) by(%{{.*}}) at(%k) of(%[[S1]]) decayed [false] write
assoc.layer @delta_after_write args [#assoc.arg<input "k">, #assoc.arg<input "v">,
    #assoc.arg<input "b">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %b: f32, %S: !S):
  %S1 = assoc.add %S, %k, %v : !S
  %S2 = assoc.delta %S1, %k, %v, %b : !S
  assoc.yield %S2 : !S
}

// Writes that read nothing share a step.
// CHECK-LABEL: assoc.layer @two_writes
// CHECK: assoc.step %S write keys(%k, %l) values(%v, %v) :
// CHECK-NEXT: assoc.yield
assoc.layer @two_writes args [#assoc.arg<input "k">, #assoc.arg<input "l">,
    #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %l: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.add %S, %k, %v : !S
  %S2 = assoc.add %S1, %l, %v : !S
  assoc.yield %S2 : !S
}

// Two updates a token are two steps (DeltaProduct).
// CHECK-LABEL: assoc.layer @two_deltas
// CHECK: %[[S1:.*]] = assoc.step %S erase along(%k)
// CHECK: %[[S2:.*]] = assoc.step %[[S1]] erase along(%l)
// CHECK: assoc.yield %[[S2]]
assoc.layer @two_deltas args [#assoc.arg<input "k">, #assoc.arg<input "l">,
    #assoc.arg<input "v">, #assoc.arg<input "b">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %l: vector<8xf32>, %v: vector<4xf32>, %b: f32, %S: !S):
  %S1 = assoc.delta %S, %k, %v, %b : !S
  %S2 = assoc.delta %S1, %l, %v, %b : !S
  assoc.yield %S2 : !S
}
