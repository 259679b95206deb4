// What has no chunk kernels for a GPU is said at the function, in terms of the
// layer.
// RUN: plum-opt %s --phase-chunk=chunks=32 --phase-plan --chunk-to-tile -split-input-file -verify-diagnostics

!S = !assoc.state<32, 64, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: more than one matrix state}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @two_states args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">, #assoc.arg<state "T">] outputs [] {
^bb0(%k: vector<32xf32>, %v: vector<64xf32>, %S: !S, %T: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %T1 = assoc.step %T write keys(%k) values(%v) : !S
  assoc.yield %S1, %T1 : !S, !S
}

// -----

!S = !assoc.state<32, 1, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: no state that is a matrix}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @only_vector args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs [] {
^bb0(%k: vector<32xf32>, %v: vector<1xf32>, %S: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  assoc.yield %S1 : !S
}

// -----

!S = !assoc.state<272, 64, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: key dim = 272 (a multiple of 16, at most 256)}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @large_key args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<272xf32>, %k: vector<272xf32>, %v: vector<64xf32>, %S: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %o = assoc.read %S1 at %q : !S
  assoc.yield %o, %S1 : vector<64xf32>, !S
}

// -----

!S = !assoc.state<32, 40, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: value dim = 40 (a multiple of 16, at most 256)}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @odd_value args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xf32>, %k: vector<32xf32>, %v: vector<40xf32>, %S: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %o = assoc.read %S1 at %q : !S
  assoc.yield %o, %S1 : vector<40xf32>, !S
}

// -----

!S = !assoc.state<32, 64, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: chunk = 32 (a multiple of 16, at most 21)}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @three_rows args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%k: vector<32xf32>, %v: vector<64xf32>, %S: !S):
  %minus = arith.constant -1.0 : f32
  %S1 = assoc.step %S erase along(%k) by(%minus) at(%k) of(%S) decayed [false] write keys(%k) values(%v) : !S
  %S2 = assoc.step %S1 erase along(%k) by(%minus) at(%k) of(%S1) decayed [false] write keys(%k) values(%v) : !S
  %S3 = assoc.step %S2 erase along(%k) by(%minus) at(%k) of(%S2) decayed [false] write keys(%k) values(%v) : !S
  %o = assoc.read %S3 at %k : !S
  assoc.yield %o, %S3 : vector<64xf32>, !S
}

// -----

!S = !assoc.state<32, 64, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: updates of one token that do not match each other}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @one_erases args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "a">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xf32>, %k: vector<32xf32>, %v: vector<64xf32>, %a: f32, %S: !S):
  %minus = arith.constant -1.0 : f32
  %S1 = assoc.step %S erase along(%k) by(%minus) at(%k) of(%S) decayed [false] write keys(%k) values(%v) : !S
  %S2 = assoc.step %S1 decay log(%a : f32) write keys(%q) values(%v) : !S
  %o = assoc.read %S2 at %q : !S
  assoc.yield %o, %S2 : vector<64xf32>, !S
}

// -----

!S = !assoc.state<32, 64, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: updates of one token that do not match each other}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @read_between args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xf32>, %k: vector<32xf32>, %v: vector<64xf32>, %S: !S):
  %minus = arith.constant -1.0 : f32
  %S1 = assoc.step %S erase along(%k) by(%minus) at(%k) of(%S) decayed [false] write keys(%k) values(%v) : !S
  %S2 = assoc.step %S1 erase along(%q) by(%minus) at(%q) of(%S1) decayed [false] write keys(%q) values(%v) : !S
  %o = assoc.read %S1 at %q : !S
  assoc.yield %o, %S2 : vector<64xf32>, !S
}

// -----

!S = !assoc.state<32, 64, kv, f32, f32>
!z = !assoc.state<32, 1, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: a vector state that decays in another way than the matrix}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @two_decays args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "a">, #assoc.arg<state "S">, #assoc.arg<state "z">] outputs ["o"] {
^bb0(%k: vector<32xf32>, %v: vector<64xf32>, %a: f32, %S: !S, %z: !z):
  %one = arith.constant dense<1.0> : vector<1xf32>
  %S1 = assoc.step %S decay log(%a : f32) write keys(%k) values(%v) : !S
  %z1 = assoc.step %z write keys(%k) values(%one) : !z
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1, %z1 : vector<64xf32>, !S, !z
}

// -----

!S = !assoc.state<32, 64, kv, f32, f32>
!z = !assoc.state<32, 1, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: a vector state beside a matrix that is erased from}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @erased args [#assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">, #assoc.arg<state "z">] outputs ["o"] {
^bb0(%k: vector<32xf32>, %v: vector<64xf32>, %S: !S, %z: !z):
  %one = arith.constant dense<1.0> : vector<1xf32>
  %minus = arith.constant -1.0 : f32
  %S1 = assoc.step %S erase along(%k) by(%minus) at(%k) of(%S) decayed [false] write keys(%k) values(%v) : !S
  %z1 = assoc.step %z write keys(%k) values(%one) : !z
  %o = assoc.read %S1 at %k : !S
  assoc.yield %o, %S1, %z1 : vector<64xf32>, !S, !z
}

// -----

!S = !assoc.state<32, 64, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: an output that reads both the state and rows of the tokens' maths}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @residual args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xf32>, %k: vector<32xf32>, %v: vector<64xf32>, %S: !S):
  %w = math.absf %v : vector<64xf32>
  %S1 = assoc.step %S write keys(%k) values(%w) : !S
  %o = assoc.read %S1 at %q : !S
  %y = arith.addf %o, %w : vector<64xf32>
  assoc.yield %y, %S1 : vector<64xf32>, !S
}

// -----

!S = !assoc.state<32, 64, kv, f32, f32>
// expected-warning @below {{no chunk kernels for this layer on a GPU: an output that reads both the state and an input of one number a token}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @scaled args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "v">, #assoc.arg<input "g">, #assoc.arg<state "S">] outputs ["o"] {
^bb0(%q: vector<32xf32>, %k: vector<32xf32>, %v: vector<64xf32>, %g: f32, %S: !S):
  %S1 = assoc.step %S write keys(%k) values(%v) : !S
  %o = assoc.read %S1 at %q : !S
  %g64 = vector.broadcast %g : f32 to vector<64xf32>
  %y = arith.mulf %o, %g64 : vector<64xf32>
  assoc.yield %y, %S1 : vector<64xf32>, !S
}
