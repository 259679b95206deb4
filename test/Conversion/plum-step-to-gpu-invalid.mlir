// What has no step kernel for a GPU is said at the op.
// RUN: plum-opt %s --plum-step-to-gpu -split-input-file -verify-diagnostics

!S = !assoc.state<8, 4, kv, f32, f32>
assoc.layer @not_normal args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<8xf32>, %v: vector<4xf32>, %S: !S):
  // expected-error @below {{'assoc.add' op is not in normal form}}
  %S1 = assoc.add %S, %k, %v : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<4, 4, kv, f32, f32>
assoc.layer @product args [#assoc.arg<state "S">] outputs [] {
^bb0(%S: !S):
  %S1 = assoc.map %S, (%S : !S) columns() {
  ^bb0(%row: vector<4xf32>):
    // expected-error @below {{'assoc.read' op of every row has no step kernel for a GPU}}
    %y = assoc.read %S at %row : !S
    assoc.yield %y : vector<4xf32>
  } : !S
  assoc.yield %S1 : !S
}

// -----

assoc.layer @sine args [#assoc.arg<input "x">] outputs ["y"] {
^bb0(%x: vector<4xf32>):
  // expected-error @below {{'math.sin' op has no step kernel for a GPU}}
  %y = math.sin %x : vector<4xf32>
  assoc.yield %y : vector<4xf32>
}

// -----

!S = !assoc.state<512, 512, kv, f32, f32>
// expected-error @below {{'assoc.layer' op has no step kernel for a GPU: a thread would hold 512 elements of its states, at most 64 fit}}
// expected-note @below {{one block holds all columns, because a row of V is reduced or read with}}
assoc.layer @wide args [#assoc.arg<input "q">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<512xf32>, %S: !S):
  %x = assoc.read %S at %q : !S
  %o = vector.reduction <add>, %x : vector<512xf32> into f32
  assoc.yield %o, %S : f32, !S
}

// -----

!S = !assoc.state<4, 4, kv, f32, f32>
// expected-error @below {{'assoc.layer' op has 33 tensors, a GPU kernel takes at most 32}}
assoc.layer @many args [#assoc.arg<state "a">, #assoc.arg<state "b">, #assoc.arg<state "c">, #assoc.arg<state "d">,
    #assoc.arg<state "e">, #assoc.arg<state "f">, #assoc.arg<state "g">, #assoc.arg<state "h">, #assoc.arg<state "i">,
    #assoc.arg<state "j">, #assoc.arg<state "k">] outputs [] {
^bb0(%a: !S, %b: !S, %c: !S, %d: !S, %e: !S, %f: !S, %g: !S, %h: !S, %i: !S, %j: !S, %k: !S):
  assoc.yield %a, %b, %c, %d, %e, %f, %g, %h, %i, %j, %k : !S, !S, !S, !S, !S, !S, !S, !S, !S, !S, !S
}

// -----

// expected-error @below {{'assoc.layer' op has growing state 1, which plum-attend-to-gpu lowers}}
assoc.layer @list args [#assoc.arg<input "x">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%x: vector<8xf32>, %L: !assoc.list<8, f32>):
  %L1 = assoc.append %L, %x : !assoc.list<8, f32>
  %o = assoc.attend(%x) keys(%L1 : !assoc.list<8, f32>) values(%L1 : !assoc.list<8, f32>) : vector<8xf32>
  assoc.yield %o, %L1 : vector<8xf32>, !assoc.list<8, f32>
}
