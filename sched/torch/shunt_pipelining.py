# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline schedules for torch.distributed.pipelining that follow the delays of the job's links.

    from shunt_pipelining import AdaptivePipeline

    pipeline = AdaptivePipeline([stage], n_microbatches=16, loss_fn=loss_fn, split=False)
    for batch, target in data:
        event = pipeline.step(batch, target=target)      # as PyTorch's schedules, on every rank
        if event.changed and rank == 0:
            print(event.text)

Each rank holds one stage. Traffic is carried by whatever process group the stages use (Gloo, NCCL); the module times the
stages' computations and, per link, from the end of an operation to the start of the one that waited for its message. Only the
sum over both directions of a link is used, so the hosts' clocks need not agree. After each step the ranks exchange these times
(one all-gather of 6 numbers per micro-batch) and plan by the same rules, in libshunt; a new plan is loaded into PyTorch's
_PipelineScheduleRuntime as its own CSV table.

The library is found through SHUNT_LIBRARY, the loader's path, or libshunt.so.0 beside an installed package.
"""

import ctypes
import ctypes.util
import os
import statistics
import tempfile
import time
from dataclasses import dataclass

__all__ = ["AdaptivePipeline", "Event", "Plan", "ShuntError", "plan"]


class ShuntError(RuntimeError):
    """What libshunt refused, in its own words."""


class _PlanParams(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", ctypes.c_uint), ("effort", ctypes.c_double), ("thrift", ctypes.c_double)]


class _AdaptParams(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("flags", ctypes.c_uint), ("effort", ctypes.c_double), ("thrift", ctypes.c_double),
                ("deviation", ctypes.c_double), ("gain", ctypes.c_double), ("calm", ctypes.c_int)]


class _Event(ctypes.Structure):
    _fields_ = [("step", ctypes.c_int), ("changed", ctypes.c_int), ("predicted_before", ctypes.c_double),
                ("predicted", ctypes.c_double), ("text", ctypes.c_char_p)]


class _Op(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("chunk", ctypes.c_int), ("microbatch", ctypes.c_int)]


NO_SPLIT, ONLY_SPLIT = 1, 2
_PYTORCH = 2  # SHUNT_SCHED_PYTORCH
_POINTER, _INT, _DOUBLE = ctypes.c_void_p, ctypes.c_int, ctypes.c_double
_library = None


def _load():
    global _library
    if _library is not None:
        return _library
    names = [os.environ.get("SHUNT_LIBRARY"), "libshunt.so.0", ctypes.util.find_library("shunt")]
    problem = None
    for name in filter(None, names):
        try:
            lib = ctypes.CDLL(name)
            break
        except OSError as error:
            problem = problem or error
    else:
        raise ImportError(f"libshunt.so.0 can't be loaded; set SHUNT_LIBRARY to its path ({problem})")
    lib.shunt_error_text.restype = ctypes.c_char_p
    lib.shunt_sched_plan_makespan.restype = _DOUBLE
    lib.shunt_sched_plan_lower_bound.restype = _DOUBLE
    lib.shunt_sched_plan_reason.restype = ctypes.c_char_p
    lib.shunt_sched_plan_schedule.restype = _POINTER
    lib.shunt_sched_adapt_schedule.restype = _POINTER
    lib.shunt_sched_adapt_error.restype = _DOUBLE
    lib.shunt_sched_op.restype = _Op
    for name, arguments in {
        "shunt_sched_profile_set_stage": [_POINTER, _INT, _DOUBLE, _DOUBLE, _DOUBLE],
        "shunt_sched_profile_set_link": [_POINTER, _INT, _DOUBLE, _DOUBLE, _DOUBLE, _DOUBLE],
        "shunt_sched_profile_set_cap": [_POINTER, _INT, _INT],
        "shunt_sched_profile_destroy": [_POINTER],
        "shunt_sched_plan_create": [_POINTER, _POINTER, _POINTER],
        "shunt_sched_plan_destroy": [_POINTER],
        "shunt_sched_plan_schedule": [_POINTER],
        "shunt_sched_plan_makespan": [_POINTER],
        "shunt_sched_plan_lower_bound": [_POINTER],
        "shunt_sched_plan_reason": [_POINTER],
        "shunt_sched_stages": [_POINTER],
        "shunt_sched_warmup": [_POINTER, _INT],
        "shunt_sched_count": [_POINTER, _INT],
        "shunt_sched_op": [_POINTER, _INT, _INT],
        "shunt_sched_adapt_create": [_POINTER, _POINTER, _POINTER],
        "shunt_sched_adapt_destroy": [_POINTER],
        "shunt_sched_adapt_entries": [_POINTER],
        "shunt_sched_adapt_put_stage": [_POINTER, _POINTER, _INT, _INT, _DOUBLE, _DOUBLE, _DOUBLE],
        "shunt_sched_adapt_put_link": [_POINTER, _POINTER, _INT, _DOUBLE, _DOUBLE, _DOUBLE],
        "shunt_sched_adapt_step": [_POINTER, _INT, _POINTER, _DOUBLE, _POINTER],
        "shunt_sched_adapt_schedule": [_POINTER],
        "shunt_sched_adapt_error": [_POINTER],
    }.items():
        getattr(lib, name).argtypes = arguments
    _library = lib
    return lib


def _check(status):
    if status != 0:
        raise ShuntError(_load().shunt_error_text().decode())


def _each(value, n):
    """One number for all stages, or a sequence of n."""
    if isinstance(value, (int, float)):
        return [value] * n
    if len(value) != n:
        raise ValueError(f"{len(value)} entries for {n} stages")
    return list(value)


def _profile(stages, microbatches, forward, backward, weight, latency, caps):
    lib, profile = _load(), _POINTER()
    _check(lib.shunt_sched_profile_create(stages, 1, microbatches, ctypes.byref(profile)))
    try:
        for i, (f, b, w) in enumerate(zip(_each(forward, stages), _each(backward, stages), _each(weight, stages))):
            _check(lib.shunt_sched_profile_set_stage(profile, i, f, b, w))
        for i, c in dict(latency or {}).items():
            _check(lib.shunt_sched_profile_set_link(profile, i, c, c, 0, 0))
        for i, cap in enumerate(_each(caps or 0, stages)):
            _check(lib.shunt_sched_profile_set_cap(profile, i, cap))
    except Exception:
        lib.shunt_sched_profile_destroy(profile)
        raise
    return profile


def _rows(schedule):
    """A schedule's operations as PyTorch writes them, without bubbles: one list of cells per rank."""
    lib = _load()
    rows = []
    for i in range(lib.shunt_sched_stages(schedule)):
        ops = (lib.shunt_sched_op(schedule, i, k) for k in range(lib.shunt_sched_count(schedule, i)))
        rows.append([f"{i}{'FBIW'[op.type]}{op.microbatch}" for op in ops])
    return rows


def _warmup(schedule):
    lib = _load()
    return [lib.shunt_sched_warmup(schedule, i) for i in range(lib.shunt_sched_stages(schedule))]


@dataclass
class Plan:
    """A schedule found by plan(): its cells per rank, forwards before the first backward, predicted time, and why."""

    rows: list
    warmup: list
    makespan: float
    lower_bound: float
    reason: str

    def write_csv(self, path):
        with open(path, "w") as out:
            out.writelines(",".join(row) + "\n" for row in self.rows)


def plan(stages, microbatches, forward, backward, weight=0, latency=None, caps=None, split=True, effort=1.0):
    """The best schedule found. Times per stage are one number or one per stage; latency maps a link (i joins stage i and i + 1)
    to its delay each way; caps limit the live micro-batches. With split=False backwards stay whole."""
    lib, found = _load(), _POINTER()
    profile = _profile(stages, microbatches, forward, backward, weight, latency, caps)
    params = _PlanParams(ctypes.sizeof(_PlanParams), 0 if split else NO_SPLIT, effort, 0)
    try:
        _check(lib.shunt_sched_plan_create(profile, ctypes.byref(params), ctypes.byref(found)))
    finally:
        lib.shunt_sched_profile_destroy(profile)
    schedule = lib.shunt_sched_plan_schedule(found)
    result = Plan(_rows(schedule), _warmup(schedule), lib.shunt_sched_plan_makespan(found),
                  lib.shunt_sched_plan_lower_bound(found), lib.shunt_sched_plan_reason(found).decode())
    lib.shunt_sched_plan_destroy(found)
    return result


@dataclass
class Event:
    """What an iteration boundary brought: whether the plan is a new one, the reason, and the predicted seconds per iteration."""

    step: int
    changed: bool
    text: str
    predicted: float
    took: float


class _Clock:
    """Start and end of each operation of a stage, noted by wrapping the stage's methods."""

    def __init__(self, stage, microbatches):
        self.times = [[0.0] * microbatches for _ in range(6)]  # F start, F end, B or I start, its end, W start, W end
        self._wrap(stage, "forward_one_chunk", 0)
        self._wrap(stage, "backward_one_chunk", 2)
        self._wrap(stage, "backward_weight_one_chunk", 4)

    def _wrap(self, stage, name, slot):
        method = getattr(stage, name)

        def timed(chunk, *args, **kwargs):
            self.times[slot][chunk] = time.monotonic()
            result = method(chunk, *args, **kwargs)
            self.times[slot + 1][chunk] = time.monotonic()
            return result

        setattr(stage, name, timed)


class AdaptivePipeline:
    """A _PipelineScheduleRuntime whose plan follows the measured delays from step to step.

    stages: a list with this rank's PipelineStage; loss_fn as PyTorch's schedules take it. split allows plans that compute weight
    gradients apart. caps limits live micro-batches (one number or one per stage). Every rank must call step() alike.
    Further keyword arguments go to _PipelineScheduleRuntime.
    """

    def __init__(self, stages, n_microbatches, loss_fn, split=False, caps=None, gain=0.0, effort=0.0, **kwargs):
        import torch
        from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

        if len(stages) != 1:
            raise ValueError("one stage per rank: the planner orders one chunk")
        self._torch, self._stage, self._m = torch, stages[0], n_microbatches
        self._p, self._rank = self._stage.group_size, self._stage.group_rank
        self._clock = _Clock(self._stage, n_microbatches)
        self._split, self._caps = split, caps
        self._params = _AdaptParams(ctypes.sizeof(_AdaptParams), 0 if split else NO_SPLIT, effort, 0, 0, gain, 0)
        self._adapt, self._step = None, 0
        self.runtime = _PipelineScheduleRuntime(stages, n_microbatches, loss_fn=loss_fn, **kwargs)
        # The first two steps run a plan for equal stages, with a split if there may be one, so that its parts get measured.
        self._load_rows(plan(self._p, n_microbatches, 1, 1, 1 if split else 0, caps=caps, split=split).rows)

    def __del__(self):
        if getattr(self, "_adapt", None):
            _load().shunt_sched_adapt_destroy(self._adapt)

    @property
    def warmup(self):
        """Forwards before the first backward, per stage, of the plan that holds."""
        return _warmup(_load().shunt_sched_adapt_schedule(self._adapt)) if self._adapt else None

    @property
    def error(self):
        """Mean relative error of the predicted iteration time since the last change."""
        return _load().shunt_sched_adapt_error(self._adapt) if self._adapt else 0.0

    def _load_rows(self, rows):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as table:
            table.writelines(",".join(row) + "\n" for row in rows)
            table.flush()
            self.runtime._load_csv(table.name, format="compute_only")

    def _measured(self):
        """All ranks' times of the last step, as a tensor [rank][6][micro-batch] of seconds, by each rank's own clock."""
        mine = self._torch.tensor(self._clock.times, dtype=self._torch.float64)
        device = self._stage.device
        if self._torch.device(device).type == "cuda":
            mine = mine.to(device)
        all_ranks = [self._torch.empty_like(mine) for _ in range(self._p)]
        self._torch.distributed.all_gather(all_ranks, mine, group=self._stage.group)
        return [t.cpu().tolist() for t in all_ranks]

    def _entries(self, times):
        """Per stage (forward, backward, weight) and per link the delay, from all ranks' times."""
        stages, links = [], []
        for t in times:
            spans = [statistics.median(end - start for start, end in zip(t[2 * k], t[2 * k + 1])) for k in range(3)]
            stages.append(tuple(max(0.0, s) for s in spans))
        for i in range(self._p - 1):
            down = min(start - end for end, start in zip(times[i][1], times[i + 1][0]))
            up = min(start - end for end, start in zip(times[i + 1][3], times[i][2]))
            links.append(max(0.0, (down + up) / 2))
        return stages, links

    def _follow(self, took):
        lib = _load()
        stages, links = self._entries(self._measured())
        if self._step == 0:  # the first step also sets up buffers and connections: its times say nothing
            return Event(0, False, "", 0.0, took)
        if self._adapt is None:  # what the second one measured is where adapting begins
            forward, backward, weight = zip(*stages)
            profile = _profile(self._p, self._m, forward, backward, weight, dict(enumerate(links)), self._caps)
            adapt = _POINTER()
            try:
                _check(lib.shunt_sched_adapt_create(profile, ctypes.byref(self._params), ctypes.byref(adapt)))
            finally:
                lib.shunt_sched_profile_destroy(profile)
            self._adapt = adapt
            self._load_rows(_rows(lib.shunt_sched_adapt_schedule(adapt)))
            return Event(self._step, True, "first plan, from what the second step measured", 0.0, took)
        vector = (ctypes.c_double * lib.shunt_sched_adapt_entries(self._adapt))()
        for i, (f, b, w) in enumerate(stages):
            _check(lib.shunt_sched_adapt_put_stage(self._adapt, vector, i, 0, f, b, w))
        for i, delay in enumerate(links):
            _check(lib.shunt_sched_adapt_put_link(self._adapt, vector, i, delay, 0, 0))
        event = _Event()
        _check(lib.shunt_sched_adapt_step(self._adapt, self._step, vector, 0.0, ctypes.byref(event)))
        if event.changed:
            self._load_rows(_rows(lib.shunt_sched_adapt_schedule(self._adapt)))
        return Event(self._step, bool(event.changed), event.text.decode(), event.predicted, took)

    def step(self, *args, **kwargs):
        """One training iteration, as _PipelineScheduleRuntime.step(); then the plan for the next one. Returns an Event."""
        for times in self._clock.times[4:]:
            times[:] = [0.0] * self._m
        start = time.monotonic()
        self.output = self.runtime.step(*args, **kwargs)
        event = self._follow(time.monotonic() - start)
        self._step += 1
        return event
