/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/train/text.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/train/model.h"
#include "tools/train/random.h"

static int add_file(struct text *text, const char *path)
{
    FILE *f = fopen(path, "re");
    size_t got;
    int status = 0;

    if (!f)
        return model_fail("can't read the text %.150s: %s", path, strerror(errno));
    do {
        uint8_t *bytes = realloc(text->bytes, text->n + 65536);

        if (!bytes) {
            status = model_fail("out of memory for the text %.150s", path);
            break;
        }
        text->bytes = bytes;
        got = fread(bytes + text->n, 1, 65536, f);
        text->n += got;
    } while (got > 0);
    if (status == 0 && ferror(f))
        status = model_fail("can't read the text %.150s: %s", path, strerror(errno));
    fclose(f);
    return status;
}

int text_add(struct text *text, const char *path)
{
    struct dirent **names = NULL;
    struct stat st;
    int n, status = 0;

    if (stat(path, &st) != 0)
        return model_fail("can't read the text %.150s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return add_file(text, path);
    n = scandir(path, &names, NULL, alphasort);
    if (n < 0)
        return model_fail("can't list the folder %.150s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char file[4096];

        if ((size_t)snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name) < sizeof(file) &&
            lstat(file, &st) == 0 && S_ISREG(st.st_mode) && status == 0)
            status = add_file(text, file);
        free(names[i]);
    }
    free(names);
    return status;
}

void text_free(struct text *text)
{
    free(text->bytes);
    text->bytes = NULL;
    text->n = 0;
}

void text_sample(const struct text *text, uint64_t seed, uint64_t step, uint64_t index, int batch, int context,
                 uint8_t *out)
{
    uint64_t state = random_mix(random_mix(random_mix(seed) ^ step) ^ index);
    size_t size = (size_t)context + 1;

    for (int b = 0; b < batch; b++)
        memcpy(out + (size_t)b * size, text->bytes + random_next(&state) % (text->n - size), size);
}

double text_bigram_loss(const struct text *text, double smoothing)
{
    uint32_t(*count)[256] = calloc(256, sizeof(*count));
    double loss = 0;

    if (!count || text->n < 2) {
        free(count);
        return NAN;
    }
    for (size_t i = 1; i < text->n; i++)
        count[text->bytes[i - 1]][text->bytes[i]]++;
    for (int a = 0; a < 256; a++) {
        double total = 256 * smoothing;

        for (int b = 0; b < 256; b++)
            total += count[a][b];
        for (int b = 0; b < 256; b++)
            if (count[a][b])
                loss -= count[a][b] * log((count[a][b] + smoothing) / total);
    }
    free(count);
    return loss / (double)(text->n - 1);
}
