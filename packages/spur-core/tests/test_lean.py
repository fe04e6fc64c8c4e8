"""The light halves of the standard library: the same behaviour, without what they leave out."""

import collections
import copy
import functools
import pickle
import signal
import types
from collections.abc import Callable

import pytest

from spur_core import lean
from spur_core.ids import RuntimeId

Point = lean.namedtuple("Point", ("x", "y", "z"), defaults=(7,))
Theirs = collections.namedtuple("Theirs", ("x", "y", "z"), defaults=(7,))


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(1, 2),
        lambda cls: cls(1, 2, 3),
        lambda cls: cls(1, y=2),
        lambda cls: cls(z=3, y=2, x=1),
        lambda cls: cls._make([1, 2, 3]),
        lambda cls: cls(1, 2)._replace(y=5),
    ],
)
def test_values_are_as_those_of_the_standard_library(make: Callable[[type], tuple[int, ...]]) -> None:
    ours, theirs = make(Point), make(Theirs)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert (ours.x, ours.y, ours.z) == (theirs.x, theirs.y, theirs.z)
    assert repr(ours).removeprefix("Point") == repr(theirs).removeprefix("Theirs")
    assert ours._asdict() == theirs._asdict()
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(),
        lambda cls: cls(1),
        lambda cls: cls(1, 2, 3, 4),
        lambda cls: cls(1, 2, x=1),
        lambda cls: cls(1, 2, w=1),
        lambda cls: cls(1, w=1),
        lambda cls: cls(1, 2)._replace(w=1),
    ],
)
@pytest.mark.parametrize("cls", [Point, Theirs])
def test_what_does_not_fit_is_refused(make: Callable[[type], object], cls: type) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(cls)


def test_classes_tell_their_fields_and_module() -> None:
    assert (Point._fields, Point._field_defaults) == (Theirs._fields, Theirs._field_defaults)
    assert (Point.__module__, Point.__match_args__) == (__name__, ("x", "y", "z"))
    assert lean.namedtuple("Pair", "a b")(1, 2) == (1, 2)
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_values_are_copied_and_pickled() -> None:
    rid = RuntimeId(1, 2, 3)
    for again in (copy.deepcopy(rid), pickle.loads(pickle.dumps(rid))):
        assert again == rid
        assert type(again) is RuntimeId


def test_the_others_are_the_originals() -> None:
    assert lean.partial is functools.partial
    assert lean.MappingProxyType is types.MappingProxyType
    assert int(signal.SIGTERM) == lean.signal.SIGTERM
    assert lean.signal.getsignal(lean.signal.SIGCHLD) == signal.getsignal(signal.SIGCHLD)


def test_nothing_heavy_comes_with_it(loaded_modules: Callable[[str], set[str]]) -> None:
    assert not {"collections", "functools", "enum", "signal", "re", "types"} & loaded_modules(
        "spur_core.lean"
    )
