// Each numbered constraint of chunk.stage and chunk.yield, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

func.func @stage_c1_yield_type(%a: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.stage' op expects to yield its results}}
  %G = chunk.stage prepare {
    chunk.yield %a : tensor<16x8xf32>
  } : tensor<16xf32>
  return
}

// -----

func.func @stage_c1_missing_value() {
  // expected-error @below {{'chunk.stage' op expects to yield its results}}
  %G = chunk.stage scan {
    chunk.yield
  } : tensor<16xf32>
  return
}

// -----

func.func @stage_c2_prepare_uses_scan(%S: tensor<16x8xf32>) {
  // expected-note @below {{'scan' is here}}
  %R = chunk.stage scan {
    chunk.yield %S : tensor<16x8xf32>
  } : tensor<16x8xf32>
  %G = chunk.stage prepare {
    // expected-error @below {{'chunk.cumsum' op in 'prepare' uses a value of 'scan'}}
    %g = chunk.cumsum log %R : tensor<16x8xf32>
    chunk.yield %g : tensor<16x8xf32>
  } : tensor<16x8xf32>
  return
}

// -----

func.func @yield_parent() {
  // expected-error @below {{'chunk.yield' op expects parent op to be one of 'chunk.map, chunk.output, chunk.stage'}}
  chunk.yield
}
