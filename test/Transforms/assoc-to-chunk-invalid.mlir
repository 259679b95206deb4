// Layers without a chunkwise form keep their step form, and are told why.
// RUN: plum-opt %s --assoc-to-chunk=chunks=16,64 -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-NOT: func.func

!S = !assoc.state<8, 4, kv, f32, f32>
// CHECK-LABEL: assoc.layer @squash
assoc.layer @squash args [#assoc.arg<state "S">] outputs [] {
^bb0(%S: !S):
  // expected-warning @below {{layer 'squash' has no chunkwise form: this is neither a step nor a read; it runs in the step form}}
  %S1 = assoc.map %S, (%S : !S) columns() {
  ^bb0(%row: vector<4xf32>):
    %t = math.tanh %row : vector<4xf32>
    assoc.yield %t : vector<4xf32>
  } : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<8, 8, kv, f32, f32>
// Each state writes what the other one reads.
// CHECK-LABEL: assoc.layer @circle
// expected-warning @below {{layer 'circle' has no chunkwise form: what a state writes depends on what it reads other than by an erase; it runs in the step form}}
assoc.layer @circle args [#assoc.arg<input "k">, #assoc.arg<state "S">, #assoc.arg<state "R">] outputs [] {
^bb0(%k: vector<8xf32>, %S: !S, %R: !S):
  %s = assoc.read %S at %k : !S
  %r = assoc.read %R at %k : !S
  %S1 = assoc.step %S write keys(%k) values(%r) : !S
  %R1 = assoc.step %R write keys(%k) values(%s) : !S
  assoc.yield %S1, %R1 : !S, !S
}

// -----

!S = !assoc.state<8, 8, kv, f32, f32>
// A state that writes along what it reads is not linear in itself.
// CHECK-LABEL: assoc.layer @self
// expected-warning @below {{layer 'self' has no chunkwise form}}
assoc.layer @self args [#assoc.arg<input "k">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %S: !S):
  %r = assoc.read %S at %k : !S
  %S1 = assoc.step %S write keys(%r) values(%k) : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<8, 1, kv, f32, f32>
// CHECK-LABEL: assoc.layer @whole
assoc.layer @whole args [#assoc.arg<state "h">] outputs ["o"] {
^bb0(%h: !S):
  // expected-warning @below {{layer 'whole' has no chunkwise form: this is neither a step nor a read}}
  %o = assoc.whole %h : !S
  assoc.yield %o, %h : vector<8xf32>, !S
}
