// What has no kernels beside a state that grows is said where it is.
// RUN: plum-opt %s --plum-attend-to-gpu='chunks=64' -split-input-file -verify-diagnostics

!S = !assoc.state<16, 16, kv, f32, f32>
assoc.layer @both args [#assoc.arg<input "k">, #assoc.arg<state "L">, #assoc.arg<state "S">] outputs [] {
// expected-error @below {{state 'S' of a fixed size has no kernel for a GPU beside one that grows}}
^bb0(%k: vector<16xf32>, %L: !assoc.list<16, f32>, %S: !S):
  %M = assoc.append %L, %k : !assoc.list<16, f32>
  assoc.yield %M, %S : !assoc.list<16, f32>, !S
}

// -----

assoc.layer @width args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<state "L">] outputs ["o"] {
// expected-error @below {{growing state 'L' has rows of 20 numbers, expected a multiple of 8 on a GPU}}
^bb0(%q: vector<20xbf16>, %k: vector<20xbf16>, %L: !assoc.list<20, f32>):
  %0 = arith.extf %q : vector<20xbf16> to vector<20xf32>
  %1 = arith.extf %k : vector<20xbf16> to vector<20xf32>
  %M = assoc.append %L, %1 : !assoc.list<20, f32>
  %2 = assoc.attend(%0) keys(%M : !assoc.list<20, f32>) values(%M : !assoc.list<20, f32>) : vector<20xf32>
  %o = arith.truncf %2 : vector<20xf32> to vector<20xbf16>
  assoc.yield %o, %M : vector<20xbf16>, !assoc.list<20, f32>
}

// -----

// expected-error @below {{a layer with growing states and no 'attend' has no kernel for a GPU}}
assoc.layer @unread args [#assoc.arg<input "k">, #assoc.arg<state "L">] outputs [] {
^bb0(%k: vector<16xf32>, %L: !assoc.list<16, f32>):
  %M = assoc.append %L, %k : !assoc.list<16, f32>
  assoc.yield %M : !assoc.list<16, f32>
}

// -----

assoc.layer @twice args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%q: vector<16xbf16>, %k: vector<16xbf16>, %L: !assoc.list<16, f32>):
  %0 = arith.extf %q : vector<16xbf16> to vector<16xf32>
  %1 = arith.extf %k : vector<16xbf16> to vector<16xf32>
  %M = assoc.append %L, %1 : !assoc.list<16, f32>
  %x = assoc.attend(%1) keys(%M : !assoc.list<16, f32>) values(%M : !assoc.list<16, f32>) : vector<16xf32>
  // expected-error @below {{a second 'attend' has no kernel for a GPU, expected one}}
  %2 = assoc.attend(%0) keys(%M : !assoc.list<16, f32>) values(%M : !assoc.list<16, f32>) : vector<16xf32>
  %o = arith.truncf %2 : vector<16xf32> to vector<16xbf16>
  assoc.yield %o, %M : vector<16xbf16>, !assoc.list<16, f32>
}

// -----

assoc.layer @level args [#assoc.arg<input "k">, #assoc.arg<state "L">, #assoc.arg<state "Y">] outputs [] {
^bb0(%k: vector<16xbf16>, %L: !assoc.list<16, f32>, %Y: !assoc.list<16, f32>):
  %1 = arith.extf %k : vector<16xbf16> to vector<16xf32>
  %M = assoc.append %L, %1 : !assoc.list<16, f32>
  // expected-error @below {{rows of 'Y' depend on what is attended to, which has no kernel for a GPU}}
  %x = assoc.attend(%1) keys(%M : !assoc.list<16, f32>) values(%M : !assoc.list<16, f32>) : vector<16xf32>
  %N = assoc.append %Y, %x : !assoc.list<16, f32>
  assoc.yield %M, %N : !assoc.list<16, f32>, !assoc.list<16, f32>
}

// -----

// A row of f32 has step kernels.
// expected-warning @below {{no chunk kernels for this layer on a GPU: input 'k' is not bf16}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @wide args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%q: vector<16xbf16>, %k: vector<16xf32>, %L: !assoc.list<16, f32>):
  %0 = arith.extf %q : vector<16xbf16> to vector<16xf32>
  %M = assoc.append %L, %k : !assoc.list<16, f32>
  %o = assoc.attend(%0) keys(%M : !assoc.list<16, f32>) values(%M : !assoc.list<16, f32>) : vector<16xf32>
  assoc.yield %o, %M : vector<16xf32>, !assoc.list<16, f32>
}

// -----

// expected-warning @below {{no chunk kernels}}
// expected-note @below {{the step kernel runs it}}
assoc.layer @tall args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%q: vector<640xf32>, %k: vector<640xf32>, %L: !assoc.list<640, f32>):
  %M = assoc.append %L, %k : !assoc.list<640, f32>
  // expected-error @below {{rows that are not bf16 have no kernel for a GPU here: a thread would hold 240 numbers of queries, keys and values, at most 224 fit}}
  %o = assoc.attend(%q) keys(%M : !assoc.list<640, f32>) values(%M : !assoc.list<640, f32>) : vector<640xf32>
  assoc.yield %o, %M : vector<640xf32>, !assoc.list<640, f32>
}

// -----

assoc.layer @odd args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<input "g">, #assoc.arg<state "L">] outputs ["o"] {
// expected-error @below {{input 'g' has rows of 20 numbers, expected a multiple of 8 beside a state that grows, on a GPU}}
^bb0(%q: vector<16xbf16>, %k: vector<16xbf16>, %g: vector<20xbf16>, %L: !assoc.list<16, f32>):
  %0 = arith.extf %q : vector<16xbf16> to vector<16xf32>
  %1 = arith.extf %k : vector<16xbf16> to vector<16xf32>
  %M = assoc.append %L, %1 : !assoc.list<16, f32>
  %2 = assoc.attend(%0) keys(%M : !assoc.list<16, f32>) values(%M : !assoc.list<16, f32>) : vector<16xf32>
  %o = arith.truncf %2 : vector<16xf32> to vector<16xbf16>
  assoc.yield %o, %M : vector<16xbf16>, !assoc.list<16, f32>
}

// -----

assoc.layer @param args [#assoc.arg<param "w">, #assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<state "L">] outputs ["o"] {
// expected-error @below {{param 'w' has rows of 12 numbers, expected a multiple of 8 beside a state that grows, on a GPU}}
^bb0(%w: vector<12xf32>, %q: vector<16xbf16>, %k: vector<16xbf16>, %L: !assoc.list<16, f32>):
  %0 = arith.extf %q : vector<16xbf16> to vector<16xf32>
  %1 = arith.extf %k : vector<16xbf16> to vector<16xf32>
  %M = assoc.append %L, %1 : !assoc.list<16, f32>
  %s = vector.reduction <add>, %w : vector<12xf32> into f32
  %t = vector.broadcast %s : f32 to vector<16xf32>
  %r = arith.mulf %t, %0 : vector<16xf32>
  %2 = assoc.attend(%r) keys(%M : !assoc.list<16, f32>) values(%M : !assoc.list<16, f32>) : vector<16xf32>
  %o = arith.truncf %2 : vector<16xf32> to vector<16xbf16>
  assoc.yield %o, %M : vector<16xbf16>, !assoc.list<16, f32>
}

// -----

assoc.layer @large args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%q: vector<1024xbf16>, %k: vector<1024xbf16>, %L: !assoc.list<1024, f32>):
  %0 = arith.extf %q : vector<1024xbf16> to vector<1024xf32>
  %1 = arith.extf %k : vector<1024xbf16> to vector<1024xf32>
  %M = assoc.append %L, %1 : !assoc.list<1024, f32>
  // expected-error @below {{key dim = 1024 with value dim = 1024 has no kernel for this GPU: a tile of 32 keys and values has to fit into its shared memory twice, 232448 bytes}}
  %2 = assoc.attend(%0) keys(%M : !assoc.list<1024, f32>) values(%M : !assoc.list<1024, f32>) : vector<1024xf32>
  %o = arith.truncf %2 : vector<1024xf32> to vector<1024xbf16>
  assoc.yield %o, %M : vector<1024xbf16>, !assoc.list<1024, f32>
}

// -----

assoc.layer @sine args [#assoc.arg<input "q">, #assoc.arg<input "k">, #assoc.arg<state "L">] outputs ["o"] {
^bb0(%q: vector<16xbf16>, %k: vector<16xbf16>, %L: !assoc.list<16, f32>):
  %0 = arith.extf %q : vector<16xbf16> to vector<16xf32>
  %1 = arith.extf %k : vector<16xbf16> to vector<16xf32>
  // expected-error @below {{'math.sin' has no kernel for a GPU beside a state that grows}}
  %s = math.sin %1 : vector<16xf32>
  %M = assoc.append %L, %s : !assoc.list<16, f32>
  %2 = assoc.attend(%0) keys(%M : !assoc.list<16, f32>) values(%M : !assoc.list<16, f32>) : vector<16xf32>
  %o = arith.truncf %2 : vector<16xf32> to vector<16xbf16>
  assoc.yield %o, %M : vector<16xbf16>, !assoc.list<16, f32>
}
