# SPDX-License-Identifier: BSD-3-Clause
# The pipeline as an integer program: which of two operations of a stage comes first is a 0-1 variable.
param p, integer, >= 1;
param m, integer, >= 1;
param split, binary;
param cap, integer, >= 1;            # live micro-batches, the same on every stage
param f{0..p-1};
param b{0..p-1};
param w{0..p-1};                     # 0 where the backward is whole
param c{0..p-2}, default 0;          # latency each way

set S := 0..p-1;
set K := 0..m-1;
set T := if split = 1 then {1, 2, 3} else {1, 2};   # forward, backward or input gradient, weight gradient
param d{s in S, t in T} := if t = 1 then f[s] else if t = 2 then b[s] else w[s];
param big := sum{s in S} m * (f[s] + b[s] + w[s]) + 2 * m * sum{s in S: s < p - 1} c[s];

var start{S, T, K}, >= 0;
var first{s in S, t in T, k in K, u in T, l in K: t < u}, binary;  # 1: (t, k) comes before (u, l)
var last, >= 0;

minimize makespan: last;

s.t. ends{s in S, t in T, k in K}: last >= start[s, t, k] + d[s, t];
# Micro-batches are alike, so each type may keep their order.
s.t. in_order{s in S, t in T, k in K: k > 0}: start[s, t, k] >= start[s, t, k-1] + d[s, t];
s.t. down{s in S, k in K: s > 0}: start[s, 1, k] >= start[s-1, 1, k] + f[s-1] + c[s-1];
s.t. turn{k in K}: start[p-1, 2, k] >= start[p-1, 1, k] + f[p-1];
s.t. up{s in S, k in K: s < p - 1}: start[s, 2, k] >= start[s+1, 2, k] + b[s+1] + c[s];
s.t. weights{s in S, k in K: split = 1}: start[s, 3, k] >= start[s, 2, k] + b[s];
s.t. memory{s in S, k in K: k >= cap}:
    start[s, 1, k] >= (if split = 1 then start[s, 3, k-cap] + w[s] else start[s, 2, k-cap] + b[s]);
s.t. before{s in S, t in T, k in K, u in T, l in K: t < u}:
    start[s, u, l] >= start[s, t, k] + d[s, t] - big * (1 - first[s, t, k, u, l]);
s.t. behind{s in S, t in T, k in K, u in T, l in K: t < u}:
    start[s, t, k] >= start[s, u, l] + d[s, u] - big * first[s, t, k, u, l];

solve;
printf "makespan %g\n", last;
end;
