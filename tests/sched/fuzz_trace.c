/* SPDX-License-Identifier: BSD-3-Clause */
/* Traces from any bytes: refused with a text, or a schedule that its own profile can run. */
#include <stdint.h>
#include <stdlib.h>
#include <shunt/sched.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    shunt_sched_t *schedule;
    shunt_sched_profile_t *profile;
    double makespan;

    if (shunt_sched_trace_read((const char *)data, size, &schedule, &profile, &makespan) != SHUNT_OK) {
        if (!*shunt_error_text())
            abort();
        return 0;
    }
    if (shunt_sched_check(schedule, profile) != SHUNT_OK || !(makespan >= 0))
        abort();
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
    return 0;
}
