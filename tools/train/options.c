/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of shunt-train. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "tools/train/job.h"

static const char usage[] =
    "usage: shunt-train [options]\n"
    "Trains a small language model on bytes of text, pipeline x data parallel over Shunt. Every rank of the job runs\n"
    "this command (see shunt-run); alone it trains in one process.\n"
    "\n"
    "  -S, --stages N           pipeline stages (1)\n"
    "  -R, --replicas N         replicas of the pipeline (ranks / stages)\n"
    "  -m, --micro-batches N    per replica and step (4)\n"
    "      --total-micro-batches N  per step over all replicas, shared out evenly (instead of -m)\n"
    "  -n, --steps N            (200)\n"
    "  -s, --schedule NAME      planned, gpipe, 1f1b, adapted, zb-h1, zb-h2, pipemorph or ready (planned)\n"
    "      --adapt on|off       follow measured times and delays with new plans (on); off keeps to the schedule\n"
    "      --memory-cap N       at most N live micro-batches on a stage\n"
    "      --stage-time T       pad each stage's forward, input gradient and weight gradient to T (10ms, 2.5s) each,\n"
    "                           as an accelerator would take it\n"
    "      --bucket SIZE        gradients summed at once, in bytes (256k)\n"
    "model:\n"
    "      --blocks N           (4)    --width N      (64)    --heads N   (4)\n"
    "      --context N          (32)   --batch N      (8)     sequences per micro-batch\n"
    "      --learning-rate X    (0.004, reached over the first 20 steps)\n"
    "      --seed N             of parameters and of the text's pieces (1)\n"
    "  -t, --text PATH          a file or a folder of files; may be repeated (/usr/share/common-licenses)\n"
    "checkpoints:\n"
    "      --checkpoint DIR     a folder that all ranks see; written at the end\n"
    "      --checkpoint-every N and every N steps\n"
    "      --resume             go on from the latest one, if there is one\n"
    "output:\n"
    "      --log-every N        steps between progress lines (10)\n"
    "      --json FILE          every step's loss and times; written by rank 0\n"
    "      --trace FILE         the last step's operations, for shunt-sched explain and trace viewers\n"
    "      --help, --version\n"
    "\n"
    "Stage s of replica r is rank s * replicas + r. Exit code: 0, 1 when training failed, 2 for wrong usage.\n";

enum { OPT_CAP = 256, OPT_ADAPT, OPT_TOTAL, OPT_TIME, OPT_BUCKET, OPT_BLOCKS, OPT_WIDTH, OPT_HEADS, OPT_CONTEXT, OPT_BATCH, OPT_RATE, OPT_SEED,
       OPT_CHECKPOINT, OPT_EVERY, OPT_RESUME, OPT_LOG, OPT_JSON, OPT_TRACE, OPT_HELP, OPT_VERSION };

static const struct option table[] = {
    {"stages", required_argument, NULL, 'S'},
    {"replicas", required_argument, NULL, 'R'},
    {"micro-batches", required_argument, NULL, 'm'},
    {"steps", required_argument, NULL, 'n'},
    {"schedule", required_argument, NULL, 's'},
    {"text", required_argument, NULL, 't'},
    {"total-micro-batches", required_argument, NULL, OPT_TOTAL},
    {"adapt", required_argument, NULL, OPT_ADAPT},
    {"memory-cap", required_argument, NULL, OPT_CAP},
    {"stage-time", required_argument, NULL, OPT_TIME},
    {"bucket", required_argument, NULL, OPT_BUCKET},
    {"blocks", required_argument, NULL, OPT_BLOCKS},
    {"width", required_argument, NULL, OPT_WIDTH},
    {"heads", required_argument, NULL, OPT_HEADS},
    {"context", required_argument, NULL, OPT_CONTEXT},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"learning-rate", required_argument, NULL, OPT_RATE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"checkpoint", required_argument, NULL, OPT_CHECKPOINT},
    {"checkpoint-every", required_argument, NULL, OPT_EVERY},
    {"resume", no_argument, NULL, OPT_RESUME},
    {"log-every", required_argument, NULL, OPT_LOG},
    {"json", required_argument, NULL, OPT_JSON},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static void wrong(const char *what, const char *expected, const char *text) __attribute__((noreturn));
static void wrong(const char *what, const char *expected, const char *text)
{
    fprintf(stderr, "shunt-train: --%s must be %s, not '%s'\n", what, expected, text);
    exit(2);
}

static long number(const char *what, const char *text, long min, long max)
{
    char *end, range[64];
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max) {
        snprintf(range, sizeof(range), "a number from %ld to %ld", min, max);
        wrong(what, range, text);
    }
    return value;
}

static double with_unit(const char *what, const char *text, const char *const *units, const double *factors,
                        const char *expected)
{
    char *end;
    double value = strtod(text, &end);

    for (int i = 0; end != text && units[i]; i++)
        if (strcmp(end, units[i]) == 0 && value >= 0 && value * factors[i] < 1e9)
            return value * factors[i];
    wrong(what, expected, text);
}

static double duration(const char *what, const char *text)
{
    static const char *const units[] = {"", "s", "ms", "us", NULL};
    static const double factors[] = {1, 1, 1e-3, 1e-6};

    return with_unit(what, text, units, factors, "a time such as 10ms or 0.5s");
}

static size_t size(const char *what, const char *text)
{
    static const char *const units[] = {"", "k", "m", NULL};
    static const double factors[] = {1, 1024, 1048576};
    double bytes = with_unit(what, text, units, factors, "a size such as 256k or 4m");

    if (bytes < 4)
        wrong(what, "at least 4 bytes", text);
    return (size_t)bytes;
}

static void add_text(struct options *o, const char *path)
{
    const char **texts = realloc((void *)o->texts, (size_t)(o->n_texts + 1) * sizeof(*texts));

    if (!texts)
        abort();
    texts[o->n_texts++] = path;
    o->texts = texts;
}

static void take(struct options *o, int option, const char *name, const char *value)
{
    switch (option) {
    case 'S':
        o->stages = (int)number(name, value, 1, 4096);
        break;
    case 'R':
        o->replicas = (int)number(name, value, 1, 65536);
        break;
    case 'm':
        o->micro_batches = (int)number(name, value, 1, 65536);
        break;
    case 'n':
        o->steps = number(name, value, 0, 1000000000);
        break;
    case 's':
        if (shunt_sched_kind_from_name(value, &o->schedule) != SHUNT_OK) {
            fprintf(stderr, "shunt-train: %s\n", shunt_error_text());
            exit(2);
        }
        break;
    case 't':
        add_text(o, value);
        break;
    case OPT_TOTAL:
        o->total = (int)number(name, value, 1, 65536);
        break;
    case OPT_ADAPT:
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
            wrong(name, "on or off", value);
        o->adapt = strcmp(value, "on") == 0;
        break;
    case OPT_CAP:
        o->memory_cap = (int)number(name, value, 1, 65536);
        break;
    case OPT_TIME:
        o->stage_time = duration(name, value);
        break;
    case OPT_BUCKET:
        o->bucket = size(name, value);
        break;
    case OPT_BLOCKS:
        o->model.blocks = (int)number(name, value, 1, 1024);
        break;
    case OPT_WIDTH:
        o->model.width = (int)number(name, value, 4, 8192);
        break;
    case OPT_HEADS:
        o->model.heads = (int)number(name, value, 1, 8192);
        break;
    case OPT_CONTEXT:
        o->model.context = (int)number(name, value, 4, 4096);
        break;
    case OPT_BATCH:
        o->model.batch = (int)number(name, value, 1, 65536);
        break;
    case OPT_RATE: {
        char *end;

        o->learning_rate = strtod(value, &end);
        if (end == value || *end || !(o->learning_rate > 0 && o->learning_rate < 10))
            wrong(name, "a number above 0 and below 10", value);
        break;
    }
    case OPT_SEED:
        o->model.seed = (uint64_t)number(name, value, 0, 0x7fffffffffffffff);
        break;
    case OPT_CHECKPOINT:
        o->checkpoint = value;
        break;
    case OPT_EVERY:
        o->checkpoint_every = number(name, value, 1, 1000000000);
        break;
    case OPT_RESUME:
        o->resume = true;
        break;
    case OPT_LOG:
        o->log_every = number(name, value, 1, 1000000000);
        break;
    case OPT_TRACE:
        o->trace = value;
        break;
    case OPT_JSON:
        o->json = value;
        break;
    case OPT_HELP:
        fputs(usage, stdout);
        exit(0);
    case OPT_VERSION:
        printf("shunt-train %s\n", shunt_version());
        exit(0);
    default:
        fputs("Try 'shunt-train --help'.\n", stderr);
        exit(2);
    }
}

void options_parse(struct options *o, int argc, char **argv)
{
    int option, index;

    *o = (struct options){
        .stages = 1,
        .micro_batches = 4,
        .steps = 200,
        .model = {.context = 32, .width = 64, .heads = 4, .blocks = 4, .batch = 8, .seed = 1},
        .learning_rate = 0.004,
        .schedule = SHUNT_SCHED_PLANNED,
        .adapt = true,
        .bucket = 256 << 10,
        .log_every = 10,
    };
    while (index = -1, (option = getopt_long(argc, argv, "S:R:m:n:s:t:", table, &index)) != -1) {
        const char *name = index >= 0 ? table[index].name : NULL;

        for (int i = 0; !name && table[i].name; i++)
            if (table[i].val == option)
                name = table[i].name;
        take(o, option, name, optarg);
    }
    if (optind < argc) {
        fprintf(stderr, "shunt-train: what is '%s'? Try 'shunt-train --help'.\n", argv[optind]);
        exit(2);
    }
    if ((o->resume || o->checkpoint_every) && !o->checkpoint) {
        fprintf(stderr, "shunt-train: --resume and --checkpoint-every need --checkpoint\n");
        exit(2);
    }
    if (!o->n_texts)
        add_text(o, TEXT_DEFAULT);
    if (model_config_check(&o->model) != 0) {
        fprintf(stderr, "shunt-train: %s\n", model_error());
        exit(2);
    }
}
