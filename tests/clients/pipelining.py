# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of the test `pipelining`: exported tables in PyTorch's own runtime, and plans that follow a delay. Run by torchrun."""

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

sys.path.insert(0, os.environ["SHUNT_TORCH"])
import shunt_pipelining

WIDTH, BATCH, MICROBATCHES = 16, 32, 16
count = failed = 0


def ok(good, text):
    """One TAP line from rank 0; every rank must agree."""
    global count, failed
    flag = torch.tensor([0 if good else 1])
    dist.all_reduce(flag)
    count += 1
    failed += int(flag) > 0
    if dist.get_rank() == 0:
        print(f"{'not ok' if int(flag) else 'ok'} {count} - {text}", flush=True)


class Layer(torch.nn.Module):
    """A stage; `seconds` pads forward and backward as an accelerator would take them."""

    def __init__(self, seconds=0.0):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())
        self.seconds = seconds

    def forward(self, x):
        return _Pad.apply(self.net(x), self.seconds)


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(2 * ctx.seconds)
        return grad, None


def loss_fn(output, target):
    return torch.nn.functional.mse_loss(output, target)


def make_stage(seconds=0.0):
    torch.manual_seed(7 + dist.get_rank())
    return PipelineStage(Layer(seconds), dist.get_rank(), dist.get_world_size(), torch.device("cpu"))


def train(schedule, stage, steps=3):
    """Losses of some steps of plain gradient descent."""
    rank, last, found = dist.get_rank(), dist.get_world_size() - 1, []
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        x, y = torch.randn(BATCH, WIDTH, generator=generator), torch.randn(BATCH, WIDTH, generator=generator)
        optimizer.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == last:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        loss = torch.stack([l.detach() for l in losses]).mean() if rank == last else torch.zeros(())
        dist.broadcast(loss, last)
        found.append(float(loss))
    return found


def exported(arguments, form):
    name = {"compute_only": "pytorch-csv", "compute_comms": "pytorch-csv-comms"}[form]
    path = os.path.join(tempfile.gettempdir(), f"plan-{os.getpid()}.csv")
    subprocess.run(["shunt-sched", "export", "--stages", str(dist.get_world_size()), "--microbatches", str(MICROBATCHES),
                    "--format", name, "-o", path, *arguments], check=True)
    return path


def tables():
    stage = make_stage()
    want = train(Schedule1F1B(stage, MICROBATCHES, loss_fn=loss_fn), stage)
    ok(want[-1] < want[0], f"PyTorch's Schedule1F1B trains: losses {want}")
    cases = [("1F1B", ["--schedule", "1f1b"]), ("adapted 1F1B", ["--schedule", "adapted", "--link", "1:5"]),
             ("a plan under caps", ["--link", "0:3", "--cap", "4"]),
             ("ZB-H1", ["--schedule", "zb-h1", "--backward", "1", "--weight", "1"]),
             ("a split plan", ["--backward", "1", "--weight", "1", "--link", "2:4"])]
    for title, arguments in cases:
        for form in ("compute_only", "compute_comms"):
            stage = make_stage()
            runtime = _PipelineScheduleRuntime([stage], MICROBATCHES, loss_fn=loss_fn)
            path = exported(arguments, form)
            runtime._load_csv(path, format=form)
            os.unlink(path)
            losses = train(runtime, stage)
            same = all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(losses, want))
            ok(same, f"{title} as {form} runs in _PipelineScheduleRuntime with the same losses")


class SlowLink:
    """Delays what this rank sends to some peers, in order and without holding the sender up."""

    def __init__(self):
        self.peers, self.seconds, self.queue = (), 0.0, queue.Queue()
        self.real = torch_schedules._batch_p2p
        torch_schedules._batch_p2p = self.send
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            at, ops, done, result = self.queue.get()
            time.sleep(max(0.0, at - time.monotonic()))
            result.extend(self.real(ops))
            done.set()

    def send(self, ops, desc=None):
        if not ops or ops[0].op is not dist.isend or ops[0].peer not in self.peers:
            return self.real(ops)
        done, result = threading.Event(), []
        self.queue.put((time.monotonic() + self.seconds, ops, done, result))

        class Later:
            def wait(self, *args):
                done.wait()
                for work in result:
                    work.wait()

        return [Later()]


def adapting():
    rank, p, unit = dist.get_rank(), dist.get_world_size(), 0.005
    slow = SlowLink()
    slow.peers = tuple(peer for peer in (rank - 1, rank + 1) if {rank, peer} == {1, 2})
    stage = make_stage(unit)
    pipeline = shunt_pipelining.AdaptivePipeline([stage], MICROBATCHES, loss_fn)
    x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)

    def step():
        args, kwargs = ((x,), {}) if rank == 0 else ((), {"target": y}) if rank == p - 1 else ((), {})
        return pipeline.step(*args, **kwargs)

    quiet = [step() for _ in range(10)]
    changes = sum(event.changed for event in quiet[2:])
    before, healthy = pipeline.warmup, min(event.took for event in quiet)
    if rank == 0: # whether a clean step may change the plan depends on what else the machine does, so this judges nothing
        print(f"# eight clean steps changed the plan {changes} times; warm-up {before}, {healthy:.3f} s", flush=True)
    slow.seconds = 6 * unit
    events = [step(), step()]
    ok(events[1].changed or events[0].changed, f"a delay on link 1-2 changes the plan within two steps: {events[1].text}")
    ok("link 1-2" in events[1].text + events[0].text, "and the event names the link")
    after = [step() for _ in range(4)]
    ok(pipeline.warmup[1] > before[1], f"it warms up with more forwards: {pipeline.warmup}")
    took, held_up = min(event.took for event in after), events[0].took
    ok(took < held_up, f"a step takes {took:.3f} s instead of {held_up:.3f}")
    same = torch.tensor(pipeline.warmup)
    other = same.clone()
    dist.broadcast(other, 0)
    ok(bool((same == other).all()), "all ranks hold the same plan")
    slow.seconds, ahead = 0.0, sum(pipeline.warmup)
    for steps in range(1, 81):  # on a busy machine it takes a while until times are calm
        step()
        if sum(pipeline.warmup) < ahead:
            break
    ok(sum(pipeline.warmup) < ahead, f"{steps} steps after the link recovered the plan needs less memory: {pipeline.warmup}")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tables()
    adapting()
    if dist.get_rank() == 0:
        print(f"1..{count}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(failed > 0)


main()
