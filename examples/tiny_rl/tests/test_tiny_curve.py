from __future__ import annotations

from xml.etree import ElementTree as ET

from tiny_rl.curve import drawn, smoothed

SVG = "{http://www.w3.org/2000/svg}"


def test_a_curve_is_valid_svg_with_a_line_for_each_seed():
    training = {"seed 0": [(0.1, 0.2), (1.0, 0.9)], "seed 1": [(0.2, 0.1), (2.0, 1.0)]}
    root = ET.fromstring(drawn(training, {"seed 0": [(0.0, 0.2), (1.0, 0.9)]}, title="reward"))
    assert len(root.findall(f"{SVG}polyline")) == 2
    assert len(root.findall(f"{SVG}circle")) == 2


def test_a_higher_reward_is_higher_in_the_picture():
    root = ET.fromstring(drawn({"seed 0": [(0.0, 0.0), (1.0, 1.0)]}, {"seed 0": [(0, 0), (1, 1)]}, title="t"))
    low, high = (float(dot.attrib["cy"]) for dot in root.findall(f"{SVG}circle"))
    assert high < low


def test_smoothing_takes_the_mean_of_the_last_values():
    assert smoothed([0.0, 1.0, 2.0], window=2) == [0.0, 0.5, 1.5]
