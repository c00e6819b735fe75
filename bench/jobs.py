# SPDX-License-Identifier: Apache-2.0
"""Who is measured: a cluster of namespaces, and jobs of processes on it.

A Job is all ranks of one contestant.  They are started once, get their orders line by
line over a Unix socket (rank.c, peer.py), and wait without using a CPU in between.
"""
import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")       # Debian's, with its modules
START_S = 120       # importing torch four times on two cores takes long
ANSWER_S = 120
END_S = 10          # to end when asked to
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
OPEN = []           # clusters and jobs that have to be closed, the oldest first


class Missing(Exception):
    """Something a row needs is not here; the text says what."""


class Broken(Exception):
    """A contestant ended, or was wrong; the text says how."""


def close_all():
    """May be called again when it was interrupted: what is closed half-way is still there."""
    while OPEN:
        OPEN[-1].close()
        OPEN.pop()


def output(command):
    """What a command that succeeds writes to its standard output."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
    except OSError as e:
        raise Broken(f"{command[0]}: {e.strerror}") from e
    if done.returncode:
        raise Broken(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@contextlib.contextmanager
def listener(command, word):
    """A program that says `word` when it listens; ends with the block."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p:
        try:
            if not any(word in line for line in p.stdout):
                raise Broken(f"{' '.join(command)} does not listen")
            yield
        finally:
            p.kill()


def cpu_seconds(pid):
    """User and system time of a process and all its threads so far."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError as e:
        raise Broken(f"process {pid} has ended") from e
    return (int(fields[11]) + int(fields[12])) * TICK_S


def log_end(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return "".join(f.readlines()[-15:])


class Cluster:
    """bench/cluster.sh as an object: machines are words like gpu:1gbit."""

    def __init__(self, machines):
        self.gpus = sum(m.startswith("gpu") for m in machines)
        self.machines = [f"gpu{i}" for i in range(self.gpus)]
        self.machines += [f"cpu{i}" for i in range(len(machines) - self.gpus)]
        self.pids = {}
        self.script = subprocess.Popen(
            ["bash", os.path.join(HERE, "cluster.sh")] + machines, text=True,
            env=dict(os.environ, BUILD=BUILD),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        OPEN.append(self)
        try:
            self.hear_up()
        except KeyboardInterrupt:
            self.script.terminate()
            raise

    def hear_up(self):
        for line in self.script.stdout:
            word, *rest = line.split()
            if word == "up":
                return
            if word == "run":
                self.run = rest[0]
            elif word == "tmp":
                self.tmp = rest[0]
            elif word == "pid":
                self.pids[rest[0]] = int(rest[1])
            else:
                raise Missing(line.strip())
        raise Broken("the cluster did not come up")

    def serve_again(self, machine):
        """A server for the machine whose server has ended."""
        print(machine, file=self.script.stdin, flush=True)
        self.hear_up()

    def drain(self, *words):
        output(self.inside("sw") + [os.path.join(BUILD, "bin/tally"), "drain", *words,
                                    "--scheduler", "10.77.0.1:7470"])

    def servers_of(self, name):
        """How many servers the job has; 0 when the scheduler knows of none."""
        found = json.loads(output(self.inside("sw") + [
            os.path.join(BUILD, "bin/tally"), "jobs", "--json", "--job", name,
            "--scheduler", "10.77.0.1:7470"]))["jobs"]
        return found[0]["servers"] if found else 0

    def died_at(self, server, since):
        """When the scheduler said so of a server last, by time.time(); it must be after since."""
        with open(os.path.join(self.tmp, "scheduler.log"), encoding="utf-8") as f:
            said = re.findall(rf"^(\S+)Z .* server {server} .*-> dead", f.read(), re.M)
        when = [datetime.datetime.fromisoformat(x + "+00:00").timestamp() for x in said]
        if not when or when[-1] < since:
            raise Broken(f"server {server} was not missed")
        return when[-1]

    def close(self):
        self.script.stdin.close()
        self.script.stdout.close()
        self.script.wait()

    def inside(self, machine):
        return ["ip", "netns", "exec", f"{self.run}-{machine}"]

    def address(self, machine):
        return f"10.77.0.{(10 if machine.startswith('gpu') else 110) + int(machine[3:])}"

    def payload_sent(self):
        """Bytes that the cards have sent so far, less 66 of headers for each packet."""
        total = 0
        for m in self.machines:
            for name, sign in (("tx_bytes", 1), ("tx_packets", -66)):
                path = f"/sys/class/net/eth0/statistics/{name}"
                total += sign * int(output(self.inside(m) + ["cat", path]))
        return total

    def memory_peak(self, daemon):
        """The largest resident size so far, in bytes."""
        try:
            with open(f"/proc/{self.pids[daemon]}/status", encoding="ascii") as f:
                return next(int(x.split()[1]) * 1024 for x in f if x.startswith("VmHWM:"))
        except (OSError, StopIteration) as e:
            raise Broken(f"{daemon} has ended") from e


class Job:
    """`world` processes that have said hello; self.children have started them."""

    def __init__(self, world):
        self.world = world
        self.tmp = tempfile.mkdtemp(prefix="tally-bench-")
        self.log = os.path.join(self.tmp, "log")
        self.control = os.path.join(self.tmp, "control")
        self.children, self.ranks, self.pids = [], {}, []
        self.idle = False       # all wait for an order, and leave when there are no more
        OPEN.append(self)
        self.shape = None       # what order `have` last gave
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.control)
        self.listener.listen(world)

    def start(self, command, **env):
        with open(self.log, "a", encoding="utf-8") as log:
            self.children.append(subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(os.environ, **env), start_new_session=True))

    def meet(self):
        """Waits for everybody's hello; when one does not come the others are ended."""
        try:
            self.hear_all()
        except BaseException:
            self.close()
            raise
        self.idle = True
        return self

    def hear_all(self):
        self.listener.settimeout(1)
        waited = 0
        while len(self.ranks) < self.world:
            try:
                s, _ = self.listener.accept()
            except socket.timeout:
                waited += 1
                ended = [c.returncode for c in self.children if c.poll() is not None]
                if waited > START_S or ended:
                    raise Broken(f"it did not start, ended with {ended}:\n" +
                                 log_end(self.log)) from None
                continue
            s.settimeout(ANSWER_S)
            lines = s.makefile("r")
            try:
                hello = json.loads(lines.readline())
            except (OSError, ValueError) as e:
                lines.close()
                s.close()
                raise Broken("it ended at its start:\n" + log_end(self.log)) from e
            self.ranks[hello["rank"]] = s, lines
            self.pids.append(hello["pid"])

    def all(self, order):
        """Gives everybody the order; the answers, by rank."""
        self.idle = False
        try:
            for r in range(self.world):
                self.ranks[r][0].sendall(f"{order}\n".encode())
            answers = [json.loads(self.ranks[r][1].readline()) for r in range(self.world)]
        except OSError as e:
            raise Broken(f"no answer to '{order}': {e}\n" + log_end(self.log)) from e
        except ValueError as e:
            raise Broken(f"ended at '{order}':\n" + log_end(self.log)) from e
        self.idle = True
        return answers

    def have(self, order, way="in-place"):
        """Tensors, prepared; nothing is done when that is what they have already."""
        if self.shape == (order, way):
            return self.bytes
        answers = self.all(order)
        wrong = sum(a["wrong"] for a in self.all(f"prepare {way}"))
        if wrong:
            raise Broken(f"{wrong} wrong elements after '{order}'")
        _, *number = order.split()
        self.bytes = answers[0].get("bytes") or int(number[0]) * int(number[1])
        self.shape = (order, way)
        return self.bytes

    def steps(self, order):
        """Seconds of each step: from when the slowest had done one to when it had the next."""
        return step_times(self.all(order))

    def cpu(self):
        return sum(map(cpu_seconds, self.pids))

    def close(self):
        for s, lines in self.ranks.values():
            lines.close()
            s.close()
        self.listener.close()
        for c in self.children:
            if not self.idle and c.poll() is None:
                os.killpg(c.pid, signal.SIGTERM)
        for c in self.children:
            try:
                c.wait(timeout=END_S)
            except subprocess.TimeoutExpired:
                os.killpg(c.pid, signal.SIGKILL)
                c.wait()
        shutil.rmtree(self.tmp, ignore_errors=True)


def step_times(answers):
    ends = [max(a["from"] for a in answers)]
    ends += [max(step) for step in zip(*(a["ends"] for a in answers))]
    return [b - a for a, b in zip(ends, ends[1:])]


def tally(cluster, per_machine=1):
    job = Job(cluster.gpus * per_machine)
    job.daemons = list(cluster.pids.values())
    job.cpu = lambda: sum(map(cpu_seconds, job.pids + job.daemons))
    for r in range(job.world):
        gpu = f"gpu{r // per_machine}"
        job.start(cluster.inside(gpu) + [os.path.join(BUILD, "bench/rank"), job.control],
                  TALLY_RANK=str(r), TALLY_WORLD_SIZE=str(job.world), TALLY_JOB="bench",
                  TALLY_SOCKET=f"{cluster.tmp}/agent-{gpu}.sock")
    return job.meet()


def gloo(cluster, per_machine=1):
    job = Job(cluster.gpus * per_machine)
    for r in range(job.world):
        job.start(cluster.inside(f"gpu{r // per_machine}") +
                  [PYTHON, os.path.join(HERE, "peer.py"), "gloo", job.control],
                  RANK=str(r), WORLD_SIZE=str(job.world), MASTER_PORT="29500",
                  MASTER_ADDR=cluster.address("gpu0"),
                  GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1")
    return job.meet()


def mpi(cluster, per_machine=1):
    """Shared memory on one machine; between machines TCP, with a namespace as a host."""
    job = Job(cluster.gpus * per_machine)
    between = cluster.gpus > 1
    hosts = ",".join(f"{cluster.address(f'gpu{g}')}:{per_machine}" for g in range(cluster.gpus))
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
               "-np", str(job.world), "--mca", "btl", "tcp,self" if between else "vader,self"]
    if between:
        command += ["-H", hosts, "--mca", "plm_rsh_agent", os.path.join(HERE, "netns_rsh.sh"),
                    "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]
    command += [PYTHON, os.path.join(HERE, "peer.py"), "mpi", job.control]
    job.start(cluster.inside("gpu0") + command, NETNS_RUN=cluster.run)
    return job.meet()


def pytorch(way, port):
    """A training in PyTorch, its gradients by Gloo or by Tally."""
    def start(cluster, per_machine=1):
        job = Job(cluster.gpus * per_machine)
        for r in range(job.world):
            gpu = f"gpu{r // per_machine}"
            job.start(cluster.inside(gpu) + [PYTHON, os.path.join(HERE, "pytorch.py"), way,
                                             job.control],
                      RANK=str(r), WORLD_SIZE=str(job.world), MASTER_PORT=str(port),
                      MASTER_ADDR=cluster.address("gpu0"), GLOO_SOCKET_IFNAME="eth0",
                      OMP_NUM_THREADS="1", TALLY_JOB="pytorch",
                      TALLY_LIBRARY=os.path.join(BUILD, "lib/libtally.so.0"),
                      TALLY_SOCKET=f"{cluster.tmp}/agent-{gpu}.sock")
        return job.meet()
    return start


START = {"tally": tally, "gloo": gloo, "mpi": mpi,
         "pytorch tally": pytorch("tally", 29501), "pytorch gloo": pytorch("gloo", 29502)}


def has_module(name):
    try:
        output([PYTHON, "-c", f"import {name}"])
    except Broken:
        return False
    return True


# key -> (Debian packages, are they here?)
PEERS = {
    "gloo": ("python3-torch", lambda: has_module("torch.distributed")),
    "mpi": ("openmpi-bin python3-mpi4py",
            lambda: shutil.which("mpirun") is not None and has_module("mpi4py")),
    "iperf3": ("iperf3", lambda: shutil.which("iperf3") is not None),
}
