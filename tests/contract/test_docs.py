"""Documents say what is true: generated pages are current, links lead somewhere, commands exist, examples are accepted."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from modelservice_api import conditions

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/**/*.md")])
HEAD = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def anchors_of(page: Path) -> set[str]:
    """Anchors as forges make them of headings."""
    heads = HEAD.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def make_targets() -> set[str]:
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^\.PHONY: (\S+)$", text, re.MULTILINE))


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of every fenced block of a language."""
    return [
        (name_of(page), text)
        for page in PAGES
        for found, text in FENCE.findall(page.read_text(encoding="utf-8"))
        if found == language
    ]


def crd_schema() -> dict[str, Any]:
    [version] = yaml.safe_load((REPOSITORY / "crds" / "modelservices.modelservice.dev.yaml").read_text())["spec"][
        "versions"
    ]
    schema: dict[str, Any] = close(version["schema"]["openAPIV3Schema"])
    return schema


def close(schema: Any) -> Any:
    """The schema with unknown fields forbidden, as the API server treats them with strict validation."""
    if isinstance(schema, dict):
        closed = {key: close(value) for key, value in schema.items() if not key.startswith("x-kubernetes")}
        if isinstance(closed.get("properties"), dict) and closed["properties"]:
            closed.setdefault("additionalProperties", False)
        return closed
    return [close(item) for item in schema] if isinstance(schema, list) else schema


def test_generated_pages_are_what_the_generator_writes() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_between_documents_leads_somewhere(page: Path) -> None:
    dead = []
    for link in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
        path, _, anchor = link.partition("#")
        if path.startswith(("http://", "https://", "mailto:")):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            dead.append(link)
    assert dead == []


def test_every_make_command_in_a_document_exists() -> None:
    named = {
        (name_of(page), target)
        for page in PAGES
        for target in re.findall(r"(?:`|^|\n|  )make ([a-z][a-z-]*)", page.read_text(encoding="utf-8"))
    }
    assert {(page, target) for page, target in named if target not in make_targets()} == set()


def test_every_make_command_says_in_help_what_it_does() -> None:
    command = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in shown.splitlines() if len(line.split()) > 1} == make_targets() - {"wheels"}


def test_every_reason_and_condition_is_in_the_reference() -> None:
    page = (REPOSITORY / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
    words = [reason.name for reason in conditions.Reasons.all()] + [str(kind) for kind in conditions.ConditionType]
    assert [word for word in words if f"| `{word}` |" not in page] == []


def test_every_field_that_a_user_may_write_is_in_the_reference() -> None:
    page = (REPOSITORY / "docs" / "reference" / "crd.md").read_text(encoding="utf-8")

    def paths(schema: dict[str, Any], here: str) -> list[str]:
        fields = schema.get("properties", {})
        return [here] + [path for name, field in fields.items() for path in paths(field, f"{here}.{name}")]

    assert [path for path in paths(crd_schema()["properties"]["spec"], "spec")[1:] if f"`{path}`" not in page] == []


def test_every_modelservice_in_a_document_is_one_that_the_api_server_accepts() -> None:
    schema = crd_schema()
    manifests = [
        *blocks("yaml"),
        *((name_of(p), p.read_text()) for p in REPOSITORY.glob("examples/**/modelservice.yaml")),
    ]
    manifests += [
        (page, text) for page, shell in blocks("sh") for text in re.findall(r"<<'END'\n(.*?)\nEND", shell, re.DOTALL)
    ]
    found = [
        (page, manifest)
        for page, text in manifests
        if "kind: ModelService" in text
        for manifest in yaml.safe_load_all(text)
    ]
    assert len(found) >= 3
    for page, manifest in found:
        try:
            jsonschema.validate(json.loads(json.dumps(manifest)), schema)
        except jsonschema.ValidationError as error:
            pytest.fail(f"{page}: {error.message} at {error.json_path}")


def test_a_document_never_names_a_folder_of_one_machine() -> None:
    text = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    assert [name for name, content in text.items() if re.search(r"(^|[\s`'\"(])/(work|home|root)/", content)] == []


def test_the_changelog_is_in_the_order_and_words_of_its_format() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([^\]]+)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    parts = set(re.findall(r"^### (\w+)", text, re.MULTILINE))
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
