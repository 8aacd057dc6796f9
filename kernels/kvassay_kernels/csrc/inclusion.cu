// How likely a row is sampled whose cosine with the query is known, where `least` of `tables` have to match: MagicPIG.
//
// With r the probability that a table matches, the second match comes at table n with (n - 1) r^2 (1 - r)^(n-2). The terms
// of that sum are positive and nothing cancels. Compiled for REAL (float, double).
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 4) inclusion(
    const REAL* __restrict__ cosines,  // [rows]
    REAL* __restrict__ u,              // [rows]
    REAL* __restrict__ log_u,          // [rows]
    int rows, int bits, int tables, int least) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    REAL cosine = cosines[i];
    cosine = cosine < REAL(-1) ? REAL(-1) : cosine > REAL(1) ? REAL(1) : cosine;
    const REAL one_bit = acos(-cosine) / REAL(3.14159265358979323846);
    REAL r = 1;
    for (int bit = 0; bit < bits; ++bit) r *= one_bit;
    REAL total = 0, run = 1;  // the tables that do not match, a power of 1 - r
    for (int n = 0; n + least <= tables; ++n) {
        total += least == 2 ? (n + 1) * run : run;
        run *= 1 - r;
    }
    const REAL both = least == 2 ? r * r * total : r * total;
    REAL logarithm = MINUS_INFINITY;
    if (r > 0 && total > 0) {
        logarithm = least * log(r) + log(total);
        logarithm = logarithm < 0 ? logarithm : 0;
    }
    u[i] = both < 1 ? both : 1;
    log_u[i] = logarithm;
}
