"""Options that several commands have, spelled and explained alike, and the question that they make."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from qresolve.question import Question


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """``--gpu`` and everything that says more about the target."""
    group = parser.add_argument_group("target")
    group.add_argument(
        "--gpu",
        action="append",
        required=True,
        metavar="GPU",
        help="sm120, 12.0, a name such as rtx5090, gb10 or h100, several with commas, or auto",
    )
    group.add_argument("--python", metavar="X.Y", help="Python of the environment (default: 3.12)")
    group.add_argument("--machine", metavar="MACHINE", help="x86_64 or aarch64 (default: the GPU's)")
    group.add_argument("--glibc", metavar="X.Y", help="oldest glibc that the environment must run on")
    group.add_argument("--os", metavar="NAME", dest="os_name", help="ubuntu22.04, debian12, rhel9, …: says the glibc")
    group.add_argument("--driver", metavar="VERSION", help="NVIDIA driver of the target")
    group.add_argument("--cuda", metavar="X.Y", help="CUDA lane of the wheels")
    group.add_argument("--nvcc", metavar="X.Y", help="nvcc that the host shows, or none")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """``--formats``, ``--engine`` and what may be assumed or accepted."""
    group = parser.add_argument_group("request")
    group.add_argument(
        "--formats",
        action="append",
        default=[],
        metavar="FORMAT[@SCHEME][:ROLE]",
        help="formats with commas: mxfp4,nvfp4:moe,fp8:kv (default: what --model has)",
    )
    group.add_argument(
        "--model", metavar="CONFIG", help="a checkpoint's config.json, or its folder: decides formats and shapes"
    )
    group.add_argument("--tp", type=int, metavar="N", help="tensor-parallel size")
    group.add_argument("--ep", type=int, metavar="N", help="expert-parallel size")
    group.add_argument("--engine", metavar="NAME[==VERSION]", help="the engine (default: the first that serves all)")
    group.add_argument(
        "--allow", action="append", default=[], metavar="SELECTOR=CLASS", help="accept that class or better"
    )
    group.add_argument(
        "--assume", action="append", default=[], metavar="FACT=VALUE", help="what if this fact had this value"
    )


def read_question(arguments: argparse.Namespace) -> Question:
    """The question of the parsed options, with the target's defaults said on stderr.

    Raises:
        UsageError: an option is wrong, or two contradict each other.
    """
    from qresolve.errors import UsageError  # noqa: PLC0415
    from qresolve.model.read import read_checkpoint  # noqa: PLC0415
    from qresolve.question import ask_question  # noqa: PLC0415
    from qresolve.report.model_text import model_lines  # noqa: PLC0415
    from qresolve.target.target import build_target, describe_defaults, read_target_data  # noqa: PLC0415

    data = read_target_data()
    target = build_target(
        gpu=arguments.gpu,
        data=data,
        machine=arguments.machine,
        glibc=arguments.glibc,
        os_name=arguments.os_name,
        python=arguments.python,
        driver=arguments.driver,
        cuda=arguments.cuda,
        nvcc=arguments.nvcc,
    )
    if not target.gpus:
        raise UsageError("with `--gpu none` there is nothing to judge", hint="--gpu sm120")
    question = ask_question(
        formats=arguments.formats,
        target=target,
        architectures=data.architectures,
        engine=arguments.engine,
        allow=arguments.allow,
        assume=arguments.assume,
        checkpoint=read_checkpoint(arguments.model) if arguments.model is not None else None,
        tp=arguments.tp,
        ep=arguments.ep,
    )
    for line in describe_defaults(target):
        print(line, file=sys.stderr)
    if question.model is not None:
        for line in model_lines(question.model, question.workload):
            print(line, file=sys.stderr)
    else:
        print(f"assumed workload: {question.workload.name} ({question.workload.meaning})", file=sys.stderr)
    for key, value in question.assumed.items():
        print(f"assumed: {key} = {value}", file=sys.stderr)
    return question
