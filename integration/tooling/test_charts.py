"""The charts that benchmarks draw."""

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def charts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_charts", BENCHMARKS / "charts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def test_a_picture_has_every_point_in_its_chart(charts):
    one = charts.Chart("A & B", "jobs", "ms", [("one", [(1, 0.5), (100, 50.0)]), ("two", [(10, 3.0)])], 20.0)
    other = charts.Chart("alone", "nodes", "ms", [("one", [(7, 7.0)])])
    picture = read(charts.svg([one, other, other]))
    groups = picture.findall(f"{SVG}g")
    assert [len(group.findall(f"{SVG}circle")) for group in groups] == [3, 1, 1]
    texts = [text.text for text in groups[0].findall(f"{SVG}text")]
    assert {"A & B", "jobs", "ms", "one", "two", "budget 20", "0.1", "100"} <= set(texts)
    wide, high = (int(picture.attrib[name]) for name in ("width", "height"))
    for circle in picture.iter(f"{SVG}circle"):
        assert 0 < float(circle.attrib["cx"]) < wide
        assert 0 < float(circle.attrib["cy"]) < high


def test_more_stands_higher_and_further_to_the_right(charts):
    chart = charts.Chart("t", "x", "y", [("l", [(1, 1.0), (10, 10.0), (1000, 2000.0)])])
    circles = list(read(charts.svg([chart])).iter(f"{SVG}circle"))
    across = [float(circle.attrib["cx"]) for circle in circles]
    up = [float(circle.attrib["cy"]) for circle in circles]
    assert across == sorted(set(across))
    assert up == sorted(set(up), reverse=True)
