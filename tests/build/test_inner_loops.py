"""What tools/inner_loops.py counts in a listing of AArch64 code."""

from __future__ import annotations

import pytest

from tools import inner_loops

pytestmark = pytest.mark.isa


def _listing(*, sums=24, depth=4, others=18, on_stack=False, name="full_tile"):
    """A function with one loop: so many sums, depth times as many multiply-adds, and others."""
    body = ["ldr\tq0, [x1, x2]", "ldr\tq1, [sp, #16]" if on_stack else "ldp\tq6, q7, [x0], #32"]
    body += ["add\tx2, x2, #0x10"] * (others - 3)
    body += [
        f"fmla\tv{8 + n}.4s, v6.4s, v0.s[{lane}]" for lane in range(depth) for n in range(sums)
    ]
    code = ["mov\tx2, #0x0", *body, f"b.ne\t4 <{name}+0x4>  // b.any", "ret"]
    lines = [f"{4 * n:4x}:\t{line}" for n, line in enumerate(code)]
    return "\n".join([f"0000000000000000 <{name}>:", *lines, ""])


def test_a_loop_is_counted():
    (loop,) = inner_loops.loops(_listing())
    assert (loop.function, loop.instructions, loop.multiply_adds, loop.sums) == (
        "full_tile",
        114,
        96,
        24,
    )
    assert loop.is_full_tile and loop.is_good and not loop.stack_accesses


@pytest.mark.parametrize("worse", [{"others": 20}, {"on_stack": True}])
def test_a_worse_loop_is_seen(worse):
    (loop,) = inner_loops.loops(_listing(**worse))
    assert loop.is_full_tile and not loop.is_good


@pytest.mark.parametrize("other", [{"sums": 20}, {"sums": 18}, {"depth": 1}])
def test_other_tiles_are_not_full(other):
    (loop,) = inner_loops.loops(_listing(**other))
    assert not loop.is_full_tile


def test_a_loop_around_another_is_none():
    listing = _listing().replace("ret", "b.ne\t0 <full_tile>")
    assert [loop.instructions for loop in inner_loops.loops(listing)] == [114]


def test_check_wants_so_many_good_loops(monkeypatch, tmp_path, capsys):
    def check(listing, at_least):
        monkeypatch.setattr(inner_loops, "disassemble", lambda path, objdump: listing)
        return inner_loops.check([tmp_path / "engine.o"], at_least)

    two = _listing() + _listing(sums=18, depth=8, others=28)
    assert check(two, 2)
    assert "2 loops" in capsys.readouterr().out
    assert not check(two, 3)
    assert not check("", 1)
    assert not check(two + _listing(others=40), 2)
    assert "WORSE" in capsys.readouterr().out
