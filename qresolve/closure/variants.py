"""Variant wheels (PEP 825): what an index's ``*-variants.json`` says, and which wheel is the target's. Pure.

A variant wheel has a label behind its tags (``demo-1.0-py3-none-any-cu13.whl``); the JSON maps labels to properties
``namespace :: feature :: value``. Of one feature any value will do, and every feature must be met. An installer asks
the host; here it is the target that decides, by the loading rule of :mod:`qresolve.arch`: ``120f_real`` runs on sm121,
``120a_real`` does not. What a property means is in ``constraints/variants.toml``; one that nobody knows fits nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from qresolve.arch import Loadability, loadability, parse_image_arch
from qresolve.closure.tags import select_wheel
from qresolve.data import data_folder
from qresolve.strict import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.tags import Tag

    from qresolve.arch import Architectures

_WORD = re.compile(r"[a-z0-9_]+")
_VALUE = re.compile(r"[a-z0-9_.]+")
_LABEL = re.compile(r"[a-z0-9_.]+")
_IMAGE = re.compile(r"(?P<arch>\d{2,3}[af]?)_(?P<kind>real|virtual)")
_MEANINGS = ("cuda-at-least", "cuda-below", "image", "package")
_LAST = (1 << 30,)  # a feature that a variant does not have comes after all that have it
NULL = "null"
"""The label of the variant without properties."""


class BadVariants(ValueError):
    """The text is no variant metadata; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who knows a namespace: values that hold for every machine (static), and the order of its features."""

    static: Mapping[str, tuple[str, ...]]
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """One ``*-variants.json``. ``labels`` maps each label to namespace, feature and the values that will do."""

    namespaces: tuple[str, ...]
    providers: Mapping[str, Provider]
    labels: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRules:
    """What properties mean: (namespace, feature) to a meaning, and what every CPU of a machine has."""

    meanings: Mapping[tuple[str, str], str]
    baselines: Mapping[tuple[str, str, str], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTarget:
    """What variants are chosen for. ``cuda`` is the newest CUDA release that may be taken, None: not known.

    ``packages`` are the versions of the environment, None: not known yet, so that any may be there.
    """

    sms: tuple[int, ...]
    cuda: str | None
    machine: str
    packages: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantDecision:
    """One wheel: taken, or rejected and by which properties. ``fits`` without ``taken``: another one is better."""

    label: str
    filename: str
    fits: bool
    taken: bool
    reasons: tuple[str, ...]


def variants_filename(name: str, version: str) -> str:
    """``demo_kern-1.0-variants.json``, as it stands on the index beside the wheels."""
    return f"{canonicalize_name(name).replace('-', '_')}-{version}-variants.json"


def split_label(filename: str) -> tuple[str, str] | None:
    """A variant wheel's name without its label, and the label; None where it has none."""
    stem, dot, end = filename.rpartition(".")
    parts = stem.split("-")
    built = len(parts) > 2 and parts[2][:1].isdigit()
    if (dot, end) != (".", "whl") or len(parts) != (7 if built else 6) or not _LABEL.fullmatch(parts[-1]):
        return None
    return f"{'-'.join(parts[:-1])}.whl", parts[-1]


def parse_variants(text: str) -> Variants:
    """Read a ``*-variants.json``; unknown keys are left alone, as the standard is a draft.

    Raises:
        BadVariants: not such a document.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadVariants(f"not JSON: {error}") from error
    top = _mapping(document, "the document")
    priorities = _mapping(top.get("default-priorities", {}), "default-priorities")
    labels: dict[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = {}
    for label, namespaces in _mapping(top.get("variants"), "variants").items():
        if not _LABEL.fullmatch(label):
            raise BadVariants(f"variants: {label!r} is no label")
        labels[label] = {
            _word(namespace, f"variants.{label}"): _features(features, f"variants.{label}.{namespace}")
            for namespace, features in _mapping(namespaces, f"variants.{label}").items()
        }
    providers = {}
    for namespace, provider in _mapping(top.get("providers", {}), "providers").items():
        table = _mapping(provider, f"providers.{namespace}")
        static = _mapping(table.get("static-properties", {}), f"providers.{namespace}.static-properties")
        providers[namespace] = Provider(
            static={feature: _values(values, f"providers.{namespace}") for feature, values in static.items()},
            order=_values(table.get("feature-order", []), f"providers.{namespace}.feature-order"),
        )
    return Variants(
        namespaces=_values(priorities.get("namespace", []), "default-priorities.namespace"),
        providers=providers,
        labels=labels,
    )


@cache
def read_variant_rules() -> VariantRules:
    """Read ``variants.toml`` of the shipped constraints.

    Raises:
        DataInvalid: the file is missing or wrong.
    """
    table = read_toml(data_folder("constraints") / "variants.toml", name="constraints/variants.toml")
    table.day("checked")
    table.text("read-from")
    meanings, baselines = {}, {}
    for row in table.tables("feature"):
        meanings[row.text("namespace"), row.text("feature")] = row.choice("means", _MEANINGS)
        row.text("where")
        row.done()
    for row in table.tables("baseline"):
        baselines[row.text("namespace"), row.text("feature"), row.text("machine")] = row.texts("values")
        row.text("where")
        row.done()
    table.done()
    return VariantRules(meanings=meanings, baselines=baselines)


def select_variant(
    variants: Variants,
    filenames: Iterable[str],
    *,
    target: VariantTarget,
    ranks: Mapping[Tag, int],
    rules: VariantRules,
    architectures: Architectures,
) -> tuple[VariantDecision, ...]:
    """One decision for each of ``filenames`` (wheels of one version): at most one is taken.

    The best is the one whose properties come first in the metadata's order of namespaces and features, each by its
    nearest value; among equals the best tags. A wheel without a label is not judged here.
    """
    judge = _Judge(variants=variants, target=target, rules=rules, architectures=architectures)
    judged: list[tuple[VariantDecision, tuple[tuple[int, ...], ...]]] = []
    for filename in sorted(set(filenames)):
        split = split_label(filename)
        if split is None:
            continue
        plain, label = split
        reasons, rank = judge.label(label)
        if select_wheel([plain], ranks) is None:
            reasons = (*reasons, "its tags do not fit the target")
        decision = VariantDecision(label=label, filename=filename, fits=not reasons, taken=False, reasons=reasons)
        judged.append((decision, rank))
    fitting = [(rank, decision) for decision, rank in judged if decision.fits]
    best = None
    if fitting:
        first = min(rank for rank, _ in fitting)
        equals = {(split_label(one.filename) or ("", ""))[0]: one for rank, one in fitting if rank == first}
        tagged = select_wheel(equals, ranks)
        best = None if tagged is None else equals[tagged]
    return tuple(
        VariantDecision(
            label=one.label,
            filename=one.filename,
            fits=one.fits,
            taken=one is best,
            reasons=one.reasons if one is best or not one.fits or best is None else (f"{best.label} is better",),
        )
        for one, _ in judged
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    variants: Variants
    target: VariantTarget
    rules: VariantRules
    architectures: Architectures

    def label(self, label: str) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
        """Why the label does not fit (empty: it does), and its rank, lower being better."""
        properties = {} if label == NULL else self.variants.labels.get(label)
        if properties is None:
            return ("its label is not in the metadata",), ()
        reasons: list[str] = []
        found: dict[tuple[str, str], tuple[int, ...]] = {}
        for namespace, features in properties.items():
            for feature, values in features.items():
                ranks = [rank for value in values if (rank := self._rank(namespace, feature, value)) is not None]
                if ranks:
                    found[namespace, feature] = min(ranks)
                else:
                    reasons.append(self._why_not(namespace, feature, values))
        return tuple(reasons), tuple(found.get(key, _LAST) for key in self._order())

    def _order(self) -> tuple[tuple[str, str], ...]:
        """All features of the metadata, the ones that weigh most first."""
        used = {
            (namespace, feature)
            for properties in self.variants.labels.values()
            for namespace, features in properties.items()
            for feature in features
        }
        known = list(self.rules.meanings)

        def key(one: tuple[str, str]) -> tuple[int, int, int, str, str]:
            namespace, feature = one
            names = self.variants.namespaces
            provider = self.variants.providers.get(namespace)
            order = provider.order if provider is not None else ()
            return (
                names.index(namespace) if namespace in names else len(names),
                order.index(feature) if feature in order else len(order),
                known.index(one) if one in known else len(known),
                namespace,
                feature,
            )

        return tuple(sorted(used, key=key))

    def _rank(self, namespace: str, feature: str, value: str) -> tuple[int, ...] | None:
        """How good one property is on the target, lower being better; None where it does not hold there."""
        meaning = self._meaning(namespace, feature)
        if meaning is None:
            for allowed in self._static(namespace, feature):
                if value in allowed:
                    return (allowed.index(value),)
            return None
        if meaning == "image":
            return self._rank_image(value)
        if meaning == "package":
            if self.target.packages is None:
                return (-len(value),)
            have = self.target.packages.get(canonicalize_name(feature), "")
            return (-len(value),) if f"{have.partition('+')[0]}.".startswith(f"{value}.") else None
        wanted, have_cuda = _numbers(value), _numbers(self.target.cuda or "")
        if wanted is None or have_cuda is None:
            return None
        if meaning == "cuda-at-least":
            # A build for an older major is another lane, although the driver would run it.
            return tuple(-part for part in wanted) if wanted <= have_cuda and wanted[0] == have_cuda[0] else None
        return wanted if have_cuda < wanted else None

    def _rank_image(self, value: str) -> tuple[int, ...] | None:
        match = _IMAGE.fullmatch(value)
        if match is None or not self.target.sms:
            return None
        image = parse_image_arch(match["arch"], kind="sass" if match["kind"] == "real" else "ptx")
        loads = [loadability(image, sm, self.architectures) for sm in self.target.sms]
        if Loadability.NONE in loads:
            return None
        # Machine code before PTX; the nearest sm; on it `a` and `f` before the plain one, which cannot hold FP4 MMA.
        return (-min(found.rank for found in loads), -image.sm, ("a", "f", "").index(image.suffix))

    def _meaning(self, namespace: str, feature: str) -> str | None:
        meanings = self.rules.meanings
        return meanings.get((namespace, feature)) or meanings.get((namespace, "*"))

    def _static(self, namespace: str, feature: str) -> tuple[tuple[str, ...], ...]:
        baseline = self.rules.baselines.get((namespace, feature, self.target.machine))
        if any(key[0] == namespace for key in self.rules.baselines):
            return () if baseline is None else (baseline,)
        provider = self.variants.providers.get(namespace)
        return () if provider is None or feature not in provider.static else (provider.static[feature],)

    def _why_not(self, namespace: str, feature: str, values: tuple[str, ...]) -> str:
        name = f"{namespace} :: {feature} :: {', '.join(values)}"
        meaning = self._meaning(namespace, feature)
        if meaning == "image":
            each = "" if len(self.target.sms) < 2 else "each of "
            return f"{name} does not load on {each}{', '.join(f'sm{sm}' for sm in self.target.sms) or 'no GPU'}"
        if meaning in ("cuda-at-least", "cuda-below"):
            return f"{name} does not go with CUDA {self.target.cuda or 'of an unknown release'}"
        if meaning == "package":
            have = (self.target.packages or {}).get(canonicalize_name(feature))
            return f"{name} does not go with {feature} {have}" if have else f"{name}: {feature} is not there"
        if any(key[0] == namespace for key in self.rules.baselines):
            return f"{name} is more than every {self.target.machine} has"
        return f"{name}: nothing here knows what it means"


def _numbers(text: str) -> tuple[int, int] | None:
    try:
        release = Version(text).release
    except InvalidVersion:
        return None
    return release[0], release[1] if len(release) > 1 else 0


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadVariants(f"{where} is no table")
    return value


def _features(value: Any, where: str) -> Mapping[str, tuple[str, ...]]:
    return {
        _word(feature, where): _values(values, f"{where}.{feature}")
        for feature, values in _mapping(value, where).items()
    }


def _word(text: str, where: str) -> str:
    if not _WORD.fullmatch(text):
        raise BadVariants(f"{where}: {text!r} is no name")
    return text


def _values(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and _VALUE.fullmatch(one) for one in value):
        raise BadVariants(f"{where} is no list of values")
    return tuple(value)
