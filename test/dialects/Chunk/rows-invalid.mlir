// Each numbered constraint of chunk.map and chunk.output, broken once.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

func.func @map_c1_missing_argument(%t: index, %T: index, %x: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.map' op expects one region argument per input, got 0 and 1}}
  %y = chunk.map 16 at %t of %T (%x : tensor<?x8xf32>) per_token [1] fill [0.0] {
    %s = arith.constant 1.0 : f32
    chunk.yield %s : f32
  } : tensor<16xf32>
  return
}

// -----

func.func @map_c1_argument_type(%t: index, %T: index, %x: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.map' op expects a region argument of type 'vector<8xf32>', got 'f32'}}
  %y = chunk.map 16 at %t of %T (%x : tensor<?x8xf32>) per_token [1] fill [0.0] {
  ^bb0(%row: f32):
    chunk.yield %row : f32
  } : tensor<16xf32>
  return
}

// -----

func.func @map_c2_too_few_rows(%t: index, %T: index, %x: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.map' op expects 2 yielded rows, got 1}}
  %y = chunk.map 16 at %t of %T (%x : tensor<?x8xf32>) per_token [2] fill [0.0] {
  ^bb0(%row: vector<8xf32>):
    chunk.yield %row : vector<8xf32>
  } : tensor<32x8xf32>
  return
}

// -----

func.func @map_c2_row_type(%t: index, %T: index, %x: tensor<?x8xf32>) {
  %y = chunk.map 16 at %t of %T (%x : tensor<?x8xf32>) per_token [1] fill [0.0] {
  ^bb0(%row: vector<8xf32>):
    // expected-error @below {{'chunk.yield' op expects a row of type 'vector<4xf32>', got 'vector<8xf32>'}}
    chunk.yield %row : vector<8xf32>
  } : tensor<16x4xf32>
  return
}

// -----

func.func @map_c3_result_rows(%t: index, %T: index, %x: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.map' op expects a result of 16 rows, got 'tensor<8x8xf32>'}}
  %y = chunk.map 16 at %t of %T (%x : tensor<?x8xf32>) per_token [1] fill [0.0] {
  ^bb0(%row: vector<8xf32>):
    chunk.yield %row : vector<8xf32>
  } : tensor<8x8xf32>
  return
}

// -----

func.func @map_c3_input_of_other_chunk(%t: index, %T: index, %x: tensor<8x8xf32>) {
  // expected-error @below {{'chunk.map' op expects inputs of a whole sequence or of 16 rows, got 'tensor<8x8xf32>'}}
  %y = chunk.map 16 at %t of %T (%x : tensor<8x8xf32>) per_token [1] fill [0.0] {
  ^bb0(%row: vector<8xf32>):
    chunk.yield %row : vector<8xf32>
  } : tensor<16x8xf32>
  return
}

// -----

func.func @map_c4_no_fill(%t: index, %T: index, %x: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.map' op expects one 'per_token' and 'fill' per result, got 1 and 0 for 1}}
  %y = chunk.map 16 at %t of %T (%x : tensor<?x8xf32>) per_token [1] fill [] {
  ^bb0(%row: vector<8xf32>):
    chunk.yield %row : vector<8xf32>
  } : tensor<16x8xf32>
  return
}

// -----

func.func @output_c1_argument_type(%t: index, %T: index, %x: tensor<16x8xf32>, %o: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.output' op expects a region argument of type 'vector<8xf32>', got 'vector<4xf32>'}}
  %y = chunk.output 16 at %t of %T (%x : tensor<16x8xf32>) into (%o : tensor<?x8xf32>) {
  ^bb0(%row: vector<4xf32>):
    chunk.yield %row : vector<4xf32>
  } : tensor<?x8xf32>
  return
}

// -----

func.func @output_c2_missing_row(%t: index, %T: index, %x: tensor<16x8xf32>, %o: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.output' op expects one yielded row per output, got 0 and 1}}
  %y = chunk.output 16 at %t of %T (%x : tensor<16x8xf32>) into (%o : tensor<?x8xf32>) {
  ^bb0(%row: vector<8xf32>):
    chunk.yield
  } : tensor<?x8xf32>
  return
}

// -----

func.func @output_c2_storage_type(%t: index, %T: index, %x: tensor<16x8xf32>, %o: tensor<?x8xbf16>) {
  %y = chunk.output 16 at %t of %T (%x : tensor<16x8xf32>) into (%o : tensor<?x8xbf16>) {
  ^bb0(%row: vector<8xf32>):
    // expected-error @below {{'chunk.yield' op expects a row of type 'vector<8xbf16>', got 'vector<8xf32>'}}
    chunk.yield %row : vector<8xf32>
  } : tensor<?x8xbf16>
  return
}

// -----

func.func @output_c3_result_type(%t: index, %T: index, %x: tensor<16x8xf32>, %o: tensor<?x8xf32>) {
  // expected-error @below {{'chunk.output' op expects results of the types of its outputs}}
  %y = chunk.output 16 at %t of %T (%x : tensor<16x8xf32>) into (%o : tensor<?x8xf32>) {
  ^bb0(%row: vector<8xf32>):
    chunk.yield %row : vector<8xf32>
  } : tensor<16x8xf32>
  return
}
