/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-lab-helper: what shunt-lab needs and a shell can't do. */
#ifndef SHUNT_TOOLS_LAB_H
#define SHUNT_TOOLS_LAB_H

#include <stdint.h>

/* host.c */
/* Makes a virtual host and returns once it stands; a process stays behind that keeps its namespaces alive. */
int lab_host(int argc, char **argv);
/* Runs a command in the namespaces of a virtual host; returns on failure only. */
int lab_enter(int argc, char **argv);

/* forward.c */
/* Delays the frames between a port and a TAP device, in a process that stays behind. */
int lab_forward(int argc, char **argv);

/* daemon.c */
/* Splits the process: the parent stays in here until the child calls lab_ready() or dies, then exits 0 or 1. */
void lab_background(void);
/* Writes "PID START NETNS" to `path` (START: start time in clock ticks, NETNS: inode), by which shunt-lab later
 * knows this very process again; then lets the parent go. */
int lab_ready(const char *path);

int lab_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
