"""The environment as its engines see it: what is installed, the variables and settings they start with, and facts.

Facts come from the installed files, from the variables and from the host; the lock contributes its settings alone,
never a verdict and never a route.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qresolve.builds import with_cuda
from qresolve.facts import ABSENT, UNSET, Scope
from qresolve.gates import leaves
from qresolve.knowledge.engine import engine_names, load_engine, read_distribution
from qresolve.settings_text import fill_placeholders, inherit, variable_text
from qresolve.situation import Host, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from qresolve.arch import Architectures
    from qresolve.facts import FactTable, Value, Vocabulary
    from qresolve.install.interpreter import InstalledDistribution, Interpreter
    from qresolve.knowledge.records import Engine, Scheme, Workload
    from qresolve.setting import Setting
    from qresolve.situation import Images

# What every process needs beside the variables that gates speak of.
_KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_PATH", "CC", "CXX", "LIBRARY_PATH", "CPATH")
_NVCC = re.compile(r"\brelease (\d+\.\d+)\b")
_SECONDS = 20.0
_HOST_TOOLKIT = "/usr/local/cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What is looked at. ``versions`` are installed distributions by normalized name.

    ``variables`` are those that engines start with here: the person's, as far as gates or compilers read them, with
    the lock's put over them. ``settings`` are the lock's, placeholders filled; ``given`` as the lock has them.
    """

    interpreter: Interpreter
    versions: Mapping[str, str]
    variables: Mapping[str, str] = field(repr=False)
    settings: tuple[Setting, ...] = ()
    given: tuple[Setting, ...] = ()

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.interpreter.executable

    def cuda_part(self, name: str) -> str | None:
        """The CUDA release (``13.0``) of a part of the toolkit, whatever its suffix (``nvidia-cuda-nvrtc-cu12``)."""
        version = next((version for one, version in self.versions.items() if one.startswith(name)), None)
        return None if version is None else ".".join(version.split(".")[:2])

    def configuration(self) -> dict[str, Value]:
        """The engine's configuration as facts: ``config.…``."""
        return {item.key: item.value for item in self.settings if item.path is not None and item.value is not None}


def installed_versions(distributions: Iterable[InstalledDistribution]) -> dict[str, str]:
    """Installed distributions by normalized name; of two copies the one that is imported."""
    found: dict[str, str] = {}
    for one in distributions:
        if one.normalized_name is not None and one.version is not None:
            found.setdefault(one.normalized_name, one.version)
    return found


def packages_in_gates(engines: Iterable[Engine]) -> frozenset[str]:
    """The distributions whose presence or version some condition of these engines looks at, and what they pin."""
    found: set[str] = set()
    for engine in engines:
        expressions = [gate.when for route in engine.routes.values() for gate in (*route.select, *route.execute)]
        expressions += [variant.when for route in engine.routes.values() for variant in route.classes]
        expressions += [named.expression for named in engine.conditions.values()]
        found |= {
            leaf.fact.removeprefix("package.")
            for expression in expressions
            for leaf in leaves(expression)
            if leaf.fact.startswith("package.")
        }
        found |= set(engine.gated)
    return frozenset(found)


def installed_engines(versions: Mapping[str, str]) -> tuple[str, ...]:
    """The engines that are installed, in data order."""
    from qresolve.install.interpreter import normalize_name  # noqa: PLC0415

    return tuple(name for name in engine_names() if normalize_name(read_distribution(name)) in versions)


def environment_of(
    interpreter: Interpreter, given: Iterable[Setting], variables: Mapping[str, str], vocabularies: Iterable[Vocabulary]
) -> Environment:
    """Put an environment together. ``variables`` are the person's; those that no gate reads are dropped."""
    settings = tuple(given)
    filled = fill_placeholders(settings, interpreter.paths)
    names = {"PATH", *_KEPT}
    for vocabulary in vocabularies:
        names |= {kind.key.removeprefix("env.") for kind in vocabulary.kinds() if kind.key.startswith("env.")}
    kept = {name: variables[name] for name in sorted(names) if name in variables}
    for setting in filled:
        if setting.env is None:
            continue
        if setting.value is None:
            kept.pop(setting.env, None)
        else:
            kept[setting.env] = inherit(setting.env, variable_text(setting.value), variables.get(setting.env))
    versions = installed_versions(interpreter.distributions)
    return Environment(interpreter=interpreter, versions=versions, variables=kept, settings=filled, given=settings)


def load_installed(name: str, versions: Mapping[str, str]) -> Engine:
    """The records of the engine's installed release; with a local label (``+cu129``) its build's CUDA is that.

    Raises:
        NoResolution: there are no records of that release.
    """
    from packaging.version import Version  # noqa: PLC0415

    from qresolve.install.interpreter import normalize_name  # noqa: PLC0415
    from qresolve.wheels.measure import parse_cuda_claim  # noqa: PLC0415

    version = Version(versions[normalize_name(read_distribution(name))])
    engine = load_engine(name, version.public)
    claimed = parse_cuda_claim(str(version), (), toolkit="") if version.local else None
    if claimed is not None and claimed != engine.release.cuda:
        engine = with_cuda(engine, claimed)
    return engine


def read_nvcc(variables: Mapping[str, str]) -> tuple[str | None, bool]:
    """The CUDA release of the nvcc that compilers find (None: it does not say), and whether it is on PATH.

    ``absent`` where there is none. CUDA_HOME and CUDA_PATH come before PATH, and the usual folder last, as in
    torch/utils/cpp_extension.py _find_cuda_home and flashinfer/jit/cpp_ext.py get_cuda_path.
    """
    on_path = shutil.which("nvcc", path=variables.get("PATH", os.defpath))
    homes = [variables[name] for name in ("CUDA_HOME", "CUDA_PATH") if variables.get(name)]
    places = [f"{home}/bin/nvcc" for home in homes] + [on_path or "", f"{_HOST_TOOLKIT}/bin/nvcc"]
    found = next((place for place in places if place and os.access(place, os.X_OK)), None)
    if found is None:
        return ABSENT, False
    try:
        done = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False, env=dict(variables)
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, on_path is not None
    match = _NVCC.search(done.stdout)
    return (match[1] if match else None), on_path is not None


def read_host_facts(environment: Environment) -> tuple[Host, dict[str, Value]]:
    """What this host shows to compilers at run time."""
    from qresolve.target.detect import finds_cxx  # noqa: PLC0415

    variables = environment.variables
    nvcc, on_path = read_nvcc(variables)
    ninja = shutil.which("ninja", path=variables.get("PATH", os.defpath)) is not None
    facts: dict[str, Value] = {"host.nvcc-on-path": on_path}
    builtins = loads_nvrtc_builtins(environment)
    if builtins is not None:
        facts["host.loads-nvrtc-builtins"] = builtins
    return Host(nvcc=nvcc, ninja=ninja, cxx=finds_cxx(variables)), facts


def loads_nvrtc_builtins(environment: Environment) -> bool | None:
    """Whether the loader finds the builtins of the installed NVRTC without being told where the wheels are.

    None where the loader's cache cannot be asked.
    """
    release = environment.cuda_part("nvidia-cuda-nvrtc")
    if release is None:
        return False
    wanted = f"libnvrtc-builtins.so.{release}"
    folders = environment.variables.get("LD_LIBRARY_PATH", "").split(":")
    if any(folder and os.path.exists(os.path.join(folder, wanted)) for folder in folders):  # noqa: PTH110, PTH118
        return True
    program = shutil.which("ldconfig", path=f"{environment.variables.get('PATH', os.defpath)}:/sbin:/usr/sbin")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return wanted in done.stdout if done.returncode == 0 else None


def variable_facts(environment: Environment, vocabulary: Vocabulary) -> dict[str, Value]:
    """The ``env.…`` facts of the variables that engines start with here.

    A variable of which a fact lists texts with placeholders (``{site_packages}/nvidia/cu13``) has that text where it
    is so here, and is the host's own otherwise.
    """
    found: dict[str, Value] = {}
    paths = environment.interpreter.paths
    fixed = {item.key: item.value for item in environment.given if item.env is not None}
    for kind in vocabulary.kinds():
        if not kind.key.startswith("env."):
            continue
        name = kind.key.removeprefix("env.")
        text = environment.variables.get(name)
        if kind.unfixed is not None:
            placed = {
                str(choice).format_map(_Placeholders(paths.placeholders)): choice
                for choice in kind.choices
                if choice != kind.unfixed
            }
            given = fixed.get(kind.key)
            found[kind.key] = given if given in kind.choices else placed.get(text or "", kind.unfixed)
        elif text is None:
            if kind.default is not None:
                found[kind.key] = UNSET if kind.fix == UNSET and kind.default == UNSET else kind.default
        elif kind.type == "text" and text == "" and kind.default is not None:
            found[kind.key] = kind.default
        else:
            found[kind.key] = vocabulary.parse_value(kind.key, text)
    return found


class _Placeholders(dict[str, str]):
    """What placeholders stand for; one of a variable's earlier value stays as it is."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def facts_here(
    environment: Environment,
    engine: Engine,
    scheme: Scheme,
    *,
    sm: int,
    workload: Workload,
    images: Images,
    architectures: Architectures,
    host: tuple[Host, Mapping[str, Value]],
) -> FactTable:
    """The facts of one row in this environment."""
    known, beside = host
    runtime = environment.cuda_part("nvidia-cuda-runtime")
    assumed: dict[str, Value] = {**beside, **variable_facts(environment, engine.vocabulary)}
    assumed |= environment.configuration()
    if runtime is not None:
        assumed["runtime.cudart"] = runtime
    from qresolve.measured import toolchain_fact  # noqa: PLC0415

    table = facts_of(
        engine=engine,
        sm=sm,
        scheme=scheme,
        workload=workload,
        host=known,
        images=images,
        architectures=architectures,
        assumed=assumed,
        packages=environment.versions,
        toolchain=toolchain_fact,
        machine=environment.interpreter.machine or platform.machine(),
    )
    # A configuration key that no setting names has the default of its record: nobody changed it here.
    missing = {
        kind.key: kind.default
        for kind in engine.vocabulary.kinds()
        if kind.scope is Scope.ENVIRONMENT and kind.default is not None and table.get(kind.key).value is None
    }
    return table.with_values(missing, "default") if missing else table
