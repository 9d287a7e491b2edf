/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which libnccl.so.2 a process would get. Nothing is guessed that the dynamic linker can be asked: for a command it lists what
 * it would load (LD_TRACE_LOADED_OBJECTS, which runs nothing of the program), and this process, which was started with the
 * same environment, opens the library by name.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "info.h"

#define LIBRARY "libnccl.so.2"
#define PATH 4096

struct answer {
    char command[PATH]; /* what runs: the program, or a script's interpreter; empty: none was given */
    char library[PATH]; /* empty: none */
    char why[PATH + 200];
    int shunt;  /* the library is Shunt's */
    int off;    /* and hands every call on */
    int audit;  /* who opens NCCL by an absolute path gets Shunt's */
};

/* Shunt's library carries a note. */
static int is_shunt(const char *path, const char *mark, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), found = 0;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size < (4 << 20)) {
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        found = bytes != MAP_FAILED && memmem(bytes, (size_t)st.st_size, mark, len) != NULL;
        if (bytes != MAP_FAILED)
            munmap(bytes, (size_t)st.st_size);
    }
    if (fd >= 0)
        close(fd);
    return found;
}

static const char note[] = "Shunt\0\0\0nccl";

/* Whether a list of files or folders in the environment names `path`. */
static int names(const char *variable, const char *separators, const char *path, int folders)
{
    const char *list = getenv(variable);
    char entry[PATH];

    for (; list && *list; list += strcspn(list, separators), list += *list != '\0') {
        int len = (int)strcspn(list, separators);
        struct stat a, b;
        snprintf(entry, sizeof(entry), folders ? "%.*s/" LIBRARY : "%.*s", len, list);
        if (len > 0 && stat(entry, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return 1;
    }
    return 0;
}

static void reason(struct answer *a, const char *otherwise)
{
    if (!a->library[0])
        return;
    if (names("LD_PRELOAD", ": ", a->library, 0))
        snprintf(a->why, sizeof(a->why), "LD_PRELOAD names it");
    else if (names("LD_LIBRARY_PATH", ":;", a->library, 1))
        snprintf(a->why, sizeof(a->why), "its folder is in LD_LIBRARY_PATH");
    else
        snprintf(a->why, sizeof(a->why), "%s", otherwise);
}

static void by_name(struct answer *a)
{
    void *handle = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map;

    if (handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(a->library, sizeof(a->library), "%s", map->l_name);
    else
        snprintf(a->why, sizeof(a->why), "no folder where the dynamic linker looks has a " LIBRARY);
    reason(a, "its folder is one of the system's (ldconfig)");
}

static int find_command(const char *name, char *path)
{
    const char *list = getenv("PATH");

    if (strchr(name, '/')) {
        snprintf(path, PATH, "%s", name);
        return access(path, X_OK) == 0;
    }
    for (; list && *list; list += strcspn(list, ":"), list += *list == ':') {
        snprintf(path, PATH, "%.*s/%s", (int)strcspn(list, ":"), list, name);
        if (access(path, X_OK) == 0)
            return 1;
    }
    return 0;
}

/* What the first bytes say: a script's interpreter takes its place. 1: dynamically linked, 0: not, -1: nothing that runs. */
static int look_at(char *path)
{
    char head[PATH] = "", *p;
    int fd, kind = -1;

    for (int depth = 0; depth < 4; depth++) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        memset(head, 0, sizeof(head));
        if (fd < 0 || read(fd, head, sizeof(head) - 1) < 3) /* the rest is zeros */
            head[0] = '\0';
        if (fd >= 0)
            close(fd);
        if (strncmp(head, "#!", 2) != 0)
            break;
        p = head + 2 + strspn(head + 2, " \t");
        p[strcspn(p, "\r\n")] = '\0';
        if (strncmp(p, "/usr/bin/env ", 13) == 0) {
            char name[256];
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 13, " \t"), p + 13);
            if (!find_command(name, path))
                return -1;
        } else {
            snprintf(path, PATH, "%.*s", (int)strcspn(p, " \t"), p);
        }
    }
    if (memcmp(head, ELFMAG, SELFMAG) == 0) {
        const ElfW(Ehdr) *e = (const void *)head;
        kind = 0;
        for (int i = 0; i < e->e_phnum && e->e_phoff + (size_t)(i + 1) * sizeof(ElfW(Phdr)) <= sizeof(head); i++) {
            ElfW(Phdr) header;
            memcpy(&header, head + e->e_phoff + (size_t)i * sizeof(header), sizeof(header));
            kind |= header.p_type == PT_INTERP;
        }
    }
    return kind;
}

/* The dynamic linker's list for a program, whose code is not run. */
static void by_program(struct answer *a)
{
    char line[2 * PATH], preloaded[PATH] = "", needed[PATH] = "";
    int ends[2];
    FILE *list;
    pid_t pid;

    if (pipe(ends) != 0 || (pid = fork()) < 0)
        return;
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
        execl(a->command, a->command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    list = fdopen(ends[0], "r");
    while (list && fgets(line, sizeof(line), list)) {
        char *at = strstr(line, "libnccl"), *arrow = strstr(line, "=> "), *path;
        if (!at)
            continue;
        path = arrow ? arrow + 3 : line + strspn(line, " \t");
        path[strcspn(path, "\n")] = '\0';
        for (char *end = path + strlen(path); end > path; end--)
            if (strncmp(end, " (0x", 4) == 0) {
                *end = '\0';
                break;
            }
        snprintf(arrow ? needed : preloaded, PATH, "%s", path);
    }
    if (list)
        fclose(list);
    waitpid(pid, NULL, 0);
    if (preloaded[0] || needed[0]) {
        snprintf(a->library, sizeof(a->library), "%s", preloaded[0] ? preloaded : needed);
        reason(a, "the program needs it, and its RPATH, RUNPATH or the system's folders have it");
    } else {
        by_name(a);
        if (a->library[0]) {
            size_t n = strlen(a->why);
            snprintf(a->why + n, sizeof(a->why) - n, "; the program itself does not need one, a part that it opens may");
        }
    }
}

static void quote(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < ' ')
            printf("\\u%04x", (unsigned char)*text);
        else
            putchar(*text);
    putchar('"');
}

static void print(const struct answer *a, int json)
{
    if (json) {
        printf("{\"command\": ");
        quote(a->command);
        printf(", \"library\": ");
        quote(a->library);
        printf(", \"why\": ");
        quote(a->why);
        printf(", \"shunt\": %s, \"off\": %s, \"absolute_paths\": %s}\n", a->shunt ? "true" : "false",
               a->off ? "true" : "false", a->audit ? "true" : "false");
        return;
    }
    if (a->command[0])
        printf("%s\n", a->command);
    printf("%s: %s\nbecause %s\n", a->library[0] ? a->library : "no " LIBRARY,
           !a->library[0] ? "none is found" : a->shunt ? "Shunt's" : "not Shunt's", a->why);
    if (a->off)
        printf("SHUNT_NCCL=off: every call goes on to the NCCL that is found (SHUNT_NCCL_LIB)\n");
    if (!a->shunt)
        printf("To switch Shunt's on: LD_PRELOAD=.../shunt/" LIBRARY ", see shunt-nccl(7)\n");
    printf("Who opens NCCL by an absolute path gets %s\n",
           a->audit ? "Shunt's: LD_AUDIT names its module" : "what is there; LD_AUDIT=.../shunt/libshunt-audit.so changes that");
}

int show_nccl(char **command, int json)
{
    const char *mode = getenv("SHUNT_NCCL"), *audit = getenv("LD_AUDIT");
    struct answer a = {0};

    a.audit = audit && strstr(audit, "libshunt-audit.so") != NULL;
    a.off = mode && (!strcasecmp(mode, "off") || !strcmp(mode, "0") || !strcasecmp(mode, "no"));
    if (a.off)
        a.audit = 0;
    if (command) {
        int kind = find_command(command[0], a.command) ? look_at(a.command) : -1;
        struct stat st;
        if (kind < 0) {
            fprintf(stderr, "shunt-info: there is no program %s\n", command[0]);
            return 2;
        }
        if (kind == 0)
            snprintf(a.why, sizeof(a.why), "the program is linked statically: nothing can be put in front of what it contains");
        else if (stat(a.command, &st) == 0 && st.st_mode & (S_ISUID | S_ISGID))
            snprintf(a.why, sizeof(a.why), "the program runs with other rights (set-uid): it ignores LD_PRELOAD with a path");
        else
            by_program(&a);
    } else {
        by_name(&a);
    }
    a.shunt = a.library[0] && is_shunt(a.library, note, sizeof(note) - 1);
    print(&a, json);
    return !a.shunt;
}
