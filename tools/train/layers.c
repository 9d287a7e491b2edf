/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/train/layers.h"
#include <cblas.h>
#include <math.h>
#include <string.h>

typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i4 __attribute__((vector_size(16)));

static inline v4 get(const float *p)
{
    return *(const v4 *)p;
}

static inline float sum4(v4 v)
{
    return (v[0] + v[1]) + (v[2] + v[3]);
}

void add_to(float *a, const float *b, size_t count)
{
    size_t i = 0;

    for (; i + 4 <= count; i += 4)
        *(v4 *)(a + i) = get(a + i) + get(b + i);
    for (; i < count; i++)
        a[i] += b[i];
}

/* ---- linear ---- */

void linear_forward(float *y, const float *x, const float *weight, const float *bias, int n, int in, int out)
{
    for (int r = 0; r < n; r++)
        memcpy(y + (size_t)r * out, bias, (size_t)out * sizeof(float));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, out, in, 1.0f, x, in, weight, in, 1.0f, y, out);
}

void linear_backward_input(float *dx, const float *dy, const float *weight, int n, int in, int out)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, in, out, 1.0f, dy, out, weight, in, 0.0f, dx, in);
}

void linear_backward_weight(float *dweight, const float *dy, const float *x, int n, int in, int out)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, n, 1.0f, dy, out, x, in, 0.0f, dweight, in);
}

void linear_backward_bias(float *dbias, const float *dy, int n, int out)
{
    memset(dbias, 0, (size_t)out * sizeof(float));
    for (int r = 0; r < n; r++)
        add_to(dbias, dy + (size_t)r * out, (size_t)out);
}

/* ---- layer norm; width is a multiple of 4 ---- */

void norm_forward(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *bias, int n,
                  int width)
{
    for (int r = 0; r < n; r++, x += width, y += width) {
        v4 sum = {0}, squares = {0};
        float m, s;

        for (int c = 0; c < width; c += 4)
            sum += get(x + c);
        m = sum4(sum) / (float)width;
        for (int c = 0; c < width; c += 4)
            squares += (get(x + c) - m) * (get(x + c) - m);
        s = 1.0f / sqrtf(sum4(squares) / (float)width + 1e-5f);
        for (int c = 0; c < width; c += 4)
            *(v4 *)(y + c) = (get(x + c) - m) * s * get(gain + c) + get(bias + c);
        mean[r] = m;
        rstd[r] = s;
    }
}

void norm_backward_input(float *dx, const float *residual, const float *dy, const float *x, const float *mean,
                         const float *rstd, const float *gain, int n, int width)
{
    for (int r = 0; r < n; r++, x += width, dy += width, dx += width) {
        v4 sum = {0}, product = {0};
        float m = mean[r], s = rstd[r], a, b;

        for (int c = 0; c < width; c += 4) {
            v4 g = get(dy + c) * get(gain + c);

            sum += g;
            product += g * ((get(x + c) - m) * s);
        }
        a = sum4(sum) / (float)width;
        b = sum4(product) / (float)width;
        for (int c = 0; c < width; c += 4) {
            v4 d = (get(dy + c) * get(gain + c) - a - (get(x + c) - m) * s * b) * s;

            if (residual)
                d += get(residual + c);
            *(v4 *)(dx + c) = d;
        }
        if (residual)
            residual += width;
    }
}

void norm_backward_weight(float *dgain, float *dbias, const float *dy, const float *x, const float *mean,
                          const float *rstd, int n, int width)
{
    memset(dgain, 0, (size_t)width * sizeof(float));
    memset(dbias, 0, (size_t)width * sizeof(float));
    for (int r = 0; r < n; r++, x += width, dy += width)
        for (int c = 0; c < width; c += 4) {
            *(v4 *)(dgain + c) = get(dgain + c) + get(dy + c) * ((get(x + c) - mean[r]) * rstd[r]);
            *(v4 *)(dbias + c) = get(dbias + c) + get(dy + c);
        }
}

/* ---- squared rectifier ---- */

static inline v4 positive(v4 x)
{
    return (v4)((i4)x & (x > 0.0f));
}

void activation_forward(float *y, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i += 4) {
        v4 p = positive(get(x + i));

        *(v4 *)(y + i) = p * p;
    }
}

void activation_backward(float *dx, const float *dy, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i += 4)
        *(v4 *)(dx + i) = get(dy + i) * 2.0f * positive(get(x + i));
}

/* ---- softmax ---- */

/* e^x for x <= 0: 2^k e^r with |r| <= ln 2 / 2, e^r by its series up to r^6 (relative error below 3e-7). Below -87
 * it is e^-87, next to nothing. The C library's expf takes most of the attention's time. */
static inline v4 exponential(v4 x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    i4 low = x < -87.0f;
    v4 k, r, e;

    x = (v4)(((i4)x & ~low) | ((i4)((v4){0} - 87.0f) & low));
    k = x * 1.44269504f + magic;
    r = k - magic;
    r = x - r * 0.693145752f - r * 1.42860677e-6f; /* ln 2 in two parts */
    e = 1.0f / 120 + r * (1.0f / 720);
    e = 1.0f / 24 + r * e;
    e = 1.0f / 6 + r * e;
    e = 0.5f + r * e;
    e = 1.0f + r * e;
    e = 1.0f + r * e;
    return (v4)((i4)e + ((i4)k << 23));
}

/* x[i] = e^(scale * (x[i] - max)) for i < count, zero up to the next multiple of 4 (at most `room`); their sum. */
static float exponentials(float *x, float scale, int count, int room)
{
    float max = x[0];
    v4 sum = {0};

    for (int i = 1; i < count; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = count; i < room && i % 4; i++)
        x[i] = -INFINITY;
    for (int i = 0; i < count; i += 4) {
        v4 e = exponential((get(x + i) - max) * scale);

        if (i + 4 > count)
            for (int k = count - i; k < 4; k++)
                e[k] = 0.0f;
        *(v4 *)(x + i) = e;
        sum += e;
    }
    return sum4(sum);
}

void attention_forward(float *y, float *p, const float *qkv, int batch, int context, int width, int heads)
{
    int size = width / heads;
    float scale = 1.0f / sqrtf((float)size);

    for (int b = 0; b < batch; b++)
        for (int h = 0; h < heads; h++, p += context * context) {
            const float *q = qkv + (size_t)b * context * 3 * width + h * size;

            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, context, context, size, 1.0f, q, 3 * width, q + width,
                        3 * width, 0.0f, p, context);
            for (int t = 0; t < context; t++) {
                float *row = p + t * context, total = 1.0f / exponentials(row, scale, t + 1, context);

                for (int i = 0; i <= t; i++)
                    row[i] *= total;
                memset(row + t + 1, 0, (size_t)(context - t - 1) * sizeof(float));
            }
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, context, size, context, 1.0f, p, context,
                        q + 2 * width, 3 * width, 0.0f, y + (size_t)b * context * width + h * size, width);
        }
}

void attention_backward(float *dqkv, const float *dy, const float *p, const float *qkv, float *scratch, int batch,
                        int context, int width, int heads)
{
    int size = width / heads;
    float scale = 1.0f / sqrtf((float)size);

    for (int b = 0; b < batch; b++)
        for (int h = 0; h < heads; h++, p += context * context) {
            size_t at = (size_t)b * context * 3 * width + h * size;
            const float *q = qkv + at, *d = dy + (size_t)b * context * width + h * size;
            float *dq = dqkv + at;

            /* values, then probabilities */
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, context, size, context, 1.0f, p, context, d, width,
                        0.0f, dq + 2 * width, 3 * width);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, context, context, size, 1.0f, d, width, q + 2 * width,
                        3 * width, 0.0f, scratch, context);
            for (int t = 0; t < context; t++) {
                const float *row = p + t * context;
                float *drow = scratch + t * context, dot;
                v4 sum = {0};

                for (int i = 0; i < context; i += 4) /* zero beyond t */
                    sum += get(row + i) * get(drow + i);
                dot = sum4(sum);
                for (int i = 0; i < context; i += 4)
                    *(v4 *)(drow + i) = get(row + i) * (get(drow + i) - dot) * scale;
            }
            /* queries and keys */
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, context, size, context, 1.0f, scratch, context,
                        q + width, 3 * width, 0.0f, dq, 3 * width);
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, context, size, context, 1.0f, scratch, context, q,
                        3 * width, 0.0f, dq + width, 3 * width);
        }
}

double cross_entropy(float *logits, const uint8_t *targets, int n)
{
    double loss = 0;

    for (int r = 0; r < n; r++, logits += 256) {
        double max = logits[0], target = logits[targets[r]];
        float factor, sum;

        for (int i = 1; i < 256; i++)
            max = logits[i] > max ? logits[i] : max;
        sum = exponentials(logits, 1.0f, 256, 256);
        loss += log((double)sum) + max - target;
        factor = 1.0f / (sum * (float)n);
        for (int i = 0; i < 256; i++)
            logits[i] *= factor;
        logits[targets[r]] -= 1.0f / (float)n;
    }
    return loss / n;
}
