#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Which libnccl.so.2 a process gets, by each of the ways in which programs ask for one. "Real" is a library that says
# it is version 1; Shunt's says 22809.
test_description='loading libnccl.so.2: every way in, the way out, and that nobody notices it who does not call it'
. /usr/share/sharness/sharness.sh

folder=$abs_top_builddir/shim/.libs
shim=$folder/libnccl.so.2
audit=$folder/libshunt-audit.so
CC=${CC:-cc}
here=$PWD
nm -D "$shim" 2>/dev/null | grep -q __asan_init || test_set_prereq PLAIN
command -v python3 >/dev/null && test_set_prereq PYTHON
unset LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT

mkdir real
cat >real.c <<\EOF
int ncclGetVersion(int *version) { *version = 1; return 0; }
EOF
cat >client.c <<\EOF
#include <stdio.h>
int ncclGetVersion(int *version);
int answer(void) { int v = 0; ncclGetVersion(&v); return v; }
#ifndef PLUGIN
int main(void) { printf("%d\n", answer()); return 0; }
#endif
EOF
cat >opener.c <<\EOF
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
/* opener LIBRARY FUNCTION [deepbind]: opens LIBRARY ("default": nothing) and calls FUNCTION */
int main(int argc, char **argv)
{
	int v = 0;
	void *h = RTLD_DEFAULT, *f;

	if (strcmp(argv[1], "default") && !(h = dlopen(argv[1], RTLD_NOW | (argc > 3 ? RTLD_DEEPBIND : 0))))
		return printf("%s\n", dlerror()), 1;
	if (!(f = dlsym(h, argv[2])))
		return puts("no such function"), 1;
	if (!strcmp(argv[2], "answer"))
		v = ((int (*)(void))f)();
	else
		((int (*)(int *))f)(&v);
	printf("%d\n", v);
	return 0;
}
EOF
$CC -shared -fPIC -Wl,-soname,libnccl.so.2 -o real/libnccl.so.2 real.c && ln -s libnccl.so.2 real/libnccl.so &&
	$CC -o runpath client.c -Lreal -lnccl -Wl,--enable-new-dtags,-rpath,"$here/real" &&
	$CC -o rpath client.c -Lreal -lnccl -Wl,--disable-new-dtags,-rpath,"$here/real" &&
	$CC -DPLUGIN -shared -fPIC -o plugin.so client.c -Lreal -lnccl -Wl,-rpath,"$here/real" &&
	$CC -o opener opener.c -ldl || { echo "Bail out! no compiler"; exit 1; }

# gets VERSION [VARIABLE=VALUE...] PROGRAM...
gets() {
	want=$1
	shift
	env "$@" >out 2>&1 && test "$(cat out)" = "$want" || { echo "$*: wanted $want, got: $(cat out)"; return 1; }
}

test_expect_success 'alone, all of them get the real one' '
	gets 1 ./runpath && gets 1 ./rpath && gets 1 ./opener "$here/real/libnccl.so.2" ncclGetVersion &&
	gets 1 ./opener ./plugin.so answer && gets 1 LD_LIBRARY_PATH=real ./opener libnccl.so.2 ncclGetVersion
'
test_expect_success PLAIN 'LD_PRELOAD: needed by the program, with RUNPATH and with RPATH' '
	gets 22809 LD_PRELOAD="$shim" ./runpath && gets 22809 LD_PRELOAD="$shim" ./rpath
'
test_expect_success PLAIN 'LD_PRELOAD: needed by a plugin, with RTLD_DEEPBIND too' '
	gets 22809 LD_PRELOAD="$shim" ./opener ./plugin.so answer &&
	gets 22809 LD_PRELOAD="$shim" ./opener ./plugin.so answer deepbind
'
test_expect_success PLAIN 'LD_PRELOAD: dlopen by name, and dlsym without a library' '
	gets 22809 LD_PRELOAD="$shim" LD_LIBRARY_PATH=real ./opener libnccl.so.2 ncclGetVersion &&
	gets 22809 LD_PRELOAD="$shim" ./opener default ncclGetVersion
'
test_expect_success PLAIN 'LD_LIBRARY_PATH in place of LD_PRELOAD: before RUNPATH, not before RPATH' '
	gets 22809 LD_LIBRARY_PATH="$folder" ./runpath && gets 1 LD_LIBRARY_PATH="$folder" ./rpath &&
	gets 22809 LD_LIBRARY_PATH="$folder" ./opener libnccl.so.2 ncclGetVersion
'
test_expect_success PLAIN 'an absolute path needs LD_AUDIT' '
	gets 1 LD_PRELOAD="$shim" ./opener "$here/real/libnccl.so.2" ncclGetVersion &&
	gets 22809 LD_AUDIT="$audit" ./opener "$here/real/libnccl.so.2" ncclGetVersion &&
	gets 22809 LD_AUDIT="$audit" LD_PRELOAD="$shim" ./opener "$here/real/libnccl.so.2" ncclGetVersion &&
	gets 22809 LD_AUDIT="$audit" ./rpath && gets 22809 LD_AUDIT="$audit" ./opener ./plugin.so answer deepbind
'
test_expect_success PLAIN 'SHUNT_NCCL=off hands every call to the real one: SHUNT_NCCL_LIB, or found' '
	export SHUNT_NCCL_LIB="$here/real/libnccl.so.2" &&
	gets 1 SHUNT_NCCL=off LD_PRELOAD="$shim" ./runpath && gets 1 SHUNT_NCCL=off LD_PRELOAD="$shim" ./opener default ncclGetVersion &&
	gets 1 SHUNT_NCCL=off LD_AUDIT="$audit" LD_PRELOAD="$shim" ./opener "$here/real/libnccl.so.2" ncclGetVersion &&
	unset SHUNT_NCCL_LIB &&
	gets 1 SHUNT_NCCL=off LD_LIBRARY_PATH="$here/real" LD_PRELOAD="$shim" ./runpath &&
	gets 1 SHUNT_NCCL=off LD_LIBRARY_PATH="$folder:$here/real" ./runpath
'
test_expect_success PLAIN 'with SHUNT_NCCL=off and no other library the error says what to set' '
	cat >error.c <<-\EOF &&
	#include <stdio.h>
	int ncclGetUniqueId(void *id);
	const char *ncclGetLastError(void *comm);
	int main(void) { char id[128]; int r = ncclGetUniqueId(id); printf("%d %s\n", r, ncclGetLastError(NULL)); return 0; }
	EOF
	$CC -o error error.c -L"$folder" -lnccl -Wl,-rpath,"$folder" &&
	SHUNT_NCCL=off SHUNT_NCCL_LIB=/nowhere/libnccl.so.2 ./error >out && cat out &&
	grep "^2 .*SHUNT_NCCL_LIB" out
'

# says PATTERN CODE [VARIABLE=VALUE...] [COMMAND...]
says() {
	pattern=$1 code=$2
	shift 2
	env "$@" >said 2>&1
	test $? = $code && grep -q "$pattern" said || { echo "$*: wanted $pattern"; cat said; return 1; }
}
test_expect_success PLAIN 'shunt-info --nccl says which one a command gets, and why' '
	says "real/libnccl.so.2: not Shunt" 1 shunt-info --nccl ./runpath && grep "RUNPATH" said &&
	says "libnccl.so.2: Shunt" 0 LD_PRELOAD="$shim" shunt-info --nccl ./rpath && grep "LD_PRELOAD names it" said &&
	says "libnccl.so.2: Shunt" 0 LD_LIBRARY_PATH="$folder" shunt-info --nccl ./runpath &&
	grep "in LD_LIBRARY_PATH" said &&
	says "real/libnccl.so.2: not Shunt" 1 LD_LIBRARY_PATH="$folder" shunt-info --nccl ./rpath &&
	says "libnccl.so.2: Shunt" 0 LD_LIBRARY_PATH="$folder" shunt-info --nccl ./opener x y &&
	grep "itself does not need one" said &&
	says "absolute path gets Shunt" 0 LD_AUDIT="$audit" LD_PRELOAD="$shim" shunt-info --nccl &&
	says "SHUNT_NCCL=off" 0 SHUNT_NCCL=off LD_PRELOAD="$shim" shunt-info --nccl ./runpath &&
	says "there is no program nonsense" 2 shunt-info --nccl nonsense &&
	says "\"shunt\": true, \"off\": false" 0 LD_PRELOAD="$shim" shunt-info --nccl --json ./runpath
'
test_expect_success PLAIN 'of a script it looks at the interpreter' '
	printf "#!%s\n" "$(command -v env | sed "s/env/sh/")" >script && chmod +x script &&
	says "/sh$" 0 LD_PRELOAD="$shim" shunt-info --nccl ./script
'

cat >look.py <<\EOF
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["Threads"].strip(), status["SigCgt"].strip(), status["SigIgn"].strip(), status["SigBlk"].strip())
print(sorted(os.listdir("/proc/self/fd")))
print(sorted(line.split("/")[-1].strip() for line in open("/proc/self/maps")
             if ".so" in line and "libnccl" not in line and "r-xp" in line))
EOF
test_expect_success PLAIN,PYTHON 'Python under preload has the same threads, descriptors, signals and libraries as without' '
	python3 look.py >without && LD_PRELOAD="$shim" python3 look.py >with && test_cmp without with &&
	LD_PRELOAD="$shim" /bin/true && LD_PRELOAD="$shim" sh -c "echo fine" | grep -q fine
'
cat >pynccl.py <<\EOF
# The calls of vLLM's wrapper, in its order: version, id, init, all-reduce for a warm-up, the others, destroy.
import ctypes, os, sys
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
lib = ctypes.CDLL(sys.argv[1])
size = int(sys.argv[2])
P, I, S = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
prototypes = {
    "ncclGetErrorString": (ctypes.c_char_p, [I]), "ncclGetVersion": (I, [P]), "ncclGetUniqueId": (I, [P]),
    "ncclCommInitRank": (I, [P, I, Id, I]), "ncclAllReduce": (I, [P, P, S, I, I, P, P]),
    "ncclReduce": (I, [P, P, S, I, I, I, P, P]), "ncclAllGather": (I, [P, P, S, I, P, P]),
    "ncclReduceScatter": (I, [P, P, S, I, I, P, P]), "ncclSend": (I, [P, S, I, I, P, P]),
    "ncclRecv": (I, [P, S, I, I, P, P]), "ncclBroadcast": (I, [P, P, S, I, I, P, P]),
    "ncclCommDestroy": (I, [P]), "ncclGroupStart": (I, []), "ncclGroupEnd": (I, []),
    "ncclCommWindowRegister": (I, [P, P, S, P, I]), "ncclCommWindowDeregister": (I, [P, P])}
for name, (result, arguments) in prototypes.items():
    getattr(lib, name).restype, getattr(lib, name).argtypes = result, arguments
def call(name, *arguments):
    result = getattr(lib, name)(*arguments)
    if result != 0:
        sys.exit(f"{name}: {lib.ncclGetErrorString(result).decode()}")
version = I()
call("ncclGetVersion", ctypes.byref(version))
assert version.value == 22809, version.value
uid = Id()
rank = 0
pipes = [os.pipe() for _ in range(size)]
for r in range(1, size):
    if os.fork() == 0:
        rank = r
        break
if rank == 0:
    call("ncclGetUniqueId", ctypes.byref(uid))
    for r in range(1, size):
        os.write(pipes[r][1], bytes(uid))
else:
    uid = Id.from_buffer_copy(os.read(pipes[rank][0], 128))
comm = P()
call("ncclCommInitRank", ctypes.byref(comm), size, uid, rank)
F, B = 7, 9 # float32, bfloat16
floats = ctypes.c_float * 4
x, y, z = floats(*[rank + 1.0] * 4), floats(), (ctypes.c_float * (4 * size))()
call("ncclAllReduce", x, y, 4, F, 0, comm, None)
assert list(y) == [size * (size + 1) / 2] * 4, list(y)
call("ncclAllGather", x, z, 4, F, comm, None)
assert [z[4 * r] for r in range(size)] == [r + 1.0 for r in range(size)]
call("ncclReduceScatter", z, y, 4, F, 0, comm, None)
assert y[0] == size * (rank + 1.0), list(y)
call("ncclBroadcast", x, y, 4, F, size - 1, comm, None)
assert y[0] == size
call("ncclReduce", x, y, 4, F, 0, 0, comm, None)
assert rank or y[0] == size * (size + 1) / 2
if rank == 0:
    call("ncclSend", x, 4, F, 1, comm, None)
if rank == 1:
    call("ncclRecv", y, 4, F, 0, comm, None)
    assert y[0] == 1.0
call("ncclGroupStart")
call("ncclSend", x, 4, F, (rank + 1) % size, comm, None)
call("ncclRecv", y, 4, F, (rank - 1) % size, comm, None)
call("ncclGroupEnd")
assert y[0] == (rank - 1) % size + 1.0
window = P()
call("ncclCommWindowRegister", comm, x, 16, ctypes.byref(window), 1)
call("ncclCommWindowDeregister", comm, window)
call("ncclCommDestroy", comm)
if rank:
    os._exit(0)
for r in range(1, size):
    if os.wait()[1] != 0:
        sys.exit("a rank failed")
EOF
test_expect_success PLAIN,PYTHON "ctypes: the calls of pynccl, opened by name and by path, 2 and 3 ranks" '
	LD_LIBRARY_PATH="$folder" python3 pynccl.py libnccl.so.2 2 && python3 pynccl.py "$shim" 3
'
cat >ucx.c <<\EOF
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>
int main(void)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	ucp_worker_params_t wparams = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
	int (*id_fn)(void *), (*reduce)(const void *, void *, size_t, int, int, void *, void *), (*destroy)(void *);
	struct id { char b[128]; } id;
	int (*init)(void **, int, struct id, int);
	ucp_context_h context;
	ucp_config_t *config;
	ucp_worker_h worker;
	ucp_address_t *address;
	ucp_ep_h ep;
	float x = 2, y = 0;
	char in[6] = "hello", out[6] = "";
	size_t len;
	void *comm;

	ucp_config_read(NULL, NULL, &config);
	if (ucp_init(&params, config, &context) || ucp_worker_create(context, &wparams, &worker) ||
	    ucp_worker_get_address(worker, &address, &len))
		return puts("no UCX"), 77;
	id_fn = dlsym(RTLD_DEFAULT, "ncclGetUniqueId");
	init = dlsym(RTLD_DEFAULT, "ncclCommInitRank");
	reduce = dlsym(RTLD_DEFAULT, "ncclAllReduce");
	destroy = dlsym(RTLD_DEFAULT, "ncclCommDestroy");
	if (!id_fn || id_fn(&id) || init(&comm, 1, id, 0) || reduce(&x, &y, 1, 7, 0, comm, NULL) || y != 2)
		return puts("the shim failed"), 1;
	ucp_ep_params_t eparams = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
	ucp_request_param_t none = {0};
	if (ucp_ep_create(worker, &eparams, &ep))
		return puts("no endpoint"), 1;
	void *r = ucp_tag_recv_nbx(worker, out, 6, 5, (ucp_tag_t)-1, &none);
	void *s = ucp_tag_send_nbx(ep, in, 6, 5, &none);
	if (UCS_PTR_IS_ERR(r) || UCS_PTR_IS_ERR(s))
		return puts("no message"), 1;
	while ((r && ucp_request_check_status(r) == UCS_INPROGRESS) ||
	       (s && ucp_request_check_status(s) == UCS_INPROGRESS))
		ucp_worker_progress(worker);
	if (r)
		ucp_request_free(r);
	if (s)
		ucp_request_free(s);
	if (destroy(comm) || strcmp(in, out))
		return printf("got %s\n", out), 1;
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	return 0;
}
EOF
printf '#include <ucp/api/ucp.h>\n' >try.c
$CC -fsyntax-only try.c 2>/dev/null && $CC -o ucx ucx.c -lucp -lucs -ldl 2>ucx.log && test_set_prereq UCX
test_expect_success PLAIN,UCX 'a program that uses UCX by itself goes on doing so' '
	LD_PRELOAD="$shim" UCX_TLS=tcp,self ./ucx && LD_PRELOAD="$shim" SHUNT_BACKEND=ucx ./ucx
'

test_done
