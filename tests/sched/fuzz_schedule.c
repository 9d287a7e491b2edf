/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules in each form from any bytes: refused with a text, or taken and then the same after being written
 * and read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/sched.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int format = SHUNT_SCHED_TEXT; format <= SHUNT_SCHED_PYTORCH_PLAIN; format++) {
        shunt_sched_t *schedule, *again;
        char *text = NULL;
        size_t n = 0;
        if (shunt_sched_read((const char *)data, size, (shunt_sched_format_t)format, &schedule) != SHUNT_OK) {
            if (!*shunt_error_text())
                abort();
            continue;
        }
        FILE *out = open_memstream(&text, &n);
        if (!out || shunt_sched_write(schedule, (shunt_sched_format_t)format, out) != SHUNT_OK)
            abort();
        fclose(out);
        if (shunt_sched_read(text, n, (shunt_sched_format_t)format, &again) != SHUNT_OK ||
            !shunt_sched_equal(schedule, again))
            abort();
        free(text);
        shunt_sched_destroy(schedule);
        shunt_sched_destroy(again);
    }
    return 0;
}
