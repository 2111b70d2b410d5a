"""A verification as JUnit XML, which CI systems show: a test case for each row and each package. Pure.

A row that is refuted is a failure, one that could not be proved an error, a rung that does not apply is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from qresolve.verify.evidence import Outcome

if TYPE_CHECKING:
    from qresolve.verify.evidence import VerifyReport


def to_junit(report: VerifyReport) -> str:
    """The document. Source of the form: the JUnit schema of Jenkins' xunit plug-in, which others read as well."""
    formats = ET.Element("testsuite", name="formats")
    for verdict in report.verdicts:
        about = verdict.about
        name = f"{about} on {about.arch}" + (f" by {about.engine}" if about.engine else "")
        case = ET.SubElement(formats, "testcase", classname="qresolve.verify", name=name)
        own = [one for one in report.evidence if one.about == about]
        ET.SubElement(case, "system-out").text = _xml_text(
            "\n".join(
                f"rung {one.rung} {one.outcome.value}: {one.subject}"
                + (f" [{one.seen}]" if one.seen else "")
                + (f": {one.why}" if one.why else "")
                for one in own
            )
        )
        if not verdict.holds:
            kind = "failure" if verdict.refuted else "error"
            message = f"{verdict.verdict}, {about.wanted} is wanted" + (f": {verdict.why}" if verdict.why else "")
            ET.SubElement(case, kind, type=verdict.verdict, message=_xml_text(message))
    packages = ET.Element("testsuite", name="packages")
    for one in report.evidence:
        if one.about is not None:
            continue
        case = ET.SubElement(packages, "testcase", classname="qresolve.verify.packages", name=_xml_text(one.subject))
        kinds = {Outcome.REFUTED: "failure", Outcome.UNPROVED: "error", Outcome.SKIPPED: "skipped"}
        if one.outcome in kinds:
            ET.SubElement(case, kinds[one.outcome], message=_xml_text(one.why or one.outcome.value))
    root = ET.Element("testsuites", name="qresolve verify")
    for suite in (formats, packages):
        for kind, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(key, str(len(suite.findall(f"testcase/{kind}"))))
        suite.set("tests", str(len(suite)))
        root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _xml_text(text: str) -> str:
    """``text`` without characters that XML cannot hold, which compilers print now and then."""
    return "".join(letter for letter in text if letter in "\t\n\r" or letter >= " ")
