// The plain definitions of the ops that kernels/cpu does fast: a few loops each, on one thread, for tests to compare
// with bit for bit. They check nothing, and ignore workspace and threads. TopK needs none: its test sorts. Tested by
// kernels/cpu/*_test.cc.
#pragma once

#include "kernels/ops.h"

namespace tandem::kernels::reference {

void Fp8Linear(const Fp8LinearArgs& args);
void Fp8GroupedLinear(const Fp8GroupedLinearArgs& args);
void Bf16Linear(const Bf16LinearArgs& args);
void Bf16LinearF32(const Bf16LinearF32Args& args);
void IndexLogits(const IndexLogitsArgs& args);
void MlaAbsorbQuery(const MlaAbsorbQueryArgs& args);
void SparseMla(const SparseMlaArgs& args);
void MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args);

}  // namespace tandem::kernels::reference
