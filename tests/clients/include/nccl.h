/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for a toolkit's nccl.h, so that the clients build where none is; tests/shim/abi.t compares the two. */
#include "shim/abi.h"
