//===- AffineTest.cpp - The affine form of updates ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each test is an update as a paper may write it and its normal form. That the
// form means the same as the spec is for test/unit/reference to show.
//
//===----------------------------------------------------------------------===//

#include "test/unit/frontend/TestSpec.h"

#include "plum/Frontend/Affine.h"

#include "gtest/gtest.h"

using namespace plum;
using namespace plum::frontend;
using namespace plum::test;

//===----------------------------------------------------------------------===//
// Layer families
//===----------------------------------------------------------------------===//

TEST(AffineForm, OfLinearAttention) {
  EXPECT_EQ(updatesOf("S += exp(k)^T @ v\nz += exp(k)"),
            "S: keep; write exp(k)^T (v)\nz: keep; write exp(k)^T (1)\n");
}

TEST(AffineForm, OfScalarDecay) {
  EXPECT_EQ(updatesOf("S = a * S + k^T @ v"), "S: scalar a; write k^T (v)\n");
  EXPECT_EQ(updatesOf("S = exp(a) * S + k^T @ v"),
            "S: scalar log a; write k^T (v)\n");
  EXPECT_EQ(updatesOf("S = 0.9 * S + k^T @ v"),
            "S: scalar 0.9; write k^T (v)\n");
}

TEST(AffineForm, OfChannelDecay) {
  EXPECT_EQ(updatesOf("S = diag(w) @ S + k^T @ v"),
            "S: channel w; write k^T (v)\n");
  EXPECT_EQ(updatesOf("S = diag(exp(w)) @ S + k^T @ v"),
            "S: channel log w; write k^T (v)\n");
}

TEST(AffineForm, OfTheDeltaRule) {
  const char *expected = "S: keep; write a * k^T (v + -1 * k S.0)\n";
  EXPECT_EQ(updatesOf("S += a * k^T @ (v - k @ S)"), expected);
  EXPECT_EQ(updatesOf("S += k^T @ (a * (v - k @ S))"), expected);
  EXPECT_EQ(updatesOf("S += k^T @ (v - k @ S) * a"), expected);
  EXPECT_EQ(updatesOf("S -= a * k^T @ (k @ S - v)"), expected);
  EXPECT_EQ(updatesOf("S = S - -a * k^T @ (v - k @ S)"), expected);
  EXPECT_EQ(updatesOf("S = S + a * k^T @ v - a * k^T @ (k @ S)"), expected);
  EXPECT_EQ(updatesOf("S = S + a * k^T @ v - a * k^T @ k @ S"), expected);
  EXPECT_EQ(updatesOf("y = k @ S\nS += a * k^T @ (v - y)"), expected);
  EXPECT_EQ(updatesOf("u1 = a * (v - k @ S)\nS += k^T @ u1"), expected);
  EXPECT_EQ(updatesOf("kc = k^T\nS += a * kc @ (v - k @ S)"), expected);
  EXPECT_EQ(updatesOf("S += a * ((v - k @ S)^T @ k)^T"), expected);
  EXPECT_EQ(updatesOf("S += a * k^T @ (v - (S^T @ k^T)^T)"), expected);
}

TEST(AffineForm, OfTheGatedDeltaRule) {
  const char *two =
      "S: scalar log b\nS: keep; write a * k^T (v + -1 * k S.1)\n";
  EXPECT_EQ(updatesOf("S = exp(b) * S\nS += a * k^T @ (v - k @ S)"), two);
  const char *one = "S: scalar log b; write a * k^T (v + -1 * k S.0 decayed)\n";
  EXPECT_EQ(updatesOf("Sd = exp(b) * S\nS = Sd + a * k^T @ (v - k @ Sd)"), one);
  EXPECT_EQ(updatesOf("S = exp(b)*S + a * k^T @ (v - k @ (exp(b) * S))"), one);
  EXPECT_EQ(updatesOf("g = exp(b)\nS = g*S + a * k^T @ (v - k @ (g * S))"),
            one);
}

TEST(AffineForm, OfKda) {
  EXPECT_EQ(updatesOf("S = diag(exp(w)) @ S\nS += a * k^T @ (v - k @ S)"),
            "S: channel log w\nS: keep; write a * k^T (v + -1 * k S.1)\n");
  EXPECT_EQ(updatesOf("Sd = diag(exp(w)) @ S\nS = Sd + a*k^T @ (v - k @ Sd)"),
            "S: channel log w; write a * k^T (v + -1 * k S.0 decayed)\n");
}

TEST(AffineForm, OfGeneralisedErase) {
  // RWKV-7: the read is of the state before the decay.
  EXPECT_EQ(updatesOf("S = diag(w) @ S - (r * q)^T @ (q @ S) + k^T @ v"),
            "S: channel w; write -1 * (r * q)^T (q S.0); write k^T (v)\n");
  // GDN-2: gates of their own for what is erased and written.
  EXPECT_EQ(updatesOf("S = diag(exp(w)) @ S\n"
                      "S += k^T @ (u * v - (r * k) @ S)"),
            "S: channel log w\n"
            "S: keep; write k^T ((u * v) + -1 * (r * k) S.1)\n");
}

TEST(AffineForm, OfDeltaProduct) {
  EXPECT_EQ(updatesOf("S = exp(a) * S\nS += k^T @ (v - k @ S)\n"
                      "S += r^T @ (u - r @ S)"),
            "S: scalar log a\nS: keep; write k^T (v + -1 * k S.1)\n"
            "S: keep; write r^T (u + -1 * r S.2)\n");
}

TEST(AffineForm, OfHouseholderMatrices) {
  EXPECT_EQ(updatesOf("S = (diag(w) - a * k^T @ k) @ S + b * k^T @ v"),
            "S: channel w; write k^T ((b * v) + -a * k S.0)\n");
  EXPECT_EQ(updatesOf("H = diag(w) - a * k^T @ k\nS = H @ S"),
            "S: channel w; write -a * k^T (k S.0)\n");
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

TEST(Decay, IsKeptAsALogarithmWhereItWasWrittenSo) {
  EXPECT_EQ(updatesOf("x = exp(w)\ny = x\nS = diag(y) @ S"),
            "S: channel log w\n");
  EXPECT_EQ(updatesOf("S = exp(a) * diag(exp(w)) @ S"),
            "S: channel log (a + w)\n");
  EXPECT_EQ(updatesOf("S = diag(exp(w) * exp(a)) @ S"),
            "S: channel log (a + w)\n");
  EXPECT_EQ(updatesOf("S = 0.5 * exp(a) * S"),
            "S: scalar log (a + -0.693147)\n");
  EXPECT_EQ(updatesOf("S = diag(exp(w)) @ (exp(a) * S)"),
            "S: channel log (a + w)\n");
}

TEST(Decay, StaysLinearOtherwise) {
  EXPECT_EQ(updatesOf("S = a * diag(exp(w)) @ S"), "S: channel (a * exp(w))\n");
  EXPECT_EQ(updatesOf("S = -exp(a) * S"), "S: scalar -exp(a)\n");
  EXPECT_EQ(updatesOf("x = -2 * exp(a)\nS = x * S"), "S: scalar x\n");
  EXPECT_EQ(updatesOf("x = 0 * exp(a)\nS = x * S"), "S: scalar x\n");
  EXPECT_EQ(updatesOf("S = S / a"), "S: scalar (1 / a)\n");
  EXPECT_EQ(updatesOf("S = S / K"), "S: scalar 0.25\n");
  EXPECT_EQ(updatesOf("S = (1 - a) * S"), "S: scalar (1 - a)\n");
  EXPECT_EQ(updatesOf("S = diag(w) @ diag(r) @ S"), "S: channel (w * r)\n");
}

TEST(Decay, AddsUp) {
  EXPECT_EQ(updatesOf("S = S - a * S"), "S: scalar (1 - a)\n");
  EXPECT_EQ(updatesOf("S -= diag(w) @ S"), "S: channel (1 - w)\n");
  EXPECT_EQ(updatesOf("S = a * S + diag(w) @ S"), "S: channel (a + w)\n");
  EXPECT_EQ(updatesOf("S = 2 * S - S"), "S: keep\n");
}

TEST(Decay, IsZeroForAStateThatIsOverwritten) {
  EXPECT_EQ(updatesOf("S = k^T @ v"), "S: scalar 0; write k^T (v)\n");
  EXPECT_EQ(updatesOf("S = S - S + k^T @ v"), "S: scalar 0; write k^T (v)\n");
}

TEST(Decay, MayDependOnAnotherState) {
  EXPECT_EQ(updatesOf("z = 0.9 * z + k\nS = sigmoid(q @ z^T) * S + k^T @ v"),
            "z: scalar 0.9; write k^T (1)\n"
            "S: scalar sigmoid((q @ z.1^T)); write k^T (v)\n");
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

TEST(Reads, KeepTheirVersion) {
  EXPECT_EQ(updatesOf("y = k @ S\nS = a * S\nS += k^T @ (v - y - k @ S)"),
            "S: scalar a\n"
            "S: keep; write k^T (v + -1 * k S.0 + -1 * k S.1)\n");
}

TEST(Reads, TakeADecayThatIsNotTheUpdatesIntoTheirKey) {
  EXPECT_EQ(updatesOf("S = diag(r) @ S + k^T @ (k @ (diag(w) @ S))"),
            "S: channel r; write k^T ((k * w) S.0)\n");
  EXPECT_EQ(updatesOf("S = a * S + k^T @ (k @ (b * S))"),
            "S: scalar a; write k^T (b * k S.0)\n");
  EXPECT_EQ(updatesOf("S = k^T @ (k @ (b * S))"),
            "S: scalar 0; write k^T (b * k S.0)\n");
}

TEST(Reads, ThroughAnAffineMatrixAreMultipliedOut) {
  EXPECT_EQ(
      updatesOf("M = S + k^T @ v\nS = M - r^T @ (r @ M)"),
      "S: keep; write k^T (v); write -1 * r^T (((r @ k^T) * v) + r S.0)\n");
  EXPECT_EQ(updatesOf("y = k @ (S - r^T @ (r @ S))\nS += q^T @ y"),
            "S: keep; write q^T (k S.0 + -(k @ r^T) * r S.0)\n");
}

TEST(Reads, OfOtherStatesAreValues) {
  EXPECT_EQ(updatesOf("P += k^T @ v\nS = S + r^T @ (r @ (a * P))"),
            "P: keep; write k^T (v)\nS: keep; write a * r^T ((r @ P.1))\n");
}

//===----------------------------------------------------------------------===//
// Writes
//===----------------------------------------------------------------------===//

TEST(Writes, ShareTheirCommonFactor) {
  EXPECT_EQ(updatesOf("S += a * k^T @ v - a * b * k^T @ (k @ S)"),
            "S: keep; write a * k^T (v + -b * k S.0)\n");
  EXPECT_EQ(updatesOf("S += k^T @ v - b * k^T @ (k @ S)"),
            "S: keep; write k^T (v + -b * k S.0)\n");
  EXPECT_EQ(updatesOf("S += 2 * k^T @ v + 2 * k^T @ u"),
            "S: keep; write 2 * k^T ((v + u))\n");
  EXPECT_EQ(updatesOf("S -= k^T @ v / b"),
            "S: keep; write -(1 / b) * k^T (v)\n");
}

TEST(Writes, OfDifferentKeysStayApart) {
  EXPECT_EQ(updatesOf("S += k^T @ v + r^T @ (r @ S)"),
            "S: keep; write k^T (v); write r^T (r S.0)\n");
}

TEST(Writes, FindTheirKeyBehindALocal) {
  EXPECT_EQ(updatesOf("bk = a * k\nS += bk^T @ (v - k @ S)"),
            "S: keep; write a * k^T (v + -1 * k S.0)\n");
  EXPECT_EQ(updatesOf("kn = k\nS += k^T @ (v - kn @ S)"),
            "S: keep; write k^T (v + -1 * k S.0)\n");
  // But not into one that computes: its value would be computed twice.
  EXPECT_EQ(updatesOf("kn = a * exp(k)\nS += kn^T @ (v - kn @ S)"),
            "S: keep; write kn^T (v + -1 * kn S.0)\n");
}

TEST(Writes, MayBroadcastAScalar) {
  EXPECT_EQ(updatesOf("S += a"), "S: keep; write a * 1[4]^T (1[3])\n");
  EXPECT_EQ(updatesOf("z += a"), "z: keep; write a * 1[4]^T (1)\n");
}

//===----------------------------------------------------------------------===//
// Vector states
//===----------------------------------------------------------------------===//

TEST(VectorStates, DecayByScalarOrChannel) {
  EXPECT_EQ(updatesOf("z = a * z + b * k"), "z: scalar a; write b * k^T (1)\n");
  EXPECT_EQ(updatesOf("z = exp(w) * z + k"),
            "z: channel log w; write k^T (1)\n");
  EXPECT_EQ(updatesOf("z = z * w - k"), "z: channel w; write -1 * k^T (1)\n");
  EXPECT_EQ(updatesOf("z = z @ diag(w) + k"), "z: channel w; write k^T (1)\n");
  EXPECT_EQ(updatesOf("z = z / w"), "z: channel (1 / w)\n");
}

TEST(VectorStates, AreReadByDotProducts) {
  EXPECT_EQ(updatesOf("z = a * z + k - b * (k @ z^T) * k"),
            "z: scalar a; write k^T (1 + -b * k S.0)\n");
  EXPECT_EQ(updatesOf("z += b * k * (1 - z @ k^T)"),
            "z: keep; write b * k^T (1 + -1 * k S.0)\n");
  EXPECT_EQ(updatesOf("z += k * (a - sum(k * z))"),
            "z: keep; write k^T (a + -1 * k S.0)\n");
  EXPECT_EQ(updatesOf("zd = w * z\nz = zd - k * (k @ zd^T)"),
            "z: channel w; write -1 * k^T (k S.0 decayed)\n");
  EXPECT_EQ(updatesOf("z -= z @ (k^T @ r)"),
            "z: keep; write -1 * r^T (k S.0)\n");
  EXPECT_EQ(updatesOf("z = z @ (diag(w) - k^T @ k)"),
            "z: channel w; write -1 * k^T (k S.0)\n");
  EXPECT_EQ(updatesOf("z += k * sum(z)"), "z: keep; write k^T (1[4] S.0)\n");
}

//===----------------------------------------------------------------------===//
// Same values
//===----------------------------------------------------------------------===//

static bool same(const std::string &x, const std::string &y) {
  Spec spec(layerOf("kk = k\ne = exp(k)\nx = " + x + "\ny = " + y));
  EXPECT_TRUE(spec.layer) << spec.messages();
  const std::vector<const Symbol *> &locals = spec.layer->locals;
  return sameValue(locals[2]->definition, locals[3]->definition);
}

TEST(SameValue, ComparesStructure) {
  EXPECT_TRUE(same("a * k", "a * k"));
  EXPECT_TRUE(same("a * kk", "a * k"));
  EXPECT_TRUE(same("e", "e"));
  EXPECT_TRUE(same("l2norm(k)", "l2norm(k)"));
  EXPECT_FALSE(same("a * k", "b * k"));
  EXPECT_FALSE(same("a * k", "a * q"));
  EXPECT_FALSE(same("exp(k)", "log(k)"));
  EXPECT_FALSE(same("l2norm(k)", "l2norm(k, eps = 1e-5)"));
  EXPECT_FALSE(same("k^2", "k^3"));
  EXPECT_FALSE(same("max(a, b)", "max(a, b, a)"));
}

TEST(SameValue, TellsVersionsOfAStateApart) {
  Spec spec(layerOf("x = k @ S\nS += k^T @ v\ny = k @ S"));
  ASSERT_TRUE(spec.layer);
  EXPECT_FALSE(sameValue(spec.layer->locals[0]->definition,
                         spec.layer->locals[1]->definition));
}
