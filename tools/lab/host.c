/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A virtual host is a set of namespaces: network, UTS name, mounts (an own /dev/shm, and a /sys that shows its own
 * interfaces) and System V IPC. Process numbers stay common to all, so that a debugger outside sees everything.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tools/lab/lab.h"

static int own_mounts(void)
{
    /* A slave: what is mounted outside later still shows up here, nothing of ours gets out. */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
        return lab_fail("mount namespace");
    if (mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"))
        return lab_fail("mount /dev/shm");
    if (mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
        return lab_fail("mount /sys");
    return 0;
}

int lab_host(int argc, char **argv)
{
    const char *name = argv[0], *pid_file = argv[1];

    (void)argc;
    lab_background();
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWIPC))
        return lab_fail("no namespaces for host %s", name);
    if (sethostname(name, strlen(name)))
        return lab_fail("hostname %s", name);
    if (own_mounts() || lab_ready(pid_file))
        return 1;
    prctl(PR_SET_NAME, name);
    /* A lab whose files were removed by hand has no other way to end. */
    while (access(pid_file, F_OK) == 0)
        sleep(2);
    return 0;
}

int lab_enter(int argc, char **argv)
{
    int types = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS;
    char here[PATH_MAX];
    pid_t pid = (pid_t)atoi(argv[0]), parent = getppid();
    int fd = (int)syscall(SYS_pidfd_open, pid, 0), code;

    (void)argc;
    if (fd < 0)
        return lab_fail("process %s, which keeps the host alive", argv[0]);
    if (!getcwd(here, sizeof(here)))
        strcpy(here, "/");
    if (setns(fd, types))
        return lab_fail("entering the host of process %s", argv[0]);
    close(fd);
    if (chdir(here) && chdir("/"))
        return lab_fail("%s", here);
    /* A shell that is killed outright can't end what it started. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        return 1;
    execvp(argv[1], argv + 1);
    code = errno == ENOENT ? 127 : 126;
    lab_fail("%s", argv[1]);
    return code;
}
