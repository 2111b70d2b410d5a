from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qresolve.errors import DataInvalid
from qresolve.setting import Setting
from qresolve.settings_text import (
    EnvironmentPaths,
    fill_placeholders,
    inherit,
    needs_paths,
    render_dockerfile,
    render_shell,
)

PATHS = EnvironmentPaths.of_venv("/opt/venv", "3.12")
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0{}"), min_size=1, max_size=12)


def shell_result(lines: tuple[str, ...], name: str, variables: dict[str, str]) -> str:
    script = "\n".join([*lines, f'if [ -z "${{{name}+set}}" ]; then printf UNSET; else printf "%s." "${name}"; fi'])
    done = subprocess.run(["/bin/sh", "-c", script], env=variables, check=True, capture_output=True)
    return done.stdout.decode()


def test_placeholders_are_filled_for_one_environment() -> None:
    filled = fill_placeholders(
        (
            Setting(env="CUDA_HOME", value="{site_packages}/nvidia/cu13"),
            Setting(env="PATH", value="{env_bin}:{PATH}"),
            Setting(env="ROOT", value="{env}"),
            Setting(env="GONE", value=None),
            Setting(env="JSON", value='{"a":1}'),
        ),
        PATHS,
    )
    assert [setting.value for setting in filled] == [
        "/opt/venv/lib/python3.12/site-packages/nvidia/cu13",
        "/opt/venv/bin:{PATH}",
        "/opt/venv",
        None,
        '{"a":1}',
    ]


def test_an_unknown_placeholder_is_a_bad_data_file() -> None:
    with pytest.raises(DataInvalid, match=r"\{enviroment\}"):
        fill_placeholders((Setting(env="X", value="{enviroment}/bin"),), PATHS)


def test_only_a_placeholder_needs_an_environment() -> None:
    assert needs_paths((Setting(env="X", value="{env}/x"),))
    assert not needs_paths(
        (Setting(env="X", value="{X}:/x"), Setting(env="Y", value=None), Setting(path="a.b", value="c"))
    )


@pytest.mark.parametrize(
    ("value", "earlier", "expected"),
    [
        ("/a:{LIST}", "/b", "/a:/b"),
        ("/a:{LIST}", None, "/a"),
        ("/a:{LIST}", "", "/a"),
        ("{LIST}:/a", None, "/a"),
        ("{LIST}:/a", "/b", "/b:/a"),
        ("/a", "/b", "/a"),
    ],
)
def test_an_inherited_value_leaves_no_empty_entry(value: str, earlier: str | None, expected: str) -> None:
    assert inherit("LIST", value, earlier) == expected
    environment = {} if earlier is None else {"LIST": earlier}
    assert shell_result(render_shell((Setting(env="LIST", value=value),)), "LIST", environment) == f"{expected}."


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_a_shell_reads_the_value_that_was_set(value: str) -> None:
    assert shell_result(render_shell((Setting(env="X", value=value),)), "X", {}) == f"{value}."


def test_a_removed_variable_is_unset_in_a_shell() -> None:
    assert shell_result(render_shell((Setting(env="X", value=None),)), "X", {"X": "there"}) == "UNSET"


def test_true_and_false_are_one_and_zero() -> None:
    lines = render_shell((Setting(env="A", value=True), Setting(env="B", value=False), Setting(env="C", value=3)))
    assert lines == ("export A=1", "export B=0", "export C=3")


def test_settings_of_the_configuration_are_no_variables() -> None:
    setting = Setting(path="kernel_config.linear_backend", value="humming")
    assert render_shell((setting,)) == ()
    assert render_dockerfile((setting,)) == ()


def test_dockerfile_lines_quote_and_inherit() -> None:
    assert render_dockerfile(
        (
            Setting(env="PATH", value="/opt/venv/bin:{PATH}"),
            Setting(env="JSON", value='{"cost":"$5"}'),
        )
    ) == ('ENV PATH="/opt/venv/bin${PATH:+:$PATH}"', 'ENV JSON="{\\"cost\\":\\"\\$5\\"}"')


def test_dockerfile_comments_on_what_it_cannot_remove() -> None:
    (line,) = render_dockerfile((Setting(env="VLLM_DISABLED_KERNELS", value=None),))
    assert line.startswith("# VLLM_DISABLED_KERNELS must not be set")
    assert "env -u VLLM_DISABLED_KERNELS" in line


def test_dockerfile_refuses_a_line_break() -> None:
    with pytest.raises(DataInvalid, match="line break"):
        render_dockerfile((Setting(env="X", value="a\nb"),))
