// States that something reads have to exist; erases may read older ones.
// RUN: plum-opt %s --pass-pipeline='builtin.module(assoc.layer(assoc-normalize))' | FileCheck %s

!S = !assoc.state<8, 4, kv, f32, f32>

// An output that reads between two writes cuts the step in two.
// CHECK-LABEL: assoc.layer @read_of_a_middle_state
// CHECK: %[[S1:.*]] = assoc.step %S write keys(%k) values(%v) :
// CHECK-DAG: %[[S2:.*]] = assoc.step %[[S1]] write keys(%l) values(%v) :
// CHECK-DAG: %[[O:.*]] = assoc.read %[[S1]] at %k
// CHECK: assoc.yield %[[O]], %[[S2]]
assoc.layer @read_of_a_middle_state args [#assoc.arg<input "k">, #assoc.arg<input "l">,
    #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%k: vector<8xf32>, %l: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.add %S, %k, %v : !S
  %o = assoc.read %S1 at %k : !S
  %S2 = assoc.add %S1, %l, %v : !S
  assoc.yield %o, %S2 : vector<4xf32>, !S
}

// Reading the state before the token cuts nothing.
// CHECK-LABEL: assoc.layer @read_before_the_update
// CHECK: assoc.read %S at %k
// CHECK: assoc.step %S decay log(%a : f32) in <{{.*}}> write keys(%k) values(%v) :
assoc.layer @read_before_the_update args [#assoc.arg<input "a">, #assoc.arg<input "k">,
    #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%a: f32, %k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %o = assoc.read %S at %k : !S
  %S1 = assoc.gate %S by log %a : !S
  %S2 = assoc.add %S1, %k, %v : !S
  assoc.yield %o, %S2 : vector<4xf32>, !S
}

// RWKV-7: the erase reads the state as the step found it, before its decay.
// CHECK-LABEL: assoc.layer @erase_before_the_decay
// CHECK: assoc.step %S decay log(%a : vector<8xf32>) in <{{.*}}> erase along(%e) by(%c) at(%f) of(%S) decayed [false] :
assoc.layer @erase_before_the_decay args [#assoc.arg<input "a">, #assoc.arg<input "e">,
    #assoc.arg<input "f">, #assoc.arg<input "c">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: vector<8xf32>, %e: vector<8xf32>, %f: vector<8xf32>, %c: f32, %S: !S):
  %S1 = assoc.decay %S by log %a : !S
  %S2 = assoc.erase %S1 along %e by %c at %f of %S : !S
  assoc.yield %S2 : !S
}

// Two erases of the decayed state, and a write, are still one step.
// CHECK-LABEL: assoc.layer @two_erases_of_one_state
// CHECK: assoc.step %S decay log(%a : f32) in <{{.*}}> erase along(%e, %f) by(%c, %c) at(%f, %e) of(%S, %S) decayed [true, true] write keys(%e) values(%v) :
// CHECK-NEXT: assoc.yield
assoc.layer @two_erases_of_one_state args [#assoc.arg<input "a">, #assoc.arg<input "e">,
    #assoc.arg<input "f">, #assoc.arg<input "c">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%a: f32, %e: vector<8xf32>, %f: vector<8xf32>, %c: f32, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.gate %S by log %a : !S
  %S2 = assoc.erase %S1 along %e by %c at %f of %S1 : !S
  %S3 = assoc.erase %S2 along %f by %c at %e of %S1 : !S
  %S4 = assoc.add %S3, %e, %v : !S
  assoc.yield %S4 : !S
}

// An erase of a state in the middle of a step makes that state a cut.
// CHECK-LABEL: assoc.layer @erase_of_an_older_state
// CHECK: %[[S1:.*]] = assoc.step %S write keys(%e) values(%v) :
// CHECK: assoc.step %[[S1]] erase along(%e) by(%c) at(%f) of(%[[S1]]) decayed [false] write keys(%f) values(%v) :
assoc.layer @erase_of_an_older_state args [#assoc.arg<input "e">, #assoc.arg<input "f">,
    #assoc.arg<input "c">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%e: vector<8xf32>, %f: vector<8xf32>, %c: f32, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.add %S, %e, %v : !S
  %S2 = assoc.add %S1, %f, %v : !S
  %S3 = assoc.erase %S2 along %e by %c at %f of %S1 : !S
  assoc.yield %S3 : !S
}

// A map ends a chain and begins the next.
// CHECK-LABEL: assoc.layer @map_between_writes
// CHECK: %[[S1:.*]] = assoc.step %S write keys(%k) values(%v) :
// CHECK: %[[S2:.*]] = assoc.map %[[S1]], (%[[S1]] :
// CHECK: assoc.step %[[S2]] write keys(%k) values(%v) :
assoc.layer @map_between_writes args [#assoc.arg<input "k">, #assoc.arg<input "v">,
    #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  %S1 = assoc.add %S, %k, %v : !S
  %S2 = assoc.map %S1, (%S1 : !S) columns() {
  ^bb0(%row: vector<4xf32>):
    %t = math.tanh %row : vector<4xf32>
    assoc.yield %t : vector<4xf32>
  } : !S
  %S3 = assoc.add %S2, %k, %v : !S
  assoc.yield %S3 : !S
}
