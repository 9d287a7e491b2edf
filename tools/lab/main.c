/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>
#include "tools/lab/lab.h"

static const struct {
    const char *name, *usage;
    int (*run)(int argc, char **argv);
    int min_args;
} commands[] = {
    {"host", "host NAME PID-FILE", lab_host, 2},
    {"enter", "enter PID COMMAND [ARGUMENT...]", lab_enter, 2},
    {"forward", "forward PORT TAP BRIDGE PARAMETER-FILE PID-FILE", lab_forward, 5},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        if (argc >= 2 + commands[i].min_args && strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    fprintf(stderr, "This program belongs to shunt-lab, which calls it as:\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        fprintf(stderr, "    shunt-lab-helper %s\n", commands[i].usage);
    return 2;
}
