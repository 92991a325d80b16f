"""What a repository promises beside its code: licence, versions, workflow, hooks, containers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCKERFILES = ["Dockerfile", "runtime/Dockerfile"]


def project(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_one_version_and_one_licence() -> None:
    whole, runtime = project("."), project("runtime")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert whole["version"] == runtime["version"] == citation["version"]
    [needed] = [each for each in whole["dependencies"] if each.startswith("xfed-runtime")]
    major, minor, _ = whole["version"].split(".")
    assert needed == f"xfed-runtime>={major}.{minor},<{major}.{int(minor) + 1}"
    assert whole["license"] == runtime["license"] == citation["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text == (ROOT / "runtime" / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert f"## {whole['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_citation_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    [paper] = citation["references"]
    assert paper["title"] == "Federated Personalization of Early-Exit Networks"
    assert [author["family-names"] for author in paper["authors"]] == ["Liu", "Zhou", "Fang", "Tong"]


def test_the_workflow_runs_what_everyone_runs() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
    for template in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(template.read_text(encoding="utf-8"))


def test_hooks_use_the_houses_own_tools() -> None:
    path = ROOT / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", str(path)], check=True)
    hooks = [
        hook for repository in yaml.safe_load(path.read_text(encoding="utf-8"))["repos"] for hook in repository["hooks"]
    ]
    assert hooks[0]["entry"] == "make --silent .venv/.installed-for-development", "the first one makes what others need"
    assert hooks[0]["always_run"]
    for hook in hooks[1:]:
        program = Path(shlex.split(hook["entry"])[0])
        assert program.parent == Path(".venv/bin")
        assert (Path(sys.executable).parent / program.name).exists()


def test_make_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    [phony] = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    explained = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[0] for line in explained.splitlines()] == phony.split()


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Read a Dockerfile: instructions with their arguments, continued lines joined."""
    text = (ROOT / dockerfile).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_containers(dockerfile: str) -> None:
    found = instructions(dockerfile)
    names = [name for name, _ in found]
    known = {"FROM", "ARG", "RUN", "COPY", "WORKDIR", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert set(names) <= known
    bases = [argument for name, argument in found if name == "FROM"]
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*", base) for base in bases), "a base image is pinned"
    folder = (ROOT / dockerfile).parent
    ignored = (folder / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for sources in (argument.split()[:-1] for name, argument in found if name == "COPY"):
        for source in sources:
            assert (folder / source).exists(), f"{dockerfile} copies {source}, which is not there"
            assert f"!{source}" in ignored, f".dockerignore keeps {source} out"
    users = [argument for name, argument in found if name == "USER"]
    assert users, "it does not run as root"
    assert users[-1] not in ("root", "0")
    assert names.index("USER") > max(index for index, name in enumerate(names) if name == "RUN")
    for name, argument in found:
        if name == "RUN":
            subprocess.run(["bash", "-n"], input=argument, text=True, check=True)
            assert "pip install" not in argument or "--no-cache-dir" in argument
            assert "apt-get install" not in argument or "rm -rf /var/lib/apt/lists/*" in argument
        if name in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(argument), list)
    [entry] = [json.loads(argument)[0] for name, argument in found if name == "ENTRYPOINT"]
    assert entry in project(str(folder.relative_to(ROOT)))["scripts"]
