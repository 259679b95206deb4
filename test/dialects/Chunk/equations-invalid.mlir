// Each numbered constraint of the chunk's matrices, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

func.func @cumsum_type(%a: tensor<16x8xf64>) {
  // expected-error @below {{'chunk.cumsum' op operand #0 must be matrix of constant shape of 32-bit float values or column of constant shape of 32-bit float values, but got 'tensor<16x8xf64>'}}
  %G = chunk.cumsum log %a : tensor<16x8xf64>
  return
}

// -----

func.func @cumsum_domain(%a: tensor<16x8xf32>) {
  // expected-error @below {{expects 'log' or 'linear', got 'cubic'}}
  %G = chunk.cumsum cubic %a : tensor<16x8xf32>
  return
}

// -----

func.func @scores_c1_key_dims(%x: tensor<16x8xf32>, %y: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.scores' op expects rows of one key dim, got 8 and 4}}
  %M = chunk.scores %x [#chunk.at<0, after>], %y [#chunk.at<0, after>] steps 1
      : tensor<16x8xf32>, tensor<16x4xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @scores_c2_tokens(%x: tensor<16x8xf32>, %y: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.scores' op expects rows of the same tokens, got 16 by 1 and 16 by 2}}
  %M = chunk.scores %x [#chunk.at<0, after>], %y [#chunk.at<0, after>, #chunk.at<1, after>] steps 2
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @scores_c2_no_rows(%x: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.scores' op expects rows of the same tokens, got 16 by 1 and 16 by 0}}
  %M = chunk.scores %x [#chunk.at<0, after>], %x [] steps 1
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @scores_c3_decay_rows(%x: tensor<16x8xf32>, %G: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.scores' op expects a decay of 32 steps and key dim 8, got 'tensor<16x8xf32>'}}
  %M = chunk.scores %x [#chunk.at<0, after>], %x [#chunk.at<0, after>] decay(%G : tensor<16x8xf32>) steps 2
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @scores_c3_decay_key_dim(%x: tensor<16x8xf32>, %G: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.scores' op expects a decay of 16 steps and key dim 8, got 'tensor<16x4xf32>'}}
  %M = chunk.scores %x [#chunk.at<0, after>], %x [#chunk.at<0, after>] decay(%G : tensor<16x4xf32>) steps 1
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @scores_c4_result(%x: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.scores' op expects a result of [16, 16], got 'tensor<16x8xf32>'}}
  %M = chunk.scores %x [#chunk.at<0, after>], %x [#chunk.at<0, after>] steps 1
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  return
}

// -----

func.func @scores_c5_step(%x: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.scores' op expects rows in steps 0 to 0 of a token, got step 1}}
  %M = chunk.scores %x [#chunk.at<0, after>], %x [#chunk.at<1, after>] steps 1
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @read_c4_step(%S: tensor<8x4xf32>, %x: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.read' op expects rows in steps 0 to 1 of a token, got step -1}}
  %R = chunk.read %S at %x [#chunk.at<-1, after>] steps 2
      : tensor<8x4xf32>, tensor<16x8xf32> -> tensor<16x4xf32>
  return
}

// -----

func.func @carry_c4_step(%S: tensor<8x4xf32>, %k: tensor<16x8xf32>, %U: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.carry' op expects rows in steps 0 to 0 of a token, got step 3}}
  %S1 = chunk.carry %S keys(%k : tensor<16x8xf32>) rows [[#chunk.at<3, after>]]
      values(%U : tensor<16x4xf32>) steps 1 : tensor<8x4xf32>
  return
}

// -----

func.func @inverse_c1_not_square(%M: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.inverse' op expects a square matrix, got 'tensor<16x8xf32>'}}
  %T = chunk.inverse %M : tensor<16x8xf32>
  return
}

// -----

func.func @inverse_c2_factors(%M: tensor<16x16xf32>, %c: tensor<8xf32>) {
  // expected-error @below {{'chunk.inverse' op expects 16 factors, got 8}}
  %T = chunk.inverse %M scaled(%c : tensor<8xf32>) : tensor<16x16xf32>
  return
}

// -----

func.func @read_c1_key_dim(%S: tensor<8x4xf32>, %q: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.read' op expects rows of the state's key dim 8, got 4}}
  %R = chunk.read %S at %q [#chunk.at<0, after>] steps 1 : tensor<8x4xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
  return
}

// -----

func.func @read_c2_decay_rows(%S: tensor<8x4xf32>, %q: tensor<16x8xf32>, %G: tensor<15xf32>) {
  // expected-error @below {{'chunk.read' op expects a decay of 16 steps and key dim 8, got 'tensor<15xf32>'}}
  %R = chunk.read %S at %q [#chunk.at<0, after>] decay(%G : tensor<15xf32>) steps 1
      : tensor<8x4xf32>, tensor<16x8xf32> -> tensor<16x4xf32>
  return
}

// -----

func.func @read_c2_rows_per_token(%S: tensor<8x4xf32>, %q: tensor<15x8xf32>) {
  // expected-error @below {{'chunk.read' op expects a multiple of 2 rows, got 15}}
  %R = chunk.read %S at %q [#chunk.at<0, after>, #chunk.at<1, after>] steps 2
      : tensor<8x4xf32>, tensor<15x8xf32> -> tensor<15x4xf32>
  return
}

// -----

func.func @read_c3_result(%S: tensor<8x4xf32>, %q: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.read' op expects a result of [16, 4], got 'tensor<16x8xf32>'}}
  %R = chunk.read %S at %q [#chunk.at<0, after>] steps 1 : tensor<8x4xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  return
}

// -----

func.func @scale_c1_factors(%c: tensor<8xf32>, %X: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.scale' op expects 16 factors, got 8}}
  %Y = chunk.scale %X by %c : tensor<16x4xf32>, tensor<8xf32>
  return
}

// -----

func.func @matmul_c1_inner_dims(%M: tensor<16x16xf32>, %U: tensor<8x4xf32>) {
  // expected-error @below {{'chunk.matmul' op expects 16 rows to multiply, got 8}}
  %P = chunk.matmul %M, %U : tensor<16x16xf32>, tensor<8x4xf32> -> tensor<16x4xf32>
  return
}

// -----

func.func @matmul_c2_result(%M: tensor<8x16xf32>, %U: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.matmul' op expects a result of [8, 4], got 'tensor<16x4xf32>'}}
  %P = chunk.matmul %M, %U : tensor<8x16xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
  return
}

// -----

func.func @matmul_c3_onto(%M: tensor<16x16xf32>, %U: tensor<16x4xf32>, %A: tensor<8x4xf32>) {
  // expected-error @below {{'chunk.matmul' op expects to add onto 'tensor<16x4xf32>', got 'tensor<8x4xf32>'}}
  %P = chunk.matmul %M, %U onto(%A : tensor<8x4xf32>) : tensor<16x16xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
  return
}

// -----

func.func @carry_c1_row_lists(%S: tensor<8x4xf32>, %k: tensor<16x8xf32>, %U: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.carry' op expects as many keys as values and row lists, got 1, 1 and 0}}
  %S1 = chunk.carry %S keys(%k : tensor<16x8xf32>) rows [] values(%U : tensor<16x4xf32>) steps 1 : tensor<8x4xf32>
  return
}

// -----

func.func @carry_c2_value_dim(%S: tensor<8x4xf32>, %k: tensor<16x8xf32>, %U: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.carry' op expects keys [Y, 8] and values [Y, 4], got 'tensor<16x8xf32>' and 'tensor<16x8xf32>'}}
  %S1 = chunk.carry %S keys(%k : tensor<16x8xf32>) rows [[#chunk.at<0, after>]] values(%U : tensor<16x8xf32>)
      steps 1 : tensor<8x4xf32>
  return
}

// -----

func.func @carry_c3_decay_rows(%S: tensor<8x4xf32>, %k: tensor<16x8xf32>, %U: tensor<16x4xf32>, %G: tensor<16x8xf32>) {
  // expected-error @below {{'chunk.carry' op expects a decay of 32 steps and key dim 8, got 'tensor<16x8xf32>'}}
  %S1 = chunk.carry %S keys(%k : tensor<16x8xf32>) rows [[#chunk.at<0, after>]] values(%U : tensor<16x4xf32>)
      decay(%G : tensor<16x8xf32>) steps 2 : tensor<8x4xf32>
  return
}
