/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling and halving.
 *
 * Doubling (allreduce): in round k every rank swaps its whole sum with the rank whose number differs in bit k, and
 * adds. After log2 n rounds all have the sum of all. Few steps, S bytes in each: for short vectors.
 *
 * Halving (reduce-scatter, and allreduce by an allgather that goes the same way back): in each round a rank sends the
 * half of its range that it gives up and adds what it gets to the half it keeps, starting with the most distant rank. Bytes
 * S (n-1)/n each way in log2 n steps: for mid-size vectors on many ranks.
 *
 * When n is no power of two, the first 2 (n - 2^k) ranks pair up first: the even ones hand their vector to their
 * neighbour, sit out, and get the result at the end.
 *
 * The two ranks of a pair add in the same order, the block of lower ranks first, so all get the same bits.
 * Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; R. Thakur, R. Rabenseifner,
 * W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005, sections 4.4-4.5.
 */
#include "comm/coll/coll.h"
#include "comm/coll/schedule.h"

#define SEGMENT (256 * 1024)

/* Who takes part after the folding: `virtual` numbers 0 .. power-1, -1 for a rank that sits out. */
struct fold {
    int power, extra; /* largest power of two <= n; n - power */
    int number;
    int neighbour;    /* of the own pair, -1 */
};

static void fold_shape(const struct shunt__call *call, struct fold *f)
{
    int r = call->rank;

    for (f->power = 1; f->power * 2 <= call->size; f->power *= 2)
        ;
    f->extra = call->size - f->power;
    f->neighbour = -1;
    if (r >= 2 * f->extra) {
        f->number = r - f->extra;
    } else {
        f->number = r % 2 ? r / 2 : -1;
        f->neighbour = r ^ 1;
    }
}

static int rank_of(const struct fold *f, int number)
{
    return number < f->extra ? 2 * number + 1 : number + f->extra;
}

/* Sends [from, from + bytes) in segments; the join of them. */
static int send_all(struct shunt__schedule *s, shunt__place_t from, size_t bytes, int peer, int after)
{
    int all = shunt__step_join(s);

    for (size_t at = 0; at < bytes; at += SEGMENT)
        shunt__step_after(s, all, shunt__step_send(s, from + at, shunt__min(SEGMENT, bytes - at), peer, after));
    return all;
}

static int recv_all(struct shunt__schedule *s, shunt__place_t to, size_t bytes, int peer, int after)
{
    int all = shunt__step_join(s);

    for (size_t at = 0; at < bytes; at += SEGMENT)
        shunt__step_after(s, all, shunt__step_recv(s, to + at, shunt__min(SEGMENT, bytes - at), peer, after));
    return all;
}

/*
 * Receives into `work` and adds: dst = (lower operand) op (higher operand), where `mine` is this rank's operand.
 * The join of all.
 */
static int recv_reduce(struct shunt__schedule *s, shunt__place_t dst, shunt__place_t mine, shunt__place_t work,
                       size_t bytes, int peer, int mine_first, int after)
{
    int all = shunt__step_join(s);

    for (size_t at = 0; at < bytes; at += SEGMENT) {
        size_t part = shunt__min(SEGMENT, bytes - at);
        int got = shunt__step_recv(s, work + at, part, peer, SHUNT__NOW);
        int sum = shunt__step_reduce(s, dst + at, mine_first ? mine + at : work + at,
                                     mine_first ? work + at : mine + at, part, got);

        shunt__step_after(s, sum, after);
        shunt__step_after(s, all, sum);
    }
    return all;
}

/* The even rank of a pair: hands its vector over, gets the result. */
static void sit_out(struct shunt__schedule *s, size_t bytes, int neighbour)
{
    int sent = send_all(s, SHUNT__IN, bytes, neighbour, SHUNT__NOW);

    recv_all(s, SHUNT__OUT, bytes, neighbour, sent);
}

void shunt__allreduce_doubling(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t bytes = call->count * call->width;
    shunt__place_t mine = SHUNT__IN;
    int ready = SHUNT__NOW, read = SHUNT__NOW; /* `mine` is there; it was sent from SHUNT__IN */
    struct fold f;

    fold_shape(call, &f);
    if (f.number < 0) {
        sit_out(s, bytes, f.neighbour);
        return;
    }
    if (f.neighbour >= 0) {
        shunt__place_t sum = shunt__schedule_work(s, bytes);

        ready = recv_reduce(s, sum, mine, shunt__schedule_work(s, bytes), bytes, f.neighbour, 0, SHUNT__NOW);
        mine = sum;
    }
    for (int bit = 1; bit < f.power; bit *= 2) {
        int peer = rank_of(&f, f.number ^ bit), last = bit * 2 == f.power;
        shunt__place_t sum = last ? SHUNT__OUT : shunt__schedule_work(s, bytes);
        int sent = send_all(s, mine, bytes, peer, ready);

        if (mine == SHUNT__IN)
            read = sent;
        if (last && call->in_place && read >= 0) { /* the result must not overtake the first send */
            int both = shunt__step_join(s);

            shunt__step_after(s, both, ready);
            ready = shunt__step_after(s, both, read);
        }
        ready = recv_reduce(s, sum, mine, shunt__schedule_work(s, bytes), bytes, peer, !(f.number & bit), ready);
        mine = sum;
    }
    if (f.neighbour >= 0)
        send_all(s, SHUNT__OUT, bytes, f.neighbour, ready);
}

void shunt__allreduce_halving(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t bytes = call->count * call->width;
    shunt__place_t mine = SHUNT__IN;
    int ready = SHUNT__NOW, low = 0, sent[32], rounds = 0;
    struct fold f;

#define AT(part) (shunt__part(call->count, f.power, part) * call->width)
    fold_shape(call, &f);
    if (f.number < 0) {
        sit_out(s, bytes, f.neighbour);
        return;
    }
    if (f.neighbour >= 0) {
        ready = recv_reduce(s, SHUNT__OUT, SHUNT__IN, shunt__schedule_work(s, bytes), bytes, f.neighbour, 0, SHUNT__NOW);
        mine = SHUNT__OUT;
    }
    /* This rank's range is parts low .. low + 2 * half - 1. */
    for (int half = f.power / 2; half >= 1; half /= 2) {
        int upper = (f.number & half) != 0, peer = rank_of(&f, f.number ^ half);
        int keep = upper ? low + half : low, give = upper ? low : low + half;
        size_t keep_bytes = AT(keep + half) - AT(keep);

        sent[rounds] = send_all(s, mine + AT(give), AT(give + half) - AT(give), peer, ready);
        ready = recv_reduce(s, SHUNT__OUT + AT(keep), mine + AT(keep), shunt__schedule_work(s, keep_bytes), keep_bytes,
                            peer, !upper, ready);
        if (mine == SHUNT__IN && !call->in_place)
            sent[rounds] = SHUNT__NOW; /* what is received there later is another buffer */
        mine = SHUNT__OUT;
        low = keep;
        rounds++;
    }
    for (int half = 1; half < f.power; half *= 2) {
        int peer = rank_of(&f, f.number ^ half), other = low ^ half, both = shunt__step_join(s);

        send_all(s, SHUNT__OUT + AT(low), AT(low + half) - AT(low), peer, ready);
        shunt__step_after(s, both, ready);
        ready = shunt__step_join(s);
        shunt__step_after(s, ready, both);
        shunt__step_after(s, ready, recv_all(s, SHUNT__OUT + AT(other), AT(other + half) - AT(other), peer, sent[--rounds]));
        low &= ~half;
    }
    if (f.neighbour >= 0)
        send_all(s, SHUNT__OUT, bytes, f.neighbour, ready);
#undef AT
}

void shunt__reduce_scatter_halving(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;
    shunt__place_t mine = SHUNT__IN; /* place of the whole vector, of which the own range is filled */
    int ready = SHUNT__NOW, low = 0;

    for (int half = call->size / 2; half >= 1; half /= 2) {
        int upper = (call->rank & half) != 0, peer = call->rank ^ half;
        int keep = upper ? low + half : low, give = upper ? low : low + half;
        size_t bytes = block * (size_t)half;
        /* The sum's buffer holds the kept range only; `next` is where part 0 would be. */
        shunt__place_t sum = half == 1 ? SHUNT__OUT : shunt__schedule_work(s, bytes);

        send_all(s, mine + block * (size_t)give, bytes, peer, ready);
        ready = recv_reduce(s, sum, mine + block * (size_t)keep, shunt__schedule_work(s, bytes), bytes, peer, !upper,
                            ready);
        mine = sum - block * (size_t)keep;
        low = keep;
    }
}
