/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHUNT_COMM_H
#define SHUNT_COMM_H
#include <shunt/status.h>
#endif
