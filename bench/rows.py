# SPDX-License-Identifier: Apache-2.0
"""What is measured: the rows of the table, by the cluster they are measured on."""
import json
import os
import re
import signal
import statistics
import threading
import time

import jobs

MIB = 1 << 20
BIG = f"tensors 1 {64 * MIB} 0"
PAYLOAD = 1448 / 1514       # of the bytes that a shaper counts
GBIT = PAYLOAD * 1e9 / 8    # bytes of payload per second on a card of 1 Gbit/s
STEPS_MIN = 3
CPUS = len(os.sched_getaffinity(0))
ENGINES = min(max(CPUS // 2, min(CPUS, 2)), 4)   # of an agent, for a job of one machine
CLUSTERS = ((4, 0), (4, 1), (4, 2), (4, 3), (4, 4), (2, 0), (2, 2))

# A model whose gradients take as long on a card of 1 Gbit/s as its passes: ByteScheduler's
# case, where the order decides.
LAYERS, FORWARD_S, BACKWARD_S, TRAIN_STEPS = 16, 0.012, 0.023, 6


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
    needs: a key of jobs.PEERS, without which the row is left out.
    """

    def __init__(self, name, ours, peer, theirs, target, unit="s", speedup=False,
                 needs=None):
        self.name, self.ours, self.peer, self.theirs = name, ours, peer, theirs
        self.target, self.unit, self.speedup, self.needs = target, unit, speedup, needs


class Scene:
    """Rows that share a cluster: machines as bench/cluster.sh wants them, or none."""

    def __init__(self, machines, rows, per_machine=1):
        self.machines, self.rows, self.per_machine = machines, rows, per_machine


class Env:
    """The cluster of a scene, and its contestants, started when first asked for."""

    def __init__(self, scene, seconds):
        self.cluster = jobs.Cluster(scene.machines) if scene.machines else None
        self.per_machine, self.seconds = scene.per_machine, seconds
        self.jobs = {}

    def job(self, kind):
        if kind not in self.jobs:
            self.jobs[kind] = jobs.START[kind](self.cluster, self.per_machine)
        return self.jobs[kind]


def machines(n, k, gpu="", cpu=""):
    return ["gpu" + gpu] * n + ["cpu" + cpu] * k


# ---- what one measurement is -------------------------------------------------------

def steps_for(env, job):
    """As many steps as the time allows; found by trying."""
    count = 2
    while True:
        took = sum(job.steps(f"run {count}"))
        if took > env.seconds / 4 or count >= 2000:
            return max(STEPS_MIN, min(2000, int(count * env.seconds / took)))
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


def payload_rate(order):
    """Bytes of payload that all cards together send in a second."""
    def measure(env):
        job, count = ready(env, "tally", order)
        before = env.cluster.payload_sent()
        seconds = sum(job.steps(f"run {count}"))
        return (env.cluster.payload_sent() - before) / seconds / 1e9
    return measure


def iperf3(env):
    """One way from the first machine to the last, as long as one measurement is.  Two streams:
    one alone does not keep two cores busy."""
    first, last = env.cluster.machines[0], env.cluster.machines[-1]
    with jobs.listener(env.cluster.inside(last) + ["iperf3", "-s", "-1", "--forceflush"],
                       "listening"):
        found = json.loads(jobs.output(
            env.cluster.inside(first) + ["iperf3", "-J", "-P", "2", "-c", env.cluster.address(last),
                                         "-t", str(max(1, int(env.seconds)))]))
    return found["end"]["sum_received"]["bits_per_second"] / 8 / 1e9


def pingpong(size):
    def measure(env):
        program = [os.path.join(jobs.BUILD, "bench/pingpong"), str(size)]
        with jobs.listener(env.cluster.inside("gpu1") + program, "listening"):
            return float(jobs.output(env.cluster.inside("gpu0") + program +
                                     [env.cluster.address("gpu1"), "2000"])) / 1e6
    return measure


def sum_rate(order):
    """Bytes of input that the agent adds in a second; nobody copies the result."""
    def measure(env):
        job, count = ready(env, "tally", order, "view")
        return job.world * job.bytes / min(job.steps(f"run {count}")) / 1e9
    return measure


def kern_bench(env, dtype, n, *more):
    found = json.loads(jobs.output(
        [os.path.join(jobs.BUILD, "bench/kern_bench"), "--json", "-d", dtype, "-n", str(n),
         "-s", str(64 * MIB), "-t", str(int(env.seconds * 200)), *more]))
    return found["results"][0], found["results"][0][found["level"] + "_gb_s"]


def kern_rate(dtype, n):
    return lambda env: kern_bench(env, dtype, n)[1]


def loop_rate(n):
    return lambda env: kern_bench(env, "float32", n)[0]["loop_gb_s"]


def memory_rate(n, *more, cores=1):
    """What memory allows so many cores that read n inputs and write one output."""
    def measure(env):
        r = kern_bench(env, "float32", n, "--cores", str(cores), *more)[0]
        return max(r["memory_gb_s"], r["past_gb_s"], 2 * r["memcpy_gb_s"] * n / (n + 1))
    return measure


def planned(cards, size):
    """The planner's answer for these machines, cards without a rate all alike."""
    words = []
    for card in cards:
        kind, _, rate = card.partition(":")
        gbit = {"": 1.0, "1gbit": 1.0, "500mbit": 0.5, "250mbit": 0.25}[rate] * PAYLOAD
        words += [f"--{kind}", f"1x{gbit:.6f}"]
    return lambda: json.loads(jobs.output(
        [os.path.join(jobs.BUILD, "bin/tally"), "plan", "--json", "--model", str(size)] + words))


def planned_time(cards, size):
    plan = planned(cards, size)
    return lambda env: plan()["round_time_s"]


def plan_time(gpus, cpus):
    def measure(_env):
        start = time.monotonic()
        jobs.output([os.path.join(jobs.BUILD, "bin/tally"), "plan", "--gpu", f"{gpus}x94",
                     "--cpu", f"{cpus}x94", "--model", "gpt2"])
        return time.monotonic() - start
    return measure


def longest_event(_env):
    """CPU seconds that the scheduler took for one event at most, in all of a job's life."""
    found = jobs.output([os.path.join(jobs.BUILD, "bench/scale_bench"), "-l"])
    return float(re.search(r"longest event, CPU ms +([\d.]+)", found)[1]) / 1e3


class ServerMemory:
    """The server that comes closest to its limit: share, two windows an agent, 64 MiB."""

    WINDOW = 16 * MIB
    NEEDED = 12 << 30       # of the machine that plays nine

    def __init__(self, order, size, plan):
        self.order, self.size, self.plan = order, size, plan

    def ours(self, env):
        with open("/proc/meminfo", encoding="ascii") as f:
            free = next(int(x.split()[1]) * 1024 for x in f if x.startswith("MemAvailable"))
        if "tally" not in env.jobs and free < self.NEEDED:
            raise jobs.Missing("it needs 12 GiB of free memory")
        job = env.job("tally")
        job.have(self.order)
        job.steps("run 2")
        shares = {s["machine"]: s["bytes"] for s in self.plan()["shares"]}
        windows = 2 * self.WINDOW * env.cluster.gpus
        limits = {m: shares[m] + windows + 64 * MIB for m in env.cluster.machines}
        peaks = {m: env.cluster.memory_peak(f"server-{m}") for m in env.cluster.machines}
        worst = max(peaks, key=lambda m: peaks[m] / limits[m])
        self.worst_limit = limits[worst] / MIB
        return peaks[worst] / MIB

    def limit(self, _env):
        return self.worst_limit


class Loss:
    """What a step takes longer when a server is lost in it, and how much that may be.

    1 s, and the time until the scheduler says that it is dead, and that in which a card carries
    once more what the server had.  The server is back for the next round.
    """

    MACHINE, STEPS, AFTER_S = "cpu0", 12, 2.0
    BACK_S = 60

    def __init__(self, order, plan):
        self.order, self.plan = order, plan

    def lose(self, env):
        self.lost_at = time.time()
        self.take_away(env.cluster)

    def ours(self, env):
        job = env.job("tally")
        job.have(self.order)
        had = env.cluster.servers_of("bench")
        timer = threading.Timer(self.AFTER_S, self.lose, [env])
        timer.start()
        try:
            took = job.steps(f"run {self.STEPS}")
        finally:
            timer.join()
        self.look(env.cluster, had)
        self.give_back(env.cluster)
        until = time.monotonic() + self.BACK_S
        while env.cluster.servers_of("bench") < had:
            if time.monotonic() > until:
                raise jobs.Broken(f"the job does not use server {self.MACHINE} again")
            time.sleep(0.1)
        self.usual = statistics.median(took)
        return max(took) - self.usual

    def look(self, cluster, _had):
        self.detection = cluster.died_at(self.MACHINE, self.lost_at) - self.lost_at

    def limit(self, _env):
        share = next(s["bytes"] for s in self.plan()["shares"] if s["machine"] == self.MACHINE)
        return 1.0 + self.detection + share / GBIT


class Killed(Loss):
    def take_away(self, cluster):
        os.kill(cluster.pids[f"server-{self.MACHINE}"], signal.SIGKILL)

    def give_back(self, cluster):
        cluster.serve_again(self.MACHINE)


class CutOff(Loss):
    def link(self, cluster, state):
        jobs.output(cluster.inside("sw") + ["ip", "link", "set", f"p-{self.MACHINE}", state])

    def take_away(self, cluster):
        self.link(cluster, "down")

    def give_back(self, cluster):
        self.link(cluster, "up")


class Drained(Loss):
    """No pause: one usual step more at most."""

    def take_away(self, cluster):
        cluster.drain(self.MACHINE)

    def look(self, cluster, had):
        if cluster.servers_of("bench") >= had:
            raise jobs.Broken(f"server {self.MACHINE} was not drained")

    def give_back(self, cluster):
        cluster.drain("--undo", self.MACHINE)

    def limit(self, _env):
        return self.usual


def after_urgent(order):
    """Part of the other bytes that were not done when the first tensor, given last, was."""
    def measure(env):
        job = env.job("tally")
        job.have(order)
        return min(a["after"] for a in job.all("urgent"))
    return measure


def train(order):
    """Time of a step once the first is over."""
    def measure(env):
        job = env.job("tally")
        job.have(order)
        return statistics.median(job.steps(f"train {TRAIN_STEPS} {FORWARD_S} {BACKWARD_S}")[1:])
    return measure


def communication(kind, order):
    """The part of a step that it takes longer than without any communication."""
    def measure(env):
        job, count = ready(env, kind, order)
        alone = statistics.median(job.steps(f"alone {count}"))
        return 1 - alone / statistics.median(job.steps(f"run {count}"))
    return measure


def constant(value):
    return lambda env: value


# ---- the rows ----------------------------------------------------------------------

def shaped():
    for n, k in CLUSTERS:
        rows = [Row(f"shaped ({n},{k}) 64 MiB", step_time("tally", BIG), "t_opt",
                    constant(t_opt(n, k, 64 * MIB, GBIT)), ("<=", 1.03))]
        if (n, k) == (4, 4):
            rows.append(Row("shaped (4,4) 64 MiB, Gloo", step_time("tally", BIG), "Gloo",
                            step_time("gloo", BIG), (">=", 1.45), speedup=True, needs="gloo"))
        if (n, k) == (4, 2):
            bert = f"list {os.path.join(jobs.ROOT, 'tests/data/bert-large.txt')} 8"
            rows.append(Row("shaped (4,2) BERT-large / 8", step_time("tally", bert), "t_opt",
                            lambda env: t_opt(4, 2, ready(env, "tally", bert)[0].bytes, GBIT),
                            ("<=", 1.05)))
        yield Scene(machines(n, k, ":1gbit", ":1gbit"), rows)


def unequal():
    for name, cards in (
            ("CPU cards 1/2", machines(4, 2, ":1gbit", ":500mbit")),
            ("CPU cards 1/4", machines(4, 2, ":1gbit", ":250mbit")),
            ("one GPU card 1/2", ["gpu:500mbit"] + machines(3, 2, ":1gbit", ":1gbit"))):
        yield Scene(cards, [
            Row(f"shaped (4,2) {name}", step_time("tally", BIG), "planner's T",
                planned_time(cards, 64 * MIB), ("<=", 1.05))])


def unshaped():
    small = "tensors 1 4096 0"
    many, fused = "tensors 10000 4096 0", f"tensors 1 {10000 * 4096} 0"
    for n in (2, 4):
        rows = [
            Row(f"unshaped ({n},0) 64 MiB", step_time("tally", BIG), "Gloo",
                step_time("gloo", BIG), (">=", 1.2 if n == 2 else 1.1), speedup=True,
                needs="gloo"),
            Row(f"unshaped ({n},0) 64 MiB, Open MPI", step_time("tally", BIG), "Open MPI TCP",
                step_time("mpi", BIG), None, speedup=True, needs="mpi"),
            Row(f"small ({n},0) 4 KiB p50", step_time("tally", small), "Gloo",
                step_time("gloo", small), ("<=", 0.3), needs="gloo"),
        ]
        if n == 2:
            rows.append(Row("small (2,0) 4 KiB p50, TCP", step_time("tally", small),
                            "TCP there and back", pingpong(4096), ("<=", 8.0)))
        if n == 4:
            rows += [
                Row("cpu (4,0) per GiB", cpu_per_gib("tally", BIG), "Gloo",
                    cpu_per_gib("gloo", BIG), ("<=", 0.9), needs="gloo"),
                Row("many (4,0) 10,000 of 4 KiB", step_time("tally", many),
                    "Gloo, one buffer", step_time("gloo", fused), ("<=", 1.5), needs="gloo"),
                Row("declare 10,000, 4 processes", declare(10000), "limit", constant(1.0),
                    ("<=", 1.0)),
            ]
        yield Scene(machines(n, 0), rows)
    yield Scene(machines(2, 2), [
        Row("unshaped (2,2) payload, all cards", payload_rate(BIG), "iperf3, one way", iperf3,
            (">=", 0.75), unit="GB/s", needs="iperf3")])


def one_machine():
    for p in (2, 4):
        yield Scene(["gpu"], [
            Row(f"one machine, {p} processes, 64 MiB", step_time("tally", BIG),
                "Open MPI, shm", step_time("mpi", BIG), (">=", 4.0), speedup=True, needs="mpi"),
        ], per_machine=p)
        yield Scene(["gpu"], [
            Row(f"one machine, {p} processes, sum path", sum_rate(BIG), "shared memory, one pass",
                memory_rate(p, "--shared", cores=ENGINES), (">=", 0.9), unit="GB/s"),
        ], per_machine=p)


def sums():
    fp32 = kern_rate("float32", 4)
    yield Scene([], [Row(f"sum of {n} float32, 64 MiB each", kern_rate("float32", n),
                         "memory, one pass", memory_rate(n), (">=", 0.9), unit="GB/s")
                     for n in (2, 4, 8)] +
                [Row("sum of 4 float32, plain loop", fp32, "plain loop", loop_rate(4), None,
                     unit="GB/s")] +
                [Row(f"sum of 4 {dtype}, 64 MiB each", kern_rate(dtype, 4), "sum of 4 float32",
                     fp32, (">=", 0.8), unit="GB/s") for dtype in ("float16", "bfloat16")])


def paper():
    yield Scene([], [Row("plan for 1,000 and 1,000 machines", plan_time(1000, 1000), "limit",
                         constant(1.0), ("<=", 1.0)),
                     Row("scheduler of 2,000, longest event", longest_event, "limit",
                         constant(1.0), ("<=", 1.0))])


def memory():
    cards, size = machines(8, 1), 256 * MIB
    peak = ServerMemory(f"tensors 64 {size // 64} 1", size, planned(cards, size))
    yield Scene(cards, [Row("memory of a server (8,1) 256 MiB", peak.ours, "its limit",
                            peak.limit, ("<=", 1.0), unit="MiB")])


def losses():
    cards = machines(4, 2, ":1gbit", ":1gbit")
    plan = planned(cards, 64 * MIB)
    for name, loss in (("killed", Killed), ("cut off", CutOff), ("drained", Drained)):
        lost = loss(BIG, plan)
        yield Scene(cards, [Row(f"server {name} (4,2), pause", lost.ours, "its limit", lost.limit,
                                ("<=", 1.0))])


def urgency():
    layers = "tensors 65 1048576 1"
    model = f"tensors {LAYERS} {4 * MIB}"
    yield Scene(machines(2, 0, ":1gbit"), [
        Row("urgent chunk, bytes done after it", after_urgent(layers), "all other bytes",
            constant(1.0), (">=", 0.9), unit=""),
        Row("training loop by urgency", train(f"{model} 1"), "first in, first out",
            train(f"{model} 0"), ("<=", 0.95)),
    ])


def pytorch():
    model = "model 8 2048"      # 64 MiB
    for n, k in ((4, 4), (4, 0), (2, 0)):
        rows = [Row(f"PyTorch DDP ({n},{k}) step", step_time("pytorch tally", model), "DDP by Gloo",
                    step_time("pytorch gloo", model), (">=", 1.3) if k else ("<=", 1.03),
                    speedup=k > 0, needs="gloo")]
        if k:
            rows.append(Row(f"PyTorch DDP ({n},{k}) communication",
                            communication("pytorch gloo", model), "all of Gloo's step",
                            constant(1.0), (">=", 0.85), unit="", needs="gloo"))
        yield Scene(machines(n, k, ":1gbit", ":1gbit"), rows)
    layers = f"layers {LAYERS} {FORWARD_S} {BACKWARD_S}"
    yield Scene(machines(2, 0, ":1gbit"), [
        Row("PyTorch cross_barrier step", step_time("pytorch tally", f"{layers} cross"),
            "with the barrier", step_time("pytorch tally", f"{layers} barrier"), ("<=", 0.95),
            needs="gloo")])


def everything():
    for family in (shaped, unequal, unshaped, one_machine, sums, paper, memory, losses, urgency,
                   pytorch):
        yield from family()
