// Each numbered constraint of chunk.append and chunk.attend, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

func.func @append_c1_width(%t: index, %L: !assoc.list<8, f32>, %X: tensor<16x4xf32>) {
  // expected-error @below {{'chunk.append' op expects rows of 8, got 'tensor<16x4xf32>'}}
  %L1 = chunk.append %L, %X at %t of %t : !assoc.list<8, f32>, tensor<16x4xf32>
  return
}

// -----

func.func @attend_c1_missing_query(%t: index, %K: !assoc.list<8, f32>) {
  // expected-error @below {{'chunk.attend' op expects a query for each of the keys, got 0 and 1}}
  %O = "chunk.attend"(%K, %K, %t, %t) <{operandSegmentSizes = array<i32: 0, 1, 1, 1, 1>}>
      : (!assoc.list<8, f32>, !assoc.list<8, f32>, index, index) -> tensor<16x8xf32>
  return
}

// -----

func.func @attend_c1_width(%t: index, %Q: tensor<16x4xf32>, %K: !assoc.list<8, f32>) {
  // expected-error @below {{'chunk.attend' op expects queries [16, 8], got 'tensor<16x4xf32>'}}
  %O = chunk.attend own(%Q : tensor<16x4xf32>) keys(%K : !assoc.list<8, f32>) values(%K : !assoc.list<8, f32>)
      at %t of %t -> tensor<16x8xf32>
  return
}

// -----

func.func @attend_c2_rows(%t: index, %Q: tensor<8x8xf32>, %K: !assoc.list<8, f32>) {
  // expected-error @below {{'chunk.attend' op expects queries [16, 8], got 'tensor<8x8xf32>'}}
  %O = chunk.attend own(%Q : tensor<8x8xf32>) keys(%K : !assoc.list<8, f32>) values(%K : !assoc.list<8, f32>)
      at %t of %t -> tensor<16x8xf32>
  return
}

// -----

func.func @attend_c3_result(%t: index, %Q: tensor<16x8xf32>, %K: !assoc.list<8, f32>, %V: !assoc.list<4, f32>) {
  // expected-error @below {{'chunk.attend' op expects a result with rows of 4, got 'tensor<16x8xf32>'}}
  %O = chunk.attend own(%Q : tensor<16x8xf32>) keys(%K : !assoc.list<8, f32>) values(%V : !assoc.list<4, f32>)
      at %t of %t -> tensor<16x8xf32>
  return
}
