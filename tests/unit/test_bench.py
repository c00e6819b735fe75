#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/: bounds, times of steps, ratios, the table's rows, the plot, and what goes wrong."""
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))

import jobs     # noqa: E402
import plot     # noqa: E402
import rows     # noqa: E402
import run      # noqa: E402

PROMISED = ("name", "tally", "peer", "peer_value", "ratio", "target", "met")


def result(ours, theirs, **kind):
    r = run.Result(rows.Row("a row", None, "peer", None, **kind))
    r.ours, r.theirs = ours, theirs
    return r


class Bounds(unittest.TestCase):
    def test_t_opt_is_the_papers(self):
        for n, k, want in ((4, 0, 1.5), (4, 2, 1.2), (8, 0, 1.75), (8, 1, 1.6), (8, 4, 1.2727),
                           (8, 8, 1.0), (2, 2, 1.0), (2, 0, 1.0), (32, 16, 1.3191)):
            self.assertAlmostEqual(rows.t_opt(n, k, 1, 1), want, places=4)

    def test_without_cpu_machines_t_opt_is_the_ring(self):
        for n in (2, 3, 4, 8):
            self.assertAlmostEqual(rows.t_opt(n, 0, 7, 3), rows.ring(n, 7, 3))

    def test_a_shaped_card_carries_what_was_measured(self):
        self.assertAlmostEqual(rows.t_opt(4, 4, 64 * rows.MIB, rows.GBIT), 0.561, places=3)


class Times(unittest.TestCase):
    def test_a_step_ends_when_the_slowest_rank_has_it(self):
        fast = {"from": 10.0, "ends": [11.0, 12.0, 15.5]}
        slow = {"from": 10.5, "ends": [11.5, 14.0, 15.0]}
        self.assertEqual(jobs.step_times([fast, slow]), [1.0, 2.5, 1.5])


class Summaries(unittest.TestCase):
    def test_medians_not_means(self):
        s = result([1.0, 9.0, 2.0], [4.0, 4.0, 40.0], target=("<=", 0.5)).summary()
        self.assertEqual((s["tally"], s["peer_value"], s["ratio"]), (2.0, 4.0, 0.5))

    def test_spread_is_of_the_rounds_ratios(self):
        s = result([1.0, 9.0, 2.0], [4.0, 4.0, 40.0], target=None).summary()
        self.assertEqual((s["ratio_min"], s["ratio_max"], s["rounds"]), (0.05, 2.25, 3))

    def test_a_speedup_is_the_peers_time_by_ours(self):
        s = result([2.0], [5.0], target=(">=", 2.5), speedup=True).summary()
        self.assertEqual((s["ratio"], s["met"]), (2.5, True))

    def test_a_target_is_met_or_missed(self):
        for target, met in ((("<=", 0.5), True), (("<=", 0.49), False), ((">=", 0.5), True),
                            ((">=", 0.51), False), (None, None)):
            self.assertIs(result([1.0], [2.0], target=target).summary()["met"], met)

    def test_json_has_what_is_promised(self):
        s = json.loads(json.dumps(result([1.0], [2.0], target=("<=", 0.9)).summary()))
        self.assertLessEqual(set(PROMISED), set(s))


class Rounds(unittest.TestCase):
    def row(self, name, log, ours=1.0, broken=None):
        def say(who, value):
            def measure(_env):
                log.append(f"{name} {who}")
                if broken:
                    raise broken
                return value
            return measure
        return run.Result(rows.Row(name, say("ours", ours), "peer", say("theirs", 2.0), None))

    def test_contestants_take_turns_in_every_round(self):
        log = []
        results = [self.row("a", log), self.row("b", log)]
        run.measure_rounds(None, results, 2)
        self.assertEqual(log, ["a ours", "a theirs", "b ours", "b theirs"] * 2)
        self.assertEqual([(r.ours, r.theirs) for r in results], [([1.0, 1.0], [2.0, 2.0])] * 2)

    def test_what_is_missing_is_left_out_and_the_rest_goes_on(self):
        log = []
        results = [self.row("a", log, broken=jobs.Missing("no room")),
                   self.row("b", log, broken=jobs.Broken("it ended")), self.row("c", log)]
        run.measure_rounds(None, results, 2)
        self.assertEqual([(r.left_out, r.broken) for r in results],
                         [("no room", False), ("it ended", True), (None, False)])
        self.assertEqual([log.count(f"{name} ours") for name in "abc"], [1, 1, 2])
        self.assertEqual([len(r.ours) for r in results], [0, 0, 2])


class Rows(unittest.TestCase):
    def test_names_tell_rows_apart(self):
        names = [r.name for scene in rows.everything() for r in scene.rows]
        self.assertEqual(len(names), len(set(names)))

    def test_only_chosen_rows_and_never_those_whose_peer_is_absent(self):
        scenes = run.chosen(["(4,0)"], ("gloo", "mpi"))
        self.assertEqual({r.peer for scene in scenes for r in scene.rows}, {"t_opt"})
        self.assertEqual(list(run.chosen(["no such row"], ())), [])

    def test_a_word_is_found_at_its_beginning(self):
        scenes = run.chosen(["shaped (2,0)", "urgent"], ())
        self.assertEqual([r.name for scene in scenes for r in scene.rows],
                         ["shaped (2,0) 64 MiB", "urgent chunk, bytes done after it"])

    def test_every_need_is_a_known_peer(self):
        needs = {r.needs for scene in rows.everything() for r in scene.rows} - {None}
        self.assertEqual(needs, set(jobs.PEERS))


class Losses(unittest.TestCase):
    def cluster(self, *lines):
        cluster = jobs.Cluster.__new__(jobs.Cluster)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        cluster.tmp = folder.name
        with open(os.path.join(folder.name, "scheduler.log"), "w", encoding="utf-8") as f:
            f.writelines(f"{line}\n" for line in lines)
        return cluster

    def test_a_server_died_when_the_scheduler_said_so_last(self):
        cluster = self.cluster(
            "1970-01-01T00:00:07.250Z info  tally-scheduler: server cpu0 up -> dead, node 3",
            "1970-01-01T00:00:08.000Z info  tally-scheduler: server cpu01 up -> dead, node 4",
            "1970-01-01T00:00:09.500Z info  tally-scheduler: server cpu0 up -> dead, node 5",
            "1970-01-01T00:00:09.700Z info  tally-scheduler: server cpu0 new -> up, node 6")
        self.assertEqual(cluster.died_at("cpu0", 9.0), 9.5)
        self.assertRaises(jobs.Broken, cluster.died_at, "cpu0", 9.6)
        self.assertRaises(jobs.Broken, cluster.died_at, "cpu1", 0.0)

    def test_a_pause_may_be_a_second_beyond_detection_and_what_the_server_had(self):
        loss = rows.Killed("", lambda: {"shares": [{"machine": "gpu0", "bytes": 1},
                                                   {"machine": "cpu0", "bytes": rows.GBIT}]})
        loss.detection = 3.0
        self.assertEqual(loss.limit(None), 5.0)


class Contestants(unittest.TestCase):
    def setUp(self):
        self.addCleanup(jobs.close_all)

    def meet(self, *programs):
        job = jobs.Job(len(programs))
        for program in programs:
            job.start([sys.executable, "-c", program, job.control])
        with self.assertRaises(jobs.Broken) as why:
            job.meet()
        self.why = str(why.exception)
        return job

    def test_one_that_does_not_start_takes_the_others_with_it(self):
        job = self.meet("import time; time.sleep(600)", "raise SystemExit(3)")
        self.assertIn("ended with [3]", self.why)
        self.assertNotIn(None, [c.poll() for c in job.children])
        self.assertFalse(os.path.exists(job.tmp))

    def test_one_that_ends_without_a_hello_is_broken(self):
        self.meet("import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])")

    def test_a_daemon_that_has_ended_is_broken(self):
        cluster = jobs.Cluster.__new__(jobs.Cluster)
        with subprocess.Popen(["true"]) as p:
            cluster.pids = {"server": p.pid}
            os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
            self.assertRaises(jobs.Broken, cluster.memory_peak, "server")
        self.assertRaises(jobs.Broken, cluster.memory_peak, "server")

    def test_a_program_that_is_not_there_is_broken_a_python_has_no_modules(self):
        self.assertRaises(jobs.Broken, jobs.output, ["/nowhere/python"])
        with mock.patch.object(jobs, "PYTHON", "/nowhere/python"):
            self.assertFalse(jobs.has_module("os"))


class Runs(unittest.TestCase):
    """All of run.py, over rows that need nothing."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "not/yet/there")
        for s in run.STOPPING:
            self.addCleanup(signal.signal, s, signal.getsignal(s))
            signal.signal(s, signal.default_int_handler)
        self.said = io.StringIO()

    def bench(self, *words, ours=lambda env: 1.0, peers=()):
        def everything():
            yield rows.Scene([], [rows.Row(name, ours, "peer", lambda env: 2.0, None)
                                  for name in ("apple", "pear")] +
                             [rows.Row(f"by {key}", ours, "peer", lambda env: 2.0, None, needs=key)
                              for key in dict(peers)])
        with mock.patch.object(rows, "everything", everything), \
                mock.patch.object(jobs, "PEERS", dict(peers)), \
                mock.patch.object(sys, "argv", ["run.py", "--out", self.out, *words]), \
                contextlib.redirect_stdout(self.said), contextlib.redirect_stderr(self.said):
            return run.main()

    def read(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as f:
            return f.read()

    def names(self, path):
        return [r["name"] for r in json.loads(self.read(path))]

    def test_what_is_printed_is_kept_and_begins_with_what_it_depends_on(self):
        self.assertEqual(self.bench("--rounds", "1"), 0)
        self.assertRegex(self.read("table.txt"), r"\Acommit \S+, \d{4}-.*CPUs.*Linux.*load")
        self.assertTrue(self.said.getvalue().startswith(self.read("table.txt")))

    def test_some_rows_do_not_take_the_place_of_the_last_run_of_all(self):
        self.bench()
        self.bench("-k", "pear")
        self.assertEqual(self.names("results.json"), ["pear"])
        self.assertEqual(self.names("whole/results.json"), ["apple", "pear"])

    def test_a_word_that_no_row_has_is_an_error_and_nothing_is_written(self):
        with self.assertRaises(SystemExit) as end:
            self.bench("-k", "pear", "-k", "plum")
        self.assertEqual(end.exception.code, 2)
        self.assertIn("no row has 'plum'; --list names them", self.said.getvalue())
        self.assertFalse(os.path.exists(self.out))

    def test_a_folder_that_cannot_be_is_an_error_before_anything_is_measured(self):
        self.out = "/dev/null/out"
        self.assertEqual(self.bench(ours=None), 2)

    def test_when_nothing_was_measured_nothing_is_written(self):
        def ours(_env):
            raise jobs.Broken("it ended")
        self.assertEqual(self.bench(ours=ours), 1)
        self.assertEqual(os.listdir(self.out), [])

    def test_an_interrupted_run_writes_the_rounds_that_there_are(self):
        for s in run.STOPPING:
            calls = []

            def ours(_env):
                calls.append(1)
                if len(calls) == 6:         # pear's, in the third round
                    os.kill(os.getpid(), s)
                return 1.0
            self.assertEqual(self.bench(ours=ours), 130)
            self.assertEqual([r["rounds"] for r in json.loads(self.read("results.json"))], [3, 2])
            self.assertIn("\ninterrupted: ", self.read("table.txt"))
            self.assertEqual(self.said.getvalue().count("Traceback"), 0)
            self.assertFalse(os.path.exists(os.path.join(self.out, "whole")))
            for x in run.STOPPING:
                signal.signal(x, signal.default_int_handler)

    def test_what_is_absent_is_said_first_with_what_to_install(self):
        here = {key: (packages, lambda: False) for key, (packages, _) in jobs.PEERS.items()}
        self.bench(peers=here)
        said = self.said.getvalue().splitlines()
        for line, key in zip(said, sorted(here)):
            self.assertEqual(line, f"left out: every row with {key}; for it: "
                                   f"apt-get install {here[key][0]}")

    def test_a_peer_that_no_chosen_row_needs_is_not_looked_for(self):
        looked = []
        here = {key: ("packages", lambda key=key: looked.append(key)) for key in jobs.PEERS}
        self.bench("-k", "pear", peers=here)
        self.assertEqual(looked, [])
        self.assertNotIn("left out", self.said.getvalue())


class Plot(unittest.TestCase):
    def points(self, tally, gloo=None):
        svg = ElementTree.fromstring(plot.goodput(4, 64 * rows.MIB, rows.GBIT, tally, gloo))
        tag = "{http://www.w3.org/2000/svg}"
        return ([float(c.get("cy")) for c in svg.iter(tag + "circle")],
                len(list(svg.iter(tag + "polyline"))))

    def test_every_measured_cluster_is_a_point_faster_is_higher(self):
        heights, lines = self.points({0: 0.9, 2: 0.7, 4: 0.6}, gloo=0.85)
        self.assertEqual((heights, lines), (sorted(heights, reverse=True), 4))
        self.assertEqual(len(heights), 3)

    def test_what_reaches_t_opt_lies_on_its_curve(self):
        best = {k: rows.t_opt(4, k, 64 * rows.MIB, rows.GBIT) for k in range(5)}
        svg = plot.goodput(4, 64 * rows.MIB, rows.GBIT, best)
        curve = set(svg.split('<polyline points="')[1].split('"')[0].split())
        measured = svg.split('<polyline points="')[-1].split('"')[0].split()
        self.assertLessEqual(set(measured), curve)

    def test_nothing_measured_gives_no_picture(self):
        self.assertIsNone(run.draw([]))
        one = result([1.0], [1.0], target=None).summary()
        self.assertIsNotNone(run.draw([dict(one, name="shaped (4,3) 64 MiB")]))


if __name__ == "__main__":
    unittest.main()
