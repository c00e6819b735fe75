#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package on a real cluster; run as every rank of a job, for example

    tally local --agents 2 --servers 1 --ranks 2 -- /usr/bin/python3 tests/test_python.py

Exits 0 when everything held on this rank.  Asserts are the checks.
"""

import copy
import math
import os
import pathlib
import pickle
import random
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../client/python"))

import numpy as np  # noqa: E402
import tally  # noqa: E402

DTYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"]
DEADLINE_S = 60


def ranks_sum(world, make):
    return sum(make(rank) for rank in range(world))


def sums_of_every_dtype(s):
    """In place, elsewhere and in view; small whole numbers are exact in every type."""
    for dtype in DTYPES:
        for count in (0, 1, 7, 131073):
            make = lambda r: (np.arange(count) % 5 + r % 3).astype(dtype)  # noqa: E731
            want = ranks_sum(s.world_size, make)
            t = s.declare(f"sum {dtype} {count}", (count,), dtype)
            mine = s.empty(count, dtype)
            mine[:] = make(s.rank)
            out = np.zeros(count, dtype)
            assert np.array_equal(t.push_pull(mine).wait(DEADLINE_S), want)
            t.push_pull(make(s.rank), out=out).wait(DEADLINE_S)
            assert np.array_equal(out, want)
            t.push_pull(mine, out=mine).wait(DEADLINE_S)
            assert np.array_equal(mine, want)
            s.undeclare(t)
            s.free(mine)


def what_is_not_finite_stays_where_it_is(s):
    """A NaN, an infinity, and two that are each other's opposite."""
    count, last = 40003, s.world_size - 1
    for dtype in ("float32", "float64", "float16"):
        x = (np.arange(count) % 7).astype(dtype)
        want = x * s.world_size
        want[[5, 20000, 7, 40001]] = np.nan, np.nan, np.nan, -np.inf
        if s.rank == 0:
            x[[5, 7]] = np.nan, np.inf
        if s.rank == last:
            x[[20000, 7, 40001]] = np.nan, -np.inf, -np.inf
        t = s.declare(f"not finite {dtype}", (count,), dtype)
        assert np.array_equal(t.push_pull(x).wait(DEADLINE_S), want, equal_nan=True), dtype
        s.undeclare(t)


def bfloat16_through_uint16(s):
    t = s.declare("bf16", (3,), "bfloat16")
    one = np.full(3, 0x3F80, np.uint16)  # 1.0
    total = t.push_pull(one).wait(DEADLINE_S)
    want = np.float32(s.world_size).view(np.uint32) >> 16
    assert total.dtype == np.uint16 and (total == want).all()


def mean_and_broadcast(s):
    t = s.declare("mb", (2, 5), "float64", priority=3)
    mean = s.push_pull(t, np.full((2, 5), float(s.rank)), op="mean").wait(DEADLINE_S)
    assert mean.shape == (2, 5) and np.allclose(mean, (s.world_size - 1) / 2)
    root = s.world_size - 1
    data = np.arange(10.0).reshape(2, 5) if s.rank == root else None
    got = s.broadcast(t, data, root=root).wait(DEADLINE_S)
    assert np.array_equal(got, np.arange(10.0).reshape(2, 5))
    assert not got.flags.writeable


def many_in_flight_in_other_orders(s):
    tensors = s.declare_all([(f"many {i}", (1000 + i,)) for i in range(20)])
    order = np.random.default_rng(s.rank).permutation(20)
    tickets = {i: tensors[i].push_pull(np.full(1000 + i, i + s.rank, np.float32)) for i in order}
    for i in order[::-1]:
        want = ranks_sum(s.world_size, lambda r: i + r)
        assert (tickets[i].wait(DEADLINE_S) == want).all()


def descriptor_becomes_readable(s):
    t = s.declare("polled", (10,))
    fd = s.fileno()
    ticket = t.push_pull(np.ones(10, np.float32))
    while not ticket.test():
        assert select.select([fd], [], [], DEADLINE_S)[0]
        s.poll()
    assert (t.result() == s.world_size).all()


def refusals_are_exceptions(s):
    t = s.declare("refused", (4,))
    for bad in (np.zeros(3, np.float32), np.zeros(4), np.zeros((4, 2), np.float32)[:, 0]):
        try:
            t.push_pull(bad)
        except tally.TallyError as e:
            assert e.name == "EINVAL" and "refused" in e.text
        else:
            raise AssertionError("a wrong array was taken")
    if s.world_size > 1:
        ticket = t.push_pull(np.ones(4, np.float32)) if s.rank == 0 else None
        if ticket:
            try:
                ticket.wait(0)
            except tally.TallyTimeout as e:
                assert "refused" in e.text
        s.barrier(DEADLINE_S)
        if not ticket:
            ticket = t.push_pull(np.ones(4, np.float32))
        assert (ticket.wait(DEADLINE_S) == s.world_size).all()


def expect_refusal(call, *parts):
    """EINVAL, whose text has those parts."""
    try:
        call()
    except tally.TallyError as e:
        assert e.name == "EINVAL" and all(part in e.text for part in parts), (parts, e)
    else:
        raise AssertionError(f"it was taken: {parts}")


def refusals_say_what_is_wrong(s):
    t = s.declare("refused, why", 4)
    x, fixed = np.ones((4, 2), np.float32), np.ones(4, np.float32)
    fixed.flags.writeable = False
    expect_refusal(lambda: t.push_pull([1] * 4),
                   "the input is no numpy.ndarray of float32, but a list")
    expect_refusal(lambda: t.push_pull(x[:, 0]), "np.ascontiguousarray()", "the input")
    expect_refusal(lambda: t.push_pull(x[:4, 0].copy(), out=x[:, 0]), "out is not contiguous")
    expect_refusal(lambda: t.push_pull(x[:, 0].copy(), out=fixed), "out is not writable")
    expect_refusal(lambda: t.push_pull(x), "8 and not 4 elements")
    expect_refusal(lambda: t.push_pull(fixed.astype(">f4")), "an array of >f4, not of float32")
    for dtype in ("complex64", "bogus", object, 7, None):
        expect_refusal(lambda: s.declare("typed", 1, dtype), "no dtype", "float32, float64")
        expect_refusal(lambda: s.empty(1, dtype), "no dtype", "float32, float64")
    for dtype in (">f4", np.dtype(">i8")):
        expect_refusal(lambda: s.declare("swapped", 1, dtype), "byte order")
        expect_refusal(lambda: s.empty(1, dtype), "byte order")
    assert s.empty(1, "<f4").dtype == np.float32
    expect_refusal(lambda: tally.Session(rank=3), "rank 3 without a world size", "give world")


def shapes_are_whole_and_small_enough(s):
    """Refused before there is memory for them."""
    def size():
        with open("/proc/self/status") as status:
            return next(line for line in status if line.startswith("VmSize"))

    before = size()
    shapes = {-1: "negative", (-1, -2**28): "negative", (2**32, 2**32 + 4): "2**63 bytes",
              2**64: "2**63 bytes", (2**70, 0): "2**63 bytes", (1,) * 40: "40 dimensions",
              3.7: "no shape 3.7", "10": "no shape '10'", (3, None): "no shape"}
    with open("/dev/zero", "rb") as zero:
        for shape, why in shapes.items():
            expect_refusal(lambda: s.empty(shape, "int8"), "an array: ", why)
            expect_refusal(lambda: s.declare("shaped", shape, "int8"), "tensor shaped: ", why)
            expect_refusal(lambda: s.from_dma_buf(zero.fileno(), shape, "int8"), why)
    expect_refusal(lambda: s.declare("shaped", (1,) * 9), "9 dimensions are more than 8")
    assert size() == before
    deep = s.empty((1,) * 9)
    flat = s.declare("flat", (1,) * 8)
    assert flat.push_pull(deep, out=deep).wait(DEADLINE_S) == 0 and deep.ndim == 9
    assert s.empty((), "int8").shape == () and s.empty((3, 0)).shape == (3, 0)
    assert s.empty(np.int64(3)).shape == s.empty([3]).shape == (3,)


def what_c_would_take_for_something_else_is_refused(s):
    for chunk_bytes in (2**64 + 196608, 2**70, -1):
        expect_refusal(lambda: tally.Session(job="chunked", chunk_bytes=chunk_bytes),
                       f"no chunk_bytes {chunk_bytes}")
    expect_refusal(lambda: s.gpu_open(2**32), "no device")
    expect_refusal(lambda: s.from_dma_buf(2**32, 1), "no descriptor")
    for call in (
        lambda: s.declare("cut\0short", (3,)),
        lambda: s.declare("less than nothing", (-1,)),
        lambda: s.declare("first of all", (3,), priority=2**31),
        lambda: tally.Session(job="cut\0short"),
        lambda: tally.Session(job="another", rank=2**32, world=1),
        lambda: s.declare("from nobody", (3,)).broadcast(np.zeros(3, np.float32), root=2**32),
    ):
        try:
            call()
        except tally.TallyError as e:
            assert e.name == "EINVAL", e
        else:
            raise AssertionError("it was taken")


def what_is_of_another_type_is_refused_in_words(s):
    """As what has another value is."""
    for name in (None, 3, b"bytes"):
        expect_refusal(lambda: s.declare(name, 3), f"a tensor's name is a str, not {name!r}")
        expect_refusal(lambda: s.span(name), f"a span's name is a str, not {name!r}")
    expect_refusal(lambda: tally.Session(job=7), "the job's name is a str, not 7")
    expect_refusal(lambda: tally.Session(rank=None), "rank is a whole number, not None")
    expect_refusal(lambda: s.declare("first", 3, priority=1.5), "priority is a whole number")
    expect_refusal(lambda: s.is_live("0"), "rank is a whole number, not '0'")
    for other in ([1], None):
        expect_refusal(lambda: s.free(other), f"an array of empty() is freed, not {other!r}")
        expect_refusal(lambda: s.undeclare(other), f"what declare() returns, not {other!r}")
        expect_refusal(lambda: s.push_pull(other, None), f"what declare() returns, not {other!r}")


def what_cannot_be_declared_is_refused_in_words(s):
    for bad, why in ((5, "no descriptions 5; they are a list of (name, shape"),
                     ([("a",)], "no descriptions"), ("abc", "no descriptions"),
                     ([("a\nb", 1)], "its name is no printable UTF-8"),
                     ([("\udc80", 1)], "a tensor's name is no UTF-8")):
        expect_refusal(lambda: s.declare_all(bad), why)
    expect_refusal(lambda: tally.Session(job="a\nb"), "the job's name is no printable UTF-8")
    expect_refusal(lambda: tally.Session(on_loss=[]), "no on_loss []; there are error and shrink")
    t = s.declare("in flight, refused", 4)
    expect_refusal(lambda: t.push_pull(np.ones(4, np.float32), op=["sum"]),
                   "no operation ['sum']; there are sum and mean")
    with lonely(s, "other") as alone:
        expect_refusal(lambda: alone.push_pull(t, None), "is another session's")
        mine = alone.declare("x", 1)
        ticket = mine.push_pull(np.ones(1, np.float32))
        for call in lambda: mine.broadcast(root=0), lambda: alone.undeclare(mine):
            try:
                call()
            except tally.TallyError as e:
                assert "wait for its ticket first" in e.text, e
            else:
                raise AssertionError("a round is in flight")
        ticket.wait(DEADLINE_S)


def a_span_has_a_kind_that_there_is(s):
    """Said before its body runs, and without a timeline, too."""
    expect_refusal(lambda: s.span("own", "foo"), "no kind of span 'foo'", "framework and copy")
    with s.span("own"), s.span("own", "copy"):
        pass


def a_rank_that_is_not_there_is_named(s):
    try:
        s.is_live(s.world_size)
    except tally.TallyError as e:
        assert e.name == "EINVAL" and f"rank {s.world_size} is not in a world" in e.text, e
    else:
        raise AssertionError("there are more ranks than the world has")


def a_time_that_c_cannot_hold_is_long(s):
    for seconds in (math.inf, 3e6, 2**32 / 1000):
        with tally.Session(job=f"{seconds} on {s.rank}", rank=0, world=1, timeout=seconds,
                           round_timeout=seconds) as alone:
            alone.barrier(seconds)
            assert alone.round_timeout > 2e6
            ticket = alone.declare("long", (3,)).push_pull(np.ones(3, np.float32))
            assert (ticket.wait(seconds) == 1).all()


def a_time_is_none_or_not_negative(s):
    """In C a negative one is the session's limit here, refused there."""
    ticket = s.declare("timed", 3).push_pull(np.ones(3, np.float32))
    for _ in range(2):  # in flight, mostly, and done
        for seconds in (-1, -0.001, -math.inf, math.nan, "5"):
            for call in (ticket.wait, s.barrier, s.grow,
                         lambda t: tally.Session(job="timed", rank=0, world=1, timeout=t),
                         lambda t: tally.Session(job="timed", rank=0, world=1, round_timeout=t)):
                expect_refusal(lambda: call(seconds), f"no time {seconds!r}", "0 or more")
        assert (ticket.wait(DEADLINE_S) == s.world_size).all()


def only_a_dma_buf_is_memory_of_a_device(s):
    with open("/dev/zero", "rb") as zero:
        try:
            s.from_dma_buf(zero.fileno(), (1024,))
        except tally.TallyError as e:
            assert e.name == "EINVAL" and "no dma-buf" in e.text, e
        else:
            raise AssertionError("/dev/zero was taken for a device's memory")


def mapped():
    """Mappings of memory that is shared with an agent."""
    with open("/proc/self/maps") as maps:
        return sum("/memfd:" in line for line in maps)


def lonely(s, job):
    return tally.Session(job=f"{job} {s.rank}", rank=0, world=1)


def arrays_outlive_their_session(s):
    """However many there are; the last one takes the memory with it, in whatever thread."""
    before = mapped()
    with lonely(s, "outlived") as alone:
        arrays = [alone.empty(10) for _ in range(3000)]
        arrays[-1][:] = 3
        result = alone.declare("last", 10).push_pull(arrays[-1]).wait(DEADLINE_S)
    arrays[0][:] = 1
    assert arrays[0].sum() == 10 and (result == 3).all() and mapped() > before
    del alone, result
    gone = threading.Thread(target=arrays.clear)
    gone.start()
    gone.join()
    assert mapped() == before
    with lonely(s, "outlived"):
        pass
    assert mapped() == before


def arrays_outlive_a_session_that_was_forgotten(s):
    """Which leaves its job then: the next one of that name begins at once."""
    before = mapped()
    result = lonely(s, "forgotten").declare("kept", 3).push_pull(np.ones(3, np.float32)).wait()
    with lonely(s, "forgotten"):
        assert (result == 1).all()
    assert (result == 1).all() and mapped() > before
    child = os.fork()
    if not child:
        os._exit(int(result.sum()))
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 3
    part = result[1:]
    del result
    assert (part == 1).all()
    del part
    assert mapped() == before


def what_a_child_writes_stays_with_it(s):
    """Also to arrays of a session that was detached meanwhile."""
    with lonely(s, "forked") as alone:
        array = alone.empty(3)
        array[:] = 7
        for _ in range(2):
            child = os.fork()
            if not child:
                array += 1
                os._exit(int(array[0]))
            assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 8
            assert (array == 7).all()
            alone.detach()


def a_session_that_is_freed_is_not_left(s):
    """Of what is garbage at once, Python may finalize the memory first."""
    alone, lib, left = lonely(s, "freed"), tally._session._lib, []
    alone._memory = None
    leave, lib.tally_leave = lib.tally_leave, left.append
    del alone
    lib.tally_leave = leave
    assert left == [None]


def a_ticket_that_is_done_answers_again(s):
    """Though its session is detached."""
    with lonely(s, "answered") as alone:
        ticket = alone.declare("kept", 3).push_pull(np.ones(3, np.float32))
        first = ticket.wait(DEADLINE_S)
    assert ticket.wait() is first and ticket.wait(0) is first and ticket.test()
    assert (first == 1).all()


def a_ticket_has_its_own_rounds_result(s):
    """However its end was seen, and whatever rounds the tensor had since."""
    with lonely(s, "own result") as alone:
        t = alone.declare("twice", 3)
        first = t.push_pull(np.full(3, 1, np.float32))
        while not first.test():
            pass
        second = t.push_pull(np.full(3, 2, np.float32))
        while not second.test():
            pass
        assert (first.wait() == 1).all() and (second.wait() == 2).all()
        third = t.broadcast(np.full(3, 3, np.float32))
        third.gpu_wait()
        t.push_pull(np.full(3, 4, np.float32)).wait(DEADLINE_S)
        assert (third.wait() == 3).all()


class Rang(Exception):
    """What the signal's handler raises below."""


def a_signals_handler_may_raise_anywhere(s):
    """A round that has begun has a ticket, and one that is done is answered, all the same."""
    def ring(*_):
        raise Rang

    signal.signal(signal.SIGALRM, ring)
    with lonely(s, "rung") as alone:
        t = alone.declare("torn", 3)
        for i in range(1000):
            ticket, x = None, np.full(3, i, np.float32)
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 100e-6))
                ticket = t.push_pull(x) if i % 2 else t.broadcast(x)
                while i % 4 > 1 and not ticket.test():
                    pass
                assert (ticket.wait(DEADLINE_S) == i).all()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Rang:
                ticket = ticket or t.ticket
            if ticket:
                assert (ticket.wait(DEADLINE_S) == i).all()
            assert t.ticket is None


def errors_are_tallys_own_and_travel(s):
    """A class for each code, which pickle and copy keep with all that it says."""
    t = s.declare("an error's", 4)
    for call, kind, builtin in (
            (lambda: t.push_pull([1]), tally.TallyInvalid, ValueError),
            (lambda: s.declare(t.name, 4), tally.TallyExists, RuntimeError),
            (lambda: t.broadcast(root=s.rank), tally.TallyInvalid, ValueError),
            (lambda: s.empty(2**41, "uint8"), tally.TallyInvalid, ValueError)):
        try:
            call()
        except kind as e:
            assert isinstance(e, (tally.TallyError, builtin)) and type(e).__module__ == "tally"
            for other in pickle.loads(pickle.dumps(e)), copy.deepcopy(e):
                assert type(other) is kind and str(other) == str(e) and other.code == e.code
                assert (other.name, other.text) == (e.name, e.text)
                assert (other.rank, other.tensor) == (e.rank, e.tensor)
        else:
            raise AssertionError(f"no {kind}")
    try:
        t.broadcast(root=s.rank)
    except tally.TallyError as e:
        assert (e.rank, e.tensor) == (s.rank, "an error's"), (e.rank, e.tensor)
    kinds = {getattr(tally, name) for name in tally.__all__ if name.startswith("Tally")}
    assert {type(tally.TallyError(-code)) for code in range(1, 21)} == kinds - {tally.TallyError}
    assert all(kind.__doc__ for kind in kinds)
    late = tally.TallyTimeout(-9, "x")
    assert isinstance(late, TimeoutError) and str(late) == "ETIMEDOUT: x", late


def objects_say_what_they_are_and_stay_here(s):
    """Rank, world and job in each repr(); no pickle and no copy, and one line that says why."""
    t = s.declare("shown", (2, 2))
    ticket = t.push_pull(np.ones((2, 2), np.float32))
    ticket.wait(DEADLINE_S)
    place = f"rank {s.rank}, world {s.world_size}, job '"
    for thing in s, t, ticket:
        assert place in repr(thing), thing
        for travel in pickle.dumps, copy.copy, copy.deepcopy:
            try:
                travel(thing)
            except TypeError as e:
                assert "pickled or copied" in str(e) and "\n" not in str(e), e
            else:
                raise AssertionError(f"{thing} was copied")
    assert "'shown', float32 [2, 2]" in repr(t) and "round 1, done" in repr(ticket), (t, ticket)
    array = s.empty(3)
    array[:] = 7
    assert (pickle.loads(pickle.dumps(array)) == 7).all() and (copy.deepcopy(array) == 7).all()
    with lonely(s, "shown") as alone:
        pass
    assert f"rank 0, world 1, job 'shown {s.rank}', detached" in repr(alone), alone


def texts_speak_python(s):
    """Names of this package, not of libtally's functions."""
    with lonely(s, "in Python") as alone:
        for call, has in ((alone.grow, "on_loss='shrink'"),
                          (lambda: alone.free(np.zeros(3)), "empty()"),
                          (lambda: alone.declare("x", 1).gpu_push_pull(1), "gpu_open()")):
            try:
                call()
            except tally.TallyError as e:
                assert has in e.text and "tally_" not in e.text and "TALLY_" not in e.text, e
            else:
                raise AssertionError(has)


def a_rank_is_one_process(s):
    with lonely(s, "twice"):
        try:
            lonely(s, "twice")
        except tally.TallyError as e:
            assert e.name == "EEXIST" and f"rank 0 of job 'twice {s.rank}' is another" in e.text, e
            assert "TALLY_JOB" in e.text, e
        else:
            raise AssertionError("two processes are one rank")


def libraries_of_other_releases_are_refused():
    """Only what the package can know; and its own version is the library's."""
    assert tally.__version__ == tally.version()

    class Library:
        def __init__(self, version):
            self.tally_version = lambda: version

    tally._ffi.check_version(Library(tally.__version__.encode()), "good.so")
    for other in (b"0.0.9", b"1.1.0", b"99.0"):
        try:
            tally._ffi.check_version(Library(other), "other.so")
        except ImportError as e:
            assert tally.__version__ in str(e) and f"other.so is version {other.decode()}" in str(e)
        else:
            raise AssertionError("a library of another release was taken")


def a_child_is_not_its_parents_rank(s):
    """It ends as a script does, through everything that Python does then."""
    if s.rank == 0:
        child = os.fork()
        if not child:
            calls = lambda: s.barrier(DEADLINE_S), lambda: s.live_ranks, lambda: s.is_live(0)
            for call in calls:
                try:
                    call()
                except tally.TallyError as e:
                    assert e.name == "ESHUTDOWN" and "the parent process's" in e.text, e
                else:
                    sys.exit(1)
            sys.exit(7)
        status = os.waitpid(child, 0)[1]
        assert os.WEXITSTATUS(status) == 7, status
    t = s.declare("behind a child", 4)
    x = np.full(4, s.rank, np.float32)
    assert (t.push_pull(x).wait(DEADLINE_S) == sum(range(s.world_size))).all()


def a_missing_agent_is_explained():
    try:
        tally.Session(socket=pathlib.Path("/nowhere/agent.sock"), timeout=5)
    except tally.TallyError as e:
        assert e.name == "EAGENT" and "/nowhere/agent.sock" in e.text
        assert "systemctl start tally-agent" in e.text and "tally local" in e.text
    else:
        raise AssertionError("attached to nobody")


def an_agent_of_another_release_is_explained():
    """It answers with messages of its own version."""
    path = os.path.join(tempfile.mkdtemp(prefix="tally-python-"), "agent.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)

    def answer():
        peer, _ = listener.accept()
        peer.recv(4096)
        peer.sendall(struct.pack("<IHH", 0, 1, 99))
        peer.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        tally.Session(socket=path, rank=0, world=1, timeout=20)
    except tally.TallyError as e:
        assert e.name == "EVERSION" and path in e.text and "version 99" in e.text, e
        assert "from one release" in e.text, e
    else:
        raise AssertionError("attached to an agent of another release")
    thread.join()
    listener.close()
    shutil.rmtree(os.path.dirname(path))


def other_world_sizes_are_an_error_on_every_rank(s):
    """That is waiting for the other, or comes; it names both."""
    if s.world_size == 1 or s.rank > 1:
        return
    try:
        tally.Session(job="sizes", rank=s.rank, world=2 + s.rank, timeout=DEADLINE_S)
    except tally.TallyError as e:
        assert e.name == "EMISMATCH", e
        assert "rank 0 on machine" in e.text and "rank 1 on machine" in e.text, e
        assert "says world size" in e.text, e
    else:
        raise AssertionError("worlds of two sizes met")


def a_session_has_a_limit_for_its_rounds(s):
    if s.world_size == 1 or s.rank > 1:
        return
    with tally.Session(job="limit", rank=s.rank, world=2, timeout=DEADLINE_S,
                       round_timeout=0.25) as own:
        assert own.round_timeout == 0.25 and s.round_timeout == 600
        t = own.declare("limited", (4,))
        ticket = t.push_pull(np.ones(4, np.float32)) if s.rank == 0 else None
        for wait in (ticket.wait, ticket.gpu_wait) if ticket else ():
            try:
                wait()
            except tally.TallyTimeout as e:
                assert "round 1 of tensor limited: not done after 0.25 s" in e.text, e
            else:
                raise AssertionError("a round without the other rank was done")
        own.barrier(DEADLINE_S)
        if not ticket:
            ticket = t.push_pull(np.ones(4, np.float32))
        assert (ticket.wait(DEADLINE_S) == 2).all()


def main():
    libraries_of_other_releases_are_refused()
    a_missing_agent_is_explained()
    an_agent_of_another_release_is_explained()
    with tally.Session() as s:
        for story in (
            sums_of_every_dtype,
            what_is_not_finite_stays_where_it_is,
            bfloat16_through_uint16,
            mean_and_broadcast,
            many_in_flight_in_other_orders,
            descriptor_becomes_readable,
            refusals_are_exceptions,
            refusals_say_what_is_wrong,
            shapes_are_whole_and_small_enough,
            what_c_would_take_for_something_else_is_refused,
            what_is_of_another_type_is_refused_in_words,
            what_cannot_be_declared_is_refused_in_words,
            a_span_has_a_kind_that_there_is,
            a_rank_that_is_not_there_is_named,
            a_time_that_c_cannot_hold_is_long,
            a_time_is_none_or_not_negative,
            only_a_dma_buf_is_memory_of_a_device,
            arrays_outlive_their_session,
            arrays_outlive_a_session_that_was_forgotten,
            what_a_child_writes_stays_with_it,
        a_session_that_is_freed_is_not_left,
            a_ticket_that_is_done_answers_again,
            a_ticket_has_its_own_rounds_result,
            a_signals_handler_may_raise_anywhere,
            errors_are_tallys_own_and_travel,
            objects_say_what_they_are_and_stay_here,
            texts_speak_python,
            a_rank_is_one_process,
            a_child_is_not_its_parents_rank,
            other_world_sizes_are_an_error_on_every_rank,
            a_session_has_a_limit_for_its_rounds,
        ):
            story(s)
            s.barrier(DEADLINE_S)
        print(f"rank {s.rank} of {s.world_size}: ok")
    try:
        s.barrier()
    except tally.TallyError as e:
        assert e.name == "ESHUTDOWN"
    else:
        raise AssertionError("a detached session answered")


if __name__ == "__main__":
    main()
