"""How the parser suite measures time: it distinguishes growth from a busy machine. The clock is simulated."""

from __future__ import annotations

import itertools

import pytest

from hermes_testing.suites.parser.growth import DOUBLING, FOLD, time_growth

SMALL, LARGE = "x" * 100, "x" * 100 * FOLD
MOST = DOUBLING**3


class Machine:
    """A clock, and work that advances it: `speeds` are the speeds of consecutive moments, in a loop."""

    def __init__(self, speeds=(1.0,), moment=0.004):
        self.now = 0.0
        self.moment = moment
        self.speeds = itertools.cycle(speeds)
        self.left, self.speed = 0.0, 1.0

    def clock(self):
        return self.now

    def work(self, seconds):
        """Advance the clock by this many seconds at the machine's current speed."""
        while seconds > 0:
            if self.left <= 0:
                self.left, self.speed = self.moment, next(self.speeds)
            part = min(self.left, seconds / self.speed)
            self.now, self.left, seconds = self.now + part, self.left - part, seconds - part * self.speed

    def growth(self, power):
        """Measure work that grows with a power of the text's length; the small text takes 4 ms."""
        return time_growth(lambda text: self.work(0.004 * (len(text) / 100) ** power), SMALL, LARGE, clock=self.clock)


def test_linear_work_grows_as_the_text():
    assert Machine().growth(1) == pytest.approx(FOLD)


def test_quadratic_work_grows_with_the_square():
    assert Machine().growth(2) == pytest.approx(FOLD**2)


# One quiet moment among slow ones: a small text fits into it, a large one does not.
BUSY = (1.0, *[0.45] * 12)


@pytest.mark.parametrize("seed", range(13))
def test_a_busy_machine_makes_linear_work_no_growth(seed):
    machine = Machine(BUSY[seed:] + BUSY[:seed])
    assert machine.growth(1) <= MOST


@pytest.mark.parametrize("seed", range(13))
def test_a_busy_machine_does_not_hide_growth(seed):
    machine = Machine(BUSY[seed:] + BUSY[:seed])
    assert machine.growth(2) > MOST


def test_a_round_that_is_disturbed_does_not_count():
    machine = Machine([1.0] * 9 + [0.1] * 40 + [1.0] * 10_000)
    assert machine.growth(1) <= MOST


def test_what_is_done_once_is_no_growth():
    machine, met = Machine(), []

    def act(text):
        machine.work((0 if met else 5) + 0.004 * (len(text) / 100) ** 2)
        met.append(text)

    assert time_growth(act, SMALL, LARGE, clock=machine.clock) > MOST


def test_a_time_too_short_to_say_anything_is_no_growth():
    machine = Machine()
    growth = time_growth(lambda text: machine.work(1e-9 * len(text) ** 2), SMALL, LARGE, clock=machine.clock)
    assert growth <= MOST
