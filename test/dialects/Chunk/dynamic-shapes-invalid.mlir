// The dialect is legal only where every shape is a constant.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

func.func @cumsum_dynamic(%a: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.cumsum' op operand #0 must be matrix of constant shape of 32-bit float values or column of constant shape of 32-bit float values, but got 'tensor<?x8xf32>'}}
  %G = chunk.cumsum log %a : tensor<?x8xf32>
  return
}

// -----

func.func @inverse_dynamic(%M: tensor<?x?xf32>) {
  // expected-error @below {{'chunk.inverse' op operand #0 must be matrix of constant shape of 32-bit float values, but got 'tensor<?x?xf32>'}}
  %T = chunk.inverse %M : tensor<?x?xf32>
  return
}
