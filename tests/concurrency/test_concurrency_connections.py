"""The connections of a server: who finds room, who is closed for whom, and when nobody wants one any more."""

from __future__ import annotations

from support.doubles import Clock

from fastmcp_aggregator.concurrency.connections import HEAD_BOUND, MIN_READ_RATE, READING_BOUND, Connections
from fastmcp_aggregator.concurrency.limiter import FairShare


class Wire:
    """A connection that only counts."""

    def __init__(self, address: str | None, unread: int = 0) -> None:
        self.address = self.holder = address
        self.unread = unread
        self.is_closed = False

    def abort(self) -> None:
        self.is_closed = True

    def refuse(self) -> None:
        self.is_closed = True


def connections(clock: Clock, total: int = 10, unread: int = 1000) -> tuple[Connections, FairShare, FairShare]:
    shares = FairShare(total, has_reserve=False), FairShare(unread)
    return Connections(*shares, clock), *shares


def test_connections_of_one_address_are_closed_for_its_own_the_oldest_first() -> None:
    all_of_them, open_ones, _ = connections(Clock())
    wires = [Wire("a") for _ in range(20)]
    assert all(map(all_of_them.admit, wires))
    assert [wire.is_closed for wire in wires] == [True] * 12 + [False] * 8
    assert all_of_them.admit(Wire("b"))
    assert open_ones.taken == 9


def test_connections_of_a_caller_are_not_closed_for_many_of_nobody_from_its_address() -> None:
    all_of_them, _, _ = connections(Clock())
    kept = Wire("a")
    assert all_of_them.admit(kept)
    all_of_them.work(kept)
    kept.holder = "ann"
    all_of_them.wait(kept)
    wires = [Wire("a") for _ in range(20)]
    assert all(map(all_of_them.admit, wires))
    assert not kept.is_closed
    assert [wire.is_closed for wire in wires] == [True] * 13 + [False] * 7


def test_connections_with_a_request_are_not_closed_for_others() -> None:
    all_of_them, open_ones, _ = connections(Clock())
    wires = [Wire("a") for _ in range(8)]
    for wire in wires:
        assert all_of_them.admit(wire)
        all_of_them.work(wire)
    assert not all_of_them.admit(Wire("a"))
    assert open_ones.refused == 1
    assert not any(wire.is_closed for wire in wires)
    all_of_them.wait(wires[3])
    assert all_of_them.admit(Wire("a"))
    assert [wire.is_closed for wire in wires] == [False] * 3 + [True] + [False] * 4


def test_connections_are_closed_for_a_newcomer_of_who_has_most() -> None:
    all_of_them, open_ones, _ = connections(Clock())
    wires = [Wire(address) for address in "aaaaaaaabc"]
    assert all(map(all_of_them.admit, wires))
    assert open_ones.is_full
    assert all_of_them.admit(Wire("d"))
    assert [wire.is_closed for wire in wires] == [True] + [False] * 9


def test_connections_of_a_proxy_are_not_counted_by_address() -> None:
    all_of_them, open_ones, _ = connections(Clock())
    wires = [Wire(None) for _ in range(10)]
    assert all(map(all_of_them.admit, wires))
    assert not any(wire.is_closed for wire in wires)
    assert open_ones.taken == 10


def test_connections_without_a_request_end_after_a_while() -> None:
    clock = Clock()
    all_of_them, open_ones, _ = connections(clock)
    idle, busy, back = (Wire("a") for _ in range(3))
    for wire in (idle, busy, back):
        all_of_them.admit(wire)
    for wire in (busy, back):
        all_of_them.work(wire)
    clock.now += HEAD_BOUND
    all_of_them.wait(back)
    all_of_them.end_overdue()
    assert not idle.is_closed
    clock.now += 0.1
    all_of_them.end_overdue()
    assert [wire.is_closed for wire in (idle, busy, back)] == [True, False, False]
    for wire in (idle, busy, back):
        all_of_them.leave(wire)
    assert (open_ones.taken, all_of_them._waiting, all_of_them._all) == (0, {}, set())


def test_connections_that_are_not_read_end_unless_they_are_read_slowly() -> None:
    clock = Clock()
    all_of_them, _, unread = connections(clock, unread=1 << 30)
    deaf, slow = Wire("a", 1 << 20), Wire("a", 100 << 20)
    for wire in (deaf, slow):
        all_of_them.admit(wire)
        all_of_them.work(wire)
        all_of_them.pause(wire)
    for _ in range(3):
        clock.now += READING_BOUND
        slow.unread -= MIN_READ_RATE * int(READING_BOUND)
        all_of_them.end_overdue()
    assert (deaf.is_closed, slow.is_closed, unread.taken) == (True, False, 100 << 20)
    all_of_them.resume(slow)
    assert unread.taken == 0


def test_connections_that_are_not_read_are_closed_for_others_of_who_has_most() -> None:
    all_of_them, _, unread = connections(Clock(), total=100, unread=1000)
    of_a, of_b = [Wire("a", 100) for _ in range(20)], Wire("b", 200)
    for wire in (*of_a, of_b):
        all_of_them.admit(wire)
        all_of_them.pause(wire)
    assert not of_b.is_closed
    assert [wire.is_closed for wire in of_a] == [True] * 10 + [False] * 10
    assert unread.taken == 1200
    newcomer = Wire("c", 900)
    all_of_them.admit(newcomer)
    all_of_them.pause(newcomer)
    assert not newcomer.is_closed
    assert unread.taken <= 1250
    assert not of_b.is_closed


def test_connections_with_one_answer_that_is_larger_than_all_may_have_it() -> None:
    all_of_them, _, unread = connections(Clock(), unread=1000)
    wire = Wire("a", 5000)
    all_of_them.admit(wire)
    all_of_them.pause(wire)
    assert not wire.is_closed
    all_of_them.leave(wire)
    assert unread.taken == 0
