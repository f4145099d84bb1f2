# SPDX-License-Identifier: Apache-2.0
"""Findings of the doctor: what needs attention in full, the rest folded."""

from .differences import current_id
from .html import badge, element, folded, table

ORDER = ("FAIL", "WARN", "UNKNOWN", "PASS", "SKIP")


def verdict_of(finding):
    """One of ORDER; what a newer doctor may say is not known."""
    verdict = finding.text("verdict")
    return verdict if verdict in ORDER else "UNKNOWN"


def counts(findings):
    """Verdict and number, the worst first."""
    verdicts = [verdict_of(finding) for finding in findings]
    return [(verdict, verdicts.count(verdict)) for verdict in ORDER if verdict in verdicts]


def _name(finding):
    subject = finding.text("subject", "")
    return [element("strong", finding.text("title", None) or current_id(finding.text("check"))), f" ({subject})" if subject else ""]


def _in_full(finding):
    readings = finding.nodes("readings")
    remedy = finding.text("remedy", "")
    return element(
        "article",
        element("p", badge(verdict_of(finding)), " ", _name(finding)),
        element("p", finding.text("statement")),
        element("p", element("strong", "Why it matters: "), finding.text("why"), class_="fine") if finding.text("why", "") else None,
        element("p", element("strong", "Remedy: "), remedy, " (needs a reboot)" if finding.flag("needs_reboot") else "") if remedy else None,
        folded("What was read", table(["source", "value"], [[reading.text("source"), reading.text("value")] for reading in readings])) if readings else None,
        element("p", element("code", f"gigabar explain {current_id(finding.text('check'))}"), class_="fine"),
        class_=f"finding {verdict_of(finding).lower()}")


def shown(findings):
    found = sorted(findings, key=lambda finding: ORDER.index(verdict_of(finding)))
    full = [finding for finding in found if verdict_of(finding) in ("FAIL", "WARN")]
    unknown = [finding for finding in found if verdict_of(finding) == "UNKNOWN"]
    rest = [finding for finding in found if verdict_of(finding) in ("PASS", "SKIP")]
    rows = [[badge(verdict_of(finding)), _name(finding), finding.text("statement")] for finding in rest]
    return [[_in_full(finding) for finding in full],
            folded(f"{len(unknown)} that could not be decided", [_in_full(finding) for finding in unknown]) if unknown else None,
            folded(f"{len(rest)} that passed or do not apply", table(["verdict", "check", "statement"], rows)) if rest else None]


def symptom(document):
    """What `doctor --symptom` says of a program's messages."""
    asked = document.root.node("symptom")
    if asked is None:
        return None
    lines = [[str(int(line.number("line"))), line.text("text"), line.text("means"), line.text("remedy")] for line in asked.nodes("lines")]
    return [element("p", "Symptom: ", element("q", asked.text("text"))), table(["line", "message", "what it means", "remedy"], lines) if lines else None]


def identity(host, findings):
    """Equal for findings that say the same of the same machine."""
    return host, tuple(sorted((current_id(finding.text("check")), finding.text("subject", ""), finding.text("statement")) for finding in findings))
