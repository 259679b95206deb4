// Each numbered constraint of the state's type, and malformed attributes.
// RUN: plum-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expects dims of at least 1, got 0 and 4}}
func.func @state_c1_no_keys(%S: !assoc.state<0, 4, kv, f32, f32>)

// -----

// expected-error @below {{expects dims of at least 1, got 8 and 0}}
func.func @state_c1_no_values(%S: !assoc.state<8, 0, kv, f32, f32>)

// -----

// expected-error @below {{expects storage f32, f16 or bf16, got 'f64'}}
func.func @state_c2_f64(%S: !assoc.state<8, 4, kv, f64, f32>)

// -----

// expected-error @below {{expects storage f32, f16 or bf16, got 'i8'}}
func.func @state_c2_i8(%S: !assoc.state<8, 4, kv, i8, f32>)

// -----

// expected-error @below {{expects accumulation in f32, got 'bf16'}}
func.func @state_c3_bf16(%S: !assoc.state<8, 4, kv, f32, bf16>)

// -----

// expected-error @below {{expected one of [kv, vk] for order of a state's dims in memory, got: kk}}
// expected-error @below {{failed to parse Assoc_StateType parameter 'layout'}}
func.func @state_layout(%S: !assoc.state<8, 4, kk, f32, f32>)

// -----

// expected-error @below {{expected 'assumed'}}
func.func private @bounds_word() attributes {b = #assoc.bounds<-1.0, 0.0, guessed>}

// -----

// expected-error @below {{expected one of [param, input, state] for what an argument of a layer is, got: output}}
// expected-error @below {{failed to parse Assoc_ArgAttr parameter 'role'}}
func.func private @arg_role() attributes {b = #assoc.arg<output "x">}
