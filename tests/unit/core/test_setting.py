"""Settings: one typed change each, in and out of locks, merged with their conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qresolve.errors import DataInvalid
from qresolve.setting import Setting, merge_settings

names = st.sampled_from(["a", "b", "c"])
values = st.one_of(st.sampled_from(["x", "y", ""]), st.integers(0, 2), st.booleans())
settings = st.one_of(
    st.builds(lambda name, value: Setting(path=name, value=value), names, values),
    st.builds(lambda name, value: Setting(env=name, value=value), names, st.sampled_from(["x", "", None])),
)


@given(settings)
def test_what_a_lock_holds_reads_back(setting: Setting) -> None:
    again = Setting.from_mapping(setting.to_mapping())
    assert again == setting
    assert type(again.value) is type(setting.value)
    assert None not in setting.to_mapping().values()


def test_the_forms() -> None:
    assert Setting(path="k.b", value="x").to_mapping() == {"path": "k.b", "value": "x"}
    assert Setting(env="A", value="").to_mapping() == {"env": "A", "value": ""}
    assert Setting(env="A").to_mapping() == {"env": "A", "unset": True}
    assert (Setting(path="k.b", value=1).key, Setting(env="A").key) == ("config.k.b", "env.A")


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {"value": "x"},
        {"path": "a", "env": "b", "value": "x"},
        {"path": "a"},
        {"path": "a", "value": "x", "extra": 1},
        {"path": "a", "value": ["x"]},
        {"path": "a", "value": 1.5},
        {"path": 1, "value": "x"},
        {"env": "A", "value": "x", "unset": True},
        {"env": "A", "unset": False},
        {"env": "A"},
    ],
)
def test_what_is_no_setting_is_refused(mapping: dict[str, Any]) -> None:
    with pytest.raises(DataInvalid):
        Setting.from_mapping(mapping)


@given(st.lists(st.lists(settings, max_size=3), max_size=3), st.randoms())
def test_merging_does_not_depend_on_the_order(groups: list[list[Setting]], random: Any) -> None:
    shuffled = [list(group) for group in groups]
    random.shuffle(shuffled)
    for group in shuffled:
        random.shuffle(group)
    assert merge_settings(shuffled) == merge_settings(groups)


@given(st.lists(st.lists(settings, max_size=3), max_size=3))
def test_each_key_is_merged_or_in_conflict_and_never_both(groups: list[list[Setting]]) -> None:
    merged, conflicts = merge_settings(groups)
    keys = [setting.key for setting in merged] + [conflict.key for conflict in conflicts]
    assert sorted(keys) == sorted({setting.key for group in groups for setting in group})
    for conflict in conflicts:
        assert len(conflict.values) > 1


def test_true_and_one_are_two_values() -> None:
    merged, (conflict,) = merge_settings([[Setting(path="a", value=True)], [Setting(path="a", value=1)]])
    assert (merged, conflict.key) == ((), "config.a")


def test_a_conflict_names_its_values() -> None:
    _, conflicts = merge_settings([[Setting(path="a", value="y"), Setting(env="b")], [Setting(path="a", value="x")]])
    assert [(conflict.key, conflict.values) for conflict in conflicts] == [("config.a", ("x", "y"))]
