"""Heads with a role: those above every baseline, and what the model that comes with the code has is measured."""

import json

import pytest

from lab.heads.measure import measure_heads
from lab.roles import roles_of
from vaswani.infer.explorer.export import ROLES, measured_roles
from vaswani.infer.runs import open_run


def role(low: float, **bounds: float) -> dict:
    best = {"layer": 2, "head": 1, "accuracy": 0.9, "low": low, "high": 0.95}
    given = {"luck": 0.1, "untrained": 0.2, "fixed": 0.3} | bounds
    baselines = {name: {"high": given[name]} for name in ("untrained", "fixed")}
    return {"cases": 7, "best": best, "luck": given["luck"], **baselines}


def test_a_head_has_a_role_if_it_is_above_every_baseline() -> None:
    roles = {"encoder": {"subject": role(0.8)}, "decoder": {}, "cross": {"it": role(0.8)}}
    subject, it = roles_of({"roles": roles})
    expected = {"kind": "encoder", "relation": "verb → its subject", "cases": 7}
    assert subject == expected | {"layer": 2, "head": 1, "accuracy": 0.9, "low": 0.8, "high": 0.95}
    assert it["relation"] == "it → antecedent, translated"
    for baseline in ("luck", "untrained", "fixed"):
        assert roles_of({"roles": {"cross": {"it": role(0.8, **{baseline: 0.85})}}}) == []


@pytest.mark.long
def test_the_roles_of_the_model_that_comes_with_the_code_are_measured() -> None:
    model_run = open_run("builtin:quickstart")
    measured = measure_heads(model_run)
    assert measured["params_sha256"] == measured_roles(model_run)["params_sha256"]
    saved = json.loads((model_run.workdir / ROLES).read_text(encoding="utf-8"))["roles"]
    for now, before in zip(roles_of(measured), saved, strict=True):
        assert now == pytest.approx(before, abs=0.01), "on another processor a few largest weights may differ"
