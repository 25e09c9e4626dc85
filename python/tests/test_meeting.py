"""Boards: ranks that meet, and ranks that launch without a meeting, find out when they do different things."""

import threading

import pytest

import maco
from maco.meeting import ASIDE, SECRET, Board, launched_in_vain, told_apart


@pytest.fixture
def boards(tmp_path):
    path = str(tmp_path / "board")
    made = [Board(path, 0, 2, create=True), Board(path, 1, 2, create=False)]
    yield made
    for one in made:
        one.close()


def together(*steps):
    """What each step gives, or raises, each in a thread of its own."""
    found = [None] * len(steps)

    def work(i):
        try:
            found[i] = steps[i]()
        except maco.Error as error:
            found[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(steps))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
        assert not one.is_alive()
    return found


def meet(boards, *texts):
    return together(*(lambda board=board, text=text: board.meet(text, 20) for board, text in zip(boards, texts, strict=True)))


def test_what_is_only_told_is_not_compared(boards):
    assert meet(boards, f"compiles a graph{ASIDE} 'a'", f"compiles a graph{ASIDE} 'b'") == [0, 0]
    for error in meet(boards, f"runs 'a'{SECRET}11{SECRET}", f"compiles a graph{ASIDE} 'a' again"):
        assert told_apart(error) and str(error).endswith("rank 0 runs 'a', rank 1 compiles a graph 'a' again")
    for error in meet(boards, f"runs 'a'{SECRET}11{SECRET}", f"runs 'a'{SECRET}22{SECRET}"):
        assert str(error).endswith("rank 0 runs 'a' (11), rank 1 runs 'a' (22)")


def test_long_texts_are_compared_as_far_as_there_is_room(boards):
    assert meet(boards, "runs " + "x" * 1000, "runs " + "x" * 1000) == [0, 0]


def test_equal_launches_wait_for_nobody(boards):
    first, second = boards
    for number in range(200):
        first.begin("runs a", 1, 20)
        if number % 3 == 0:  # the other one is behind
            second.begin("runs a", 1, 20)
    for _ in range(200 - second.launches):
        second.begin("runs a", 1, 20)
    assert meet(boards, "compiles", "compiles") == [0, 0] and first.launches == second.launches == 0


def test_whoever_launches_something_else_second_is_told(boards):
    first, second = boards
    first.begin("runs a, n = 8", 8, 20)
    with pytest.raises(maco.MismatchError, match="rank 0 runs a, n = 8, rank 1 runs a, n = 5"):
        second.begin("runs a, n = 5", 5, 20)
    # The first one is told at its next launch, once, and both go on.
    with pytest.raises(maco.MismatchError, match="rank 0 runs a, n = 8, rank 1 runs a, n = 5") as told:
        first.begin("runs a, n = 8", 8, 20)
    assert launched_in_vain(told.value) == ("runs a, n = 8", True)
    for one in (second, first):
        one.begin("runs a, n = 8", 8, 20)
    assert meet(boards, "compiles", "compiles") == [0, 0]  # both can go on


def test_who_waits_is_told_of_a_launch_in_its_place(boards):
    first, second = boards
    first.begin("runs a", 1, 20)
    with pytest.raises(maco.MismatchError, match="rank 0 runs a, rank 1 compiles a graph") as told:
        second.meet("compiles a graph", 20)
    assert not told_apart(told.value) and launched_in_vain(told.value) == ("runs a", False)
    # The one that has launched is told at its next launch, and both are where they were.
    with pytest.raises(maco.MismatchError, match="rank 0 runs a, rank 1 compiles a graph") as told:
        first.begin("runs b", 2, 20)
    assert not told_apart(told.value) and launched_in_vain(told.value) == ("runs a", True)
    assert meet(boards, "compiles", "compiles") == [0, 0]
    first.begin("runs a", 1, 20)
    second.begin("runs a", 1, 20)


def test_who_launches_is_told_of_one_that_waits(boards):
    first, second = boards
    for one in boards:
        one.begin("runs a", 1, 20)

    def launch():
        while second._count_of(1) != 1:
            pass
        first.begin("runs a", 1, 20)

    for error in together(launch, lambda: second.meet("compiles a graph", 20)):
        assert isinstance(error, maco.MismatchError) and "rank 0 runs a, rank 1 compiles a graph" in str(error)
        assert launched_in_vain(error) == ("", False)
    assert meet(boards, "compiles", "compiles") == [0, 0]


def test_launches_ahead_of_a_meeting_are_no_difference(boards):
    first, second = boards
    first.begin("runs a", 1, 20)
    first.begin("runs a", 1, 20)

    def behind():
        while second._count_of(0) != 1:
            pass
        second.begin("runs a", 1, 20)
        second.begin("runs a", 1, 20)
        return second.meet("compiles", 20)

    assert together(lambda: first.meet("compiles", 20), behind) == [0, 0]
