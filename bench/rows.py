# SPDX-License-Identifier: Apache-2.0
"""What is measured: the rows of the table, by the cluster they are measured on."""
import json
import os
import re
import statistics
import subprocess

import jobs

MIB = 1 << 20
BIG = f"tensors 1 {64 * MIB} 0"
PAYLOAD = 1448 / 1514       # of the bytes that a shaper counts
GBIT = PAYLOAD * 1e9 / 8    # bytes of payload per second on a card of 1 Gbit/s


def t_opt(n, k, size, card):
    """Seconds of the best round there is: n and k machines, all cards alike."""
    if n == 1:
        return 0.0
    return 2 * n * (n - 1) * size / ((n * n + k * n - 2 * k) * card)


def ring(n, size, card):
    return 2 * (n - 1) * size / (n * card)


class Row:
    """One line: a value of Tally's, a peer's, their ratio and what it should be.

    ours, theirs: functions of an Env that measure once.  speedup: the ratio is the
    peer's time by ours, "so many times faster"; else ours by the peer's.
    target: ("<=" or ">=", number), or None where nothing is promised.
    """

    def __init__(self, name, ours, peer, theirs, target, unit="s", speedup=False):
        self.name, self.ours, self.peer, self.theirs = name, ours, peer, theirs
        self.target, self.unit, self.speedup = target, unit, speedup


class Scene:
    """Rows that share a cluster: machines as bench/cluster.sh wants them."""

    def __init__(self, machines, rows, per_machine=1):
        self.machines, self.rows, self.per_machine = machines, rows, per_machine


class Env:
    """The cluster of a scene, and its contestants, started when first asked for."""

    def __init__(self, scene, seconds):
        self.cluster = jobs.Cluster(scene.machines)
        self.per_machine, self.seconds = scene.per_machine, seconds
        self.jobs, self.absent = {}, {}

    def job(self, kind):
        if kind in self.absent:
            raise self.absent[kind]
        try:
            if kind not in self.jobs:
                self.jobs[kind] = getattr(jobs, kind)(self.cluster, self.per_machine)
        except jobs.Missing as e:
            self.absent[kind] = e
            raise
        return self.jobs[kind]

    def close(self):
        for job in self.jobs.values():
            job.close()
        self.cluster.close()


def machines(n, k, gpu="", cpu=""):
    return ["gpu" + gpu] * n + ["cpu" + cpu] * k


# ---- what one measurement is -------------------------------------------------------

def steps_for(env, job):
    """As many steps as the time allows; found by trying."""
    count = 2
    while True:
        took = sum(job.steps(f"run {count}"))
        if took > env.seconds / 4 or count >= 2000:
            return max(2, min(2000, int(count * env.seconds / took)))
        count *= 4


def ready(env, kind, order, way="in-place"):
    """The job with its tensors, and how many steps to measure."""
    job = env.job(kind)
    if job.shape != (order, way):
        job.have(order, way)
        job.counts = getattr(job, "counts", {})
        if (order, way) not in job.counts:
            job.counts[order, way] = steps_for(env, job)
    return job, job.counts[order, way]


def step_time(kind, order, way="in-place"):
    def measure(env):
        job, count = ready(env, kind, order, way)
        return statistics.median(job.steps(f"run {count}"))
    return measure


def cpu_per_gib(kind, order):
    def measure(env):
        job, count = ready(env, kind, order)
        before = job.cpu()
        job.steps(f"run {count}")
        return (job.cpu() - before) / (job.bytes * count / (1 << 30))
    return measure


def declare(count):
    def measure(env):
        return max(a["seconds"] for a in env.job("tally").all(f"declare {count}"))
    return measure


def constant(value):
    return lambda env: value


# ---- the rows ----------------------------------------------------------------------

def shaped():
    for n, k in ((4, 0), (4, 1), (4, 2), (4, 3), (4, 4), (2, 0), (2, 2)):
        best = t_opt(n, k, 64 * MIB, GBIT)
        rows = [Row(f"shaped ({n},{k}) 64 MiB", step_time("tally", BIG), "t_opt",
                    constant(best), ("<=", 1.03))]
        if (n, k) == (4, 4):
            rows.append(Row("shaped (4,4) 64 MiB", step_time("tally", BIG), "Gloo",
                            step_time("gloo", BIG), (">=", 1.45), speedup=True))
        yield Scene(machines(n, k, ":1gbit", ":1gbit"), rows)


def unshaped():
    small = "tensors 1 4096 0"
    many, fused = "tensors 10000 4096 0", f"tensors 1 {10000 * 4096} 0"
    yield Scene(machines(2, 0), [
        Row("unshaped (2,0) 64 MiB", step_time("tally", BIG), "Gloo", step_time("gloo", BIG),
            (">=", 1.2), speedup=True),
        Row("small (2,0) 4 KiB p50", step_time("tally", small), "Gloo",
            step_time("gloo", small), ("<=", 0.3)),
    ])
    yield Scene(machines(4, 0), [
        Row("unshaped (4,0) 64 MiB", step_time("tally", BIG), "Gloo", step_time("gloo", BIG),
            (">=", 1.1), speedup=True),
        Row("cpu (4,0) per GiB", cpu_per_gib("tally", BIG), "Gloo", cpu_per_gib("gloo", BIG),
            ("<=", 0.9)),
        Row("small (4,0) 4 KiB p50", step_time("tally", small), "Gloo",
            step_time("gloo", small), ("<=", 0.3)),
        Row("many (4,0) 10,000 of 4 KiB", step_time("tally", many), "Gloo, one buffer",
            step_time("gloo", fused), ("<=", 1.5)),
        Row("declare 10,000, 4 processes", declare(10000), "1 s", constant(1.0), ("<=", 1.0)),
    ])


def one_machine():
    for p in (2, 4):
        yield Scene(["gpu"], [
            Row(f"one machine, {p} processes, 64 MiB", step_time("tally", BIG), "Open MPI",
                step_time("mpi", BIG), (">=", 4.0), speedup=True),
        ], per_machine=p)


def everything():
    yield from shaped()
    yield from unshaped()
    yield from one_machine()
