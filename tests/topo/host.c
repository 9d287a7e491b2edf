/* SPDX-License-Identifier: BSD-3-Clause */
/* Host identity: equal where memory is shared, different where it is not; the live host's NICs. */
#include <sys/stat.h>
#include <unistd.h>
#include "tests/tap.h"
#include "topo/host.h"

static char folder[] = "/tmp/shunt-host-XXXXXX";

static void write_file(const char *name, const char *text, char *path)
{
    FILE *f;

    sprintf(path, "%s/%s", folder, name);
    f = fopen(path, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static int same(const shunt_host_id_t *a, const shunt_host_id_t *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

int main(void)
{
    char boot1[64], boot2[64], machine[64], shm1[64], shm2[64], *long_name = malloc(10001);
    shunt_host_id_t a, b, c, d;
    shunt_topo_t *topo = NULL;

    if (!mkdtemp(folder))
        return 1;
    write_file("boot1", "4f68b7ed-98d1-4ef3-9fb6-e1ee9b54472b\n", boot1);
    write_file("boot2", "00000000-98d1-4ef3-9fb6-e1ee9b54472b\n", boot2);
    write_file("machine", "0123456789abcdef0123456789abcdef\n", machine);
    sprintf(shm1, "%s/shm1", folder);
    sprintf(shm2, "%s/shm2", folder);
    mkdir(shm1, 0700);
    mkdir(shm2, 0700);
    struct shunt__host_paths one = {boot1, machine, shm1}, other_shm = {boot1, machine, shm2},
                             other_boot = {boot2, machine, shm1}, no_boot = {"/nonexistent", machine, shm1},
                             nothing = {"/nonexistent", "/nonexistent", "/nonexistent"};

    is_int(shunt__host_id_from(NULL, "NCCL_HOSTID", &one, &a), SHUNT_OK, "an identity without settings");
    shunt__host_id_from("", "NCCL_HOSTID", &one, &b);
    ok(same(&a, &b), "the same twice is equal, an empty setting is none: %s", a.text);
    shunt__host_id_from(NULL, "NCCL_HOSTID", &other_shm, &b);
    ok(!same(&a, &b), "two containers with their own /dev/shm differ: %s", b.text);
    shunt__host_id_from(NULL, "NCCL_HOSTID", &other_boot, &b);
    ok(!same(&a, &b), "two kernels differ, whatever their hostname: %s", b.text);
    shunt__host_id_from(NULL, "NCCL_HOSTID", &no_boot, &b);
    ok(!same(&a, &b) && strstr(b.text, "machine"), "without a boot id the machine id: %s", b.text);
    is_int(shunt__host_id_from(NULL, "NCCL_HOSTID", &nothing, &b), SHUNT_OK,
           "with nothing at all there still is one: %s", b.text);
    shunt__host_id_from("node.a", "NCCL_HOSTID", &one, &c);
    shunt__host_id_from("node.b", "NCCL_HOSTID", &one, &d);
    ok(!same(&c, &d), "node.a and node.b differ");
    shunt__host_id_from("node.a", "SHUNT_HOSTID", &other_boot, &d);
    ok(same(&c, &d), "what is set wins over what is found");
    memset(long_name, 'x', 10000);
    long_name[10000] = 0;
    shunt__host_id_from(long_name, "NCCL_HOSTID", &one, &c);
    long_name[9999] = 'y';
    shunt__host_id_from(long_name, "NCCL_HOSTID", &one, &d);
    ok(!same(&c, &d), "long ids are read to their end");
    free(long_name);

    unsetenv("SHUNT_HOSTID");
    unsetenv("NCCL_HOSTID");
    is_int(shunt_host_id(&a), SHUNT_OK, "the live host: %s", a.text);
    setenv("NCCL_HOSTID", "n", 1);
    setenv("SHUNT_HOSTID", "s", 1);
    shunt_host_id(&b);
    is_str(b.text, "SHUNT_HOSTID=s", "SHUNT_HOSTID comes first");
    is_int(shunt_host_id(NULL), SHUNT_ERR_INVALID, "NULL is refused");

    is_int(shunt_topo_load_live(1, &topo), SHUNT_OK, "the live host's NICs load");
    ok(topo && shunt_topo_count(topo, SHUNT_TOPO_HOST) == 1, "on one host");
    for (unsigned i = 0; i < shunt_topo_count(topo, SHUNT_TOPO_NIC); i++) {
        const shunt_topo_nic_t *nic = shunt_topo_get(topo, SHUNT_TOPO_NIC, i)->nic;
        ok(nic && nic->name && nic->reason && nic->driver && nic->kind && nic->rate > 0,
           "%s, %s, %.4g Gbit/s: %s", nic->name, shunt_topo_nic_state_name(nic->state),
           (double)nic->rate / 1e9, nic->reason);
    }
    ok(shunt_topo_get(topo, SHUNT_TOPO_NIC, 100000) == NULL, "none beyond the last");
    ok(shunt_topo_find(topo, "no such thing") == NULL, "what does not exist is not found");
    shunt_topo_destroy(topo);
    unlink(boot1);
    unlink(boot2);
    unlink(machine);
    rmdir(shm1);
    rmdir(shm2);
    rmdir(folder);
    return done();
}
